// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// GPUs and their links by NVIDIA's management library, found by dlopen.
#include <algorithm>
#include <utility>

#include "base/dynamic_library.hpp"
#include "discover/discover.hpp"
#include "discover/driver_nvml.hpp"

namespace tutti::discover {
namespace {

using topology::Gpu;
using topology::Link;
using topology::LinkKind;

/// The link of two GPUs without NVLink, by their nearest common ancestor.
constexpr std::pair<int, LinkKind> kLinkKinds[] = {
    {nvml::kTopologyInternal, LinkKind::kPix},  // Two GPUs of one board.
    {nvml::kTopologySingle, LinkKind::kPix},     {nvml::kTopologyMultiple, LinkKind::kPxb},
    {nvml::kTopologyHostBridge, LinkKind::kPhb}, {nvml::kTopologyNode, LinkKind::kNode},
    {nvml::kTopologySystem, LinkKind::kSys},
};

/// Links of one GPU: how many lead to each other GPU, and how many to a switch.
struct Fan {
  std::vector<int> to_gpu;
  int to_switch = 0;
  std::uint64_t rate_mbit_s = 0;  ///< Of one.
};

class Session {
 public:
  explicit Session(const nvml::Functions& functions) : nvml_(functions) {}
  ~Session() { (void)nvml_.shutdown(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Result<topology::VendorFacts> facts() {
    topology::VendorFacts facts{.is_known = true, .gpus = {}, .links = {}};
    unsigned count = 0;
    TUTTI_RETURN_IF_ERROR(check("nvmlDeviceGetCount", nvml_.device_count(&count)));
    for (unsigned index = 0; index < count; ++index) {
      nvml::Device device = nullptr;
      if (nvml_.device_by_index(index, &device) != nvml::kSuccess) {
        continue;  // Not for this user, or fallen off the bus: not a GPU that we could use.
      }
      facts.gpus.push_back(describe(device));
      devices_.push_back(device);
    }
    for (const nvml::Device device : devices_) {
      fans_.push_back(fan(device, facts.gpus));
    }
    for (std::size_t a = 0; a < devices_.size(); ++a) {
      for (std::size_t b = a + 1; b < devices_.size(); ++b) {
        add_link(a, b, &facts.links);
      }
    }
    return facts;
  }

  Status check(const char* what, nvml::Result result) const {
    if (result == nvml::kSuccess) {
      return {};
    }
    const char* words = nvml_.error_string == nullptr ? nullptr : nvml_.error_string(result);
    return {ErrorCode::kLibraryFailed, "NVLink: " + std::string(what) + ": " +
                                           (words != nullptr ? words : "no words for") + " (" +
                                           std::to_string(result) + ")"};
  }

 private:
  Gpu describe(nvml::Device device) const {
    Gpu gpu;
    char text[96] = {};
    if (nvml_.device_name(device, text, sizeof(text) - 1) == nvml::kSuccess) {
      gpu.name = text;
    }
    char uuid[96] = {};
    if (nvml_.device_uuid(device, uuid, sizeof(uuid) - 1) == nvml::kSuccess) {
      gpu.identity = uuid;
    }
    nvml::PciInfo pci{};
    if (nvml_.device_pci(device, &pci) == nvml::kSuccess) {
      gpu.pci = address_of(pci);
    }
    return gpu;
  }

  static std::string address_of(const nvml::PciInfo& pci) {
    const char* const end = std::find(std::begin(pci.bus_id), std::end(pci.bus_id), '\0');
    return topology::normal_pci(std::string(pci.bus_id, end)).value_or("");
  }

  Fan fan(nvml::Device device, const std::vector<Gpu>& gpus) const {
    Fan fan;
    fan.to_gpu.resize(gpus.size());
    fan.rate_mbit_s = link_rate(device);
    for (unsigned link = 0; link < nvml::kLinksMax; ++link) {
      int is_active = 0;
      const nvml::Result state = nvml_.link_state(device, link, &is_active);
      if (state == nvml::kErrorInvalidArgument) {
        break;  // No link of that number, nor a higher one.
      }
      if (state != nvml::kSuccess || is_active != nvml::kFeatureEnabled) {
        continue;
      }
      nvml::PciInfo remote{};
      std::string address;
      if (nvml_.link_remote_pci(device, link, &remote) == nvml::kSuccess) {
        address = address_of(remote);
      }
      const auto peer = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
        return !address.empty() && gpu.pci == address;
      });
      int type = -1;
      if (nvml_.link_remote_type != nullptr) {
        (void)nvml_.link_remote_type(device, link, &type);
      }
      if (peer != gpus.end()) {
        ++fan.to_gpu[static_cast<std::size_t>(peer - gpus.begin())];
      } else if (type != nvml::kRemoteGpu) {
        ++fan.to_switch;  // A GPU that this process does not see does not count.
      }
    }
    return fan;
  }

