// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/library.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "base/dynamic_library.hpp"

namespace tutti::wire::verbs {
namespace {

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Megabits a second of a port, by IBTA's codes of width and speed.
int speed_of(const PortAttributes& port) {
  constexpr std::pair<int, int> kSpeeds[] = {{1, 2'500},   {2, 5'000},    {4, 10'000},
                                             {8, 10'000},  {16, 14'000},  {32, 25'000},
                                             {64, 50'000}, {128, 100'000}};
  constexpr std::pair<int, int> kWidths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  const auto find = [](const auto& table, int code) {
    const auto* const it = std::find_if(std::begin(table), std::end(table),
                                        [&](const auto& row) { return row.first == code; });
    return it == std::end(table) ? 0 : it->second;
  };
  return find(kSpeeds, port.active_speed) * find(kWidths, port.active_width);
}

Port describe(const Functions& verbs, Context* context, const std::string& device, int number,
              const PortAttributes& attributes, const std::string& class_directory) {
  Port port;
  port.device = device;
  port.number = number;
  port.is_active = attributes.state == kPortActive;
  port.is_ethernet = attributes.link_layer == kLinkEthernet;
  port.mtu_bytes = attributes.active_mtu > 0 ? 128 << attributes.active_mtu : 0;
  port.speed_mbps = speed_of(attributes);
  port.lid = attributes.lid;
  const std::string kept =
      class_directory + "/" + device + "/ports/" + std::to_string(number) + "/gid_attrs/";
  for (int i = 0; i < attributes.gid_count; ++i) {
    GidEntry entry;
    entry.index = i;
    if (verbs.query_gid(context, static_cast<std::uint8_t>(number), i, &entry.gid) != 0 ||
        entry.gid == Gid{}) {
      continue;
    }
    entry.is_roce_v2 = first_line(kept + "types/" + std::to_string(i)) == "RoCE v2";
    entry.interface = first_line(kept + "ndevs/" + std::to_string(i));
    port.gids.push_back(std::move(entry));
  }
  return port;
}

std::optional<std::uint64_t> read_count(const std::string& file) {
  const std::string line = first_line(file);
  std::uint64_t count = 0;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), count);
  return parsed.ec == std::errc() && parsed.ptr == line.data() + line.size() ? std::optional(count)
                                                                             : std::nullopt;
}

}  // namespace

std::optional<MarkCounters> read_marks(const std::string& class_directory,
                                       const std::string& device, int port) {
  const std::string counters =
      class_directory + "/" + device + "/ports/" + std::to_string(port) + "/hw_counters/";
  const auto marked = read_count(counters + "np_ecn_marked_roce_packets");
  const auto told = read_count(counters + "rp_cnp_handled");
  return marked && told ? std::optional(MarkCounters{*marked, *told}) : std::nullopt;
}

Result<Functions> load_library(const std::string& name) {
  const auto library = DynamicLibrary::open(name);
  if (!library.ok()) {
    return Status(ErrorCode::kUnavailable,
                  "RDMA: " + library.status().message() + "; it is rdma-core's libibverbs1");
  }
  Functions functions;
#define TUTTI_VERBS_RESOLVE(member, symbol, result, parameters)                              \
  if (!library->resolve(#symbol, &functions.member)) {                                       \
    return Status(ErrorCode::kUnavailable, "RDMA: " + library->path() + " has no " #symbol); \
  }
  TUTTI_VERBS_FUNCTIONS(TUTTI_VERBS_RESOLVE)
#undef TUTTI_VERBS_RESOLVE
#define TUTTI_VERBS_RESOLVE(member, symbol, result, parameters) \
  (void)library->resolve(#symbol, &functions.member);
  TUTTI_VERBS_OPTIONAL_FUNCTIONS(TUTTI_VERBS_RESOLVE)
#undef TUTTI_VERBS_RESOLVE
  return functions;
}

bool GidEntry::is_ipv4() const {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t byte) { return byte == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}

bool GidEntry::is_link_local() const { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

Result<std::size_t> choose_gid(const Port& port, const GidWish& wish) {
  const std::string name = port.device + " port " + std::to_string(port.number);
  std::size_t best = port.gids.size();
  int best_score = -1;
  for (std::size_t i = 0; i < port.gids.size(); ++i) {
    const GidEntry& entry = port.gids[i];
    if (wish.index >= 0) {
      if (entry.index == wish.index) {
        return i;
      }
      continue;
    }
    int score = 0;
    if (port.is_ethernet) {
      if (entry.is_roce_v2 != (wish.roce_version == 2)) {
        continue;
      }
      // Its interface, then the family, then an address that is routed.
      score += entry.interface == wish.interface ? 4 : 0;
      score += entry.is_ipv4() != wish.wants_ipv6 ? 2 : 0;
      score += entry.is_link_local() ? 0 : 1;
    }
    if (score > best_score) {
      best_score = score;
      best = i;
    }
  }
  if (best < port.gids.size()) {
    return best;
  }
  const std::string there = std::to_string(port.gids.size()) + " GID(s)";
  return Status(ErrorCode::kUnavailable,
                wish.index >= 0
                    ? "RDMA: " + name + " has no GID of index " + std::to_string(wish.index) +
                          " among " + there + "; remedy: another NCCL_IB_GID_INDEX, or none"
                    : "RDMA: " + name + " has no GID of RoCE v" +
                          std::to_string(wish.roce_version) + " among " + there +
                          "; remedy: an IP address for its interface");
}

PortFilter::PortFilter(std::string_view text) {
  excludes_ = text.starts_with('^');
  text.remove_prefix(excludes_ ? 1 : 0);
  is_exact_ = text.starts_with('=');
  text.remove_prefix(is_exact_ ? 1 : 0);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    Name name;
    const std::size_t colon = word.find(':');
    name.device = word.substr(0, colon);
    if (colon != std::string_view::npos) {
      std::from_chars(word.data() + colon + 1, word.data() + word.size(), name.port);
    }
    if (!name.device.empty()) {
      names_.push_back(std::move(name));
    }
  }
}

bool PortFilter::fits(const Port& port) const {
  const bool is_named = std::any_of(names_.begin(), names_.end(), [&](const Name& name) {
    const bool has_name =
        is_exact_ ? port.device == name.device : port.device.starts_with(name.device);
    return has_name && (name.port < 0 || name.port == port.number);
  });
  return names_.empty() || is_named != excludes_;
}

Result<std::vector<Port>> list_ports(const Functions& verbs, const std::string& class_directory) {
  int count = 0;
  Device** const devices = verbs.device_list(&count);
  if (devices == nullptr) {
    return Status(ErrorCode::kUnavailable,
                  std::string("RDMA: no devices: ") + std::strerror(errno));
  }
  std::vector<Port> ports;
  for (int i = 0; i < count; ++i) {
    Context* const context = verbs.open_device(devices[i]);
    if (context == nullptr) {
      continue;  // Not for this user: no device that we could use.
    }
    const std::string name = verbs.device_name(devices[i]);
    for (int number = 1; number <= 255; ++number) {
      PortAttributes attributes{};
      if (verbs.query_port(context, static_cast<std::uint8_t>(number), &attributes) != 0) {
        break;
      }
      ports.push_back(describe(verbs, context, name, number, attributes, class_directory));
    }
    verbs.close_device(context);
  }
  verbs.free_device_list(devices);
  return ports;
}

Context* open_device(const Functions& verbs, const std::string& name) {
  int count = 0;
  Device** const devices = verbs.device_list(&count);
  if (devices == nullptr) {
    return nullptr;
  }
  Context* context = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count && context == nullptr; ++i) {
    if (name == verbs.device_name(devices[i])) {
      context = verbs.open_device(devices[i]);
      error = errno;
    }
  }
  verbs.free_device_list(devices);
  errno = error;
  return context;
}

DeviceMemorySupport try_device_memory(const Functions& verbs, const std::string& device,
                                      std::span<std::byte> memory) {
  Context* const context = open_device(verbs, device);
  Pd* const pd = context == nullptr ? nullptr : verbs.alloc_pd(context);
  const auto refused = [](const char* way, int error) {
    return Status(ErrorCode::kUnavailable, std::string(way) + ": " + std::strerror(error));
  };
  DeviceMemorySupport support;
  Mr* mr = nullptr;
  if (pd == nullptr) {
    support.by_address = support.by_dma_buf = refused("no protection domain", errno);
  } else {
    mr = verbs.reg_mr(pd, memory.data(), memory.size(), kLocalWrite);
    support.by_address =
        mr == nullptr ? refused("by its address (nvidia-peermem)", errno) : Status();
    // A descriptor that is none: the kernel looks at it only if the device could.
    errno = ENOSYS;
    const bool can_try = verbs.reg_dmabuf_mr != nullptr;
    if (can_try && verbs.reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) == nullptr && errno == EBADF) {
      errno = 0;
    }
    support.by_dma_buf = errno == 0 ? Status() : refused("by dma-buf", errno);
  }
  if (mr != nullptr) {
    verbs.dereg_mr(mr);
  }
  if (pd != nullptr) {
    verbs.dealloc_pd(pd);
  }
  if (context != nullptr) {
    verbs.close_device(context);
  }
  return support;
}

}  // namespace tutti::wire::verbs