  /// Not by the link's version: some drivers report that of another generation.
  std::uint64_t link_rate(nvml::Device device) const {
    nvml::FieldValue speed{};
    speed.field_id = nvml::kFieldLinkSpeed;
    const bool known = nvml_.field_values != nullptr &&
                       nvml_.field_values(device, 1, &speed) == nvml::kSuccess &&
                       speed.result == nvml::kSuccess && speed.value_type == nvml::kValueUnsigned;
    return known ? std::uint64_t{speed.value.as_unsigned} * 8 : 0;
  }

  void add_link(std::size_t a, std::size_t b, std::vector<Link>* links) const {
    Link link;
    link.a = static_cast<int>(a);
    link.b = static_cast<int>(b);
    const int direct = std::min(fans_[a].to_gpu[b], fans_[b].to_gpu[a]);
    int switched = std::min(fans_[a].to_switch, fans_[b].to_switch);
    int status = nvml::kP2pOk;
    if (switched > 0 && nvml_.p2p_status != nullptr &&
        nvml_.p2p_status(devices_[a], devices_[b], nvml::kP2pCapsNvlink, &status) ==
            nvml::kSuccess &&
        status != nvml::kP2pOk) {
      switched = 0;  // Switches that do not join these two.
    }
    link.nvlinks = direct > 0 ? direct : switched;
    if (link.nvlinks > 0) {
      link.kind = LinkKind::kNvlink;
      link.rate_mbit_s = static_cast<std::uint64_t>(link.nvlinks) *
                         std::min(fans_[a].rate_mbit_s, fans_[b].rate_mbit_s);
      links->push_back(link);
      return;
    }
    int level = -1;
    if (nvml_.common_ancestor(devices_[a], devices_[b], &level) != nvml::kSuccess) {
      return;
    }
    for (const auto& [ancestor, kind] : kLinkKinds) {
      if (ancestor == level) {
        link.kind = kind;
        links->push_back(link);
      }
    }
  }

  nvml::Functions nvml_;
  std::vector<nvml::Device> devices_;
  std::vector<Fan> fans_;
};

}  // namespace

Result<topology::VendorFacts> ask_nvml() {
  const auto unavailable = [](const std::string& why) {
    return Status(ErrorCode::kUnavailable, "NVLink: " + why);
  };
  auto library = DynamicLibrary::open("libnvidia-ml.so.1");
  if (!library.ok()) {
    return unavailable(library.status().message());
  }
  nvml::Functions functions;
#define TUTTI_NVML_RESOLVE(member, symbol, parameters)        \
  if (!library->resolve(#symbol, &functions.member)) {        \
    return unavailable(library->path() + " has no " #symbol); \
  }
  TUTTI_NVML_FUNCTIONS(TUTTI_NVML_RESOLVE)
#undef TUTTI_NVML_RESOLVE
#define TUTTI_NVML_RESOLVE(member, symbol, parameters) library->resolve(#symbol, &functions.member);
  TUTTI_NVML_OPTIONAL_FUNCTIONS(TUTTI_NVML_RESOLVE)
#undef TUTTI_NVML_RESOLVE
  functions.error_string =
      reinterpret_cast<const char* (*)(nvml::Result)>(library->symbol("nvmlErrorString"));
  const nvml::Result started = functions.init();
  if (started != nvml::kSuccess) {
    const char* words =
        functions.error_string == nullptr ? nullptr : functions.error_string(started);
    return unavailable("nvmlInit: " + std::string(words != nullptr ? words : "failed") + " (" +
                       std::to_string(started) + ")");
  }
  return Session(functions).facts();
}

}  // namespace tutti::discover
