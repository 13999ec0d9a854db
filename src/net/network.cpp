// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/network.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/cpu_quota.hpp"
#include "base/descriptors.hpp"
#include "base/random.hpp"
#include "base/system_random.hpp"
#include "net/channel_placement.hpp"
#include "net/channel_setup.hpp"
#include "net/dead_peers.hpp"
#include "net/engine.hpp"
#include "net/fallbacks.hpp"
#include "net/interfaces.hpp"
#include "net/observe/watch.hpp"
#include "net/processors.hpp"
#include "net/rdma.hpp"
#include "net/split_connection.hpp"
#include "net/wires.hpp"
#include "policy/loader.hpp"
#include "topology/machine.hpp"
#include "transport/congestion/controller.hpp"
#include "wire/fault/fault_wire.hpp"
#include "wire/rails/rails_wire.hpp"

namespace tutti::net {
namespace {

using wire::rails::RailsWire;
using wire::udp::SocketAddress;

/// With fewer processors a spinning thread takes one from the program.
constexpr int kProcessorsToSpare = 16;
/// A thread copies what it carries, about 4 GB/s each way. Other ranks of the host have as many.
constexpr int kProcessorsOfBusy = 8;
constexpr int kEnginesWhenBusyMax = 4;
/// Where memory is the link. Each message on all four engines takes longer: they are other
/// channels', too (docs/network-measured.md).
constexpr std::size_t kSubConnectionsOfLoopback = 2;
/// What it sleeps on, beside the receiver of each rail.
constexpr int kDescriptorsOfEngine = 3;
constexpr int kGroups = static_cast<int>(kWindowGroups);
constexpr int kPathsMin = kGroups;  ///< Of a rail, where descriptors are few.
constexpr Bytes kBufferToSpare = 8 << 20;
/// Share of TUTTI_NET_TIMEOUT that the shutdown waits: a host that is cut off declares one peer
/// dead and then waits for the others, to which it has sent nothing.
constexpr double kCloseShare = 0.25;
constexpr double kCloseTimeMinS = 0.5;
constexpr Bytes kChunkBytesMin = 512;  ///< Of less, a header and a system call are most of it.
constexpr double kCloseTimeMaxS = 2;
constexpr auto kExitTime = std::chrono::milliseconds(100);

/// Of faults: the wires of a job differ, and are the same ones in its next run if its launcher says
/// which rank this is. 256 devices and 256 engines of each have draws of their own.
std::uint64_t fault_stream(int device, int engine) {
  const std::uint64_t rank = launcher_rank().value_or(static_cast<std::uint64_t>(getpid()));
  return rank << 16 | static_cast<std::uint64_t>(device) << 8 | static_cast<std::uint64_t>(engine);
}

/// Most that sockets with such a buffer hold of one peer; 0: enough. What the kernel counts is
/// about twice the payload; a few peers share it.
Bytes window_of(Bytes buffer_bytes) {
  return buffer_bytes < kBufferToSpare ? std::max<Bytes>(buffer_bytes / 4, 128 << 10) : 0;
}

std::string kib(Bytes bytes) { return std::to_string(bytes >> 10) + " KiB"; }

/// Of which threads of ours may make use: a quota counts as if the others were not there.
int processors() {
  const auto there = static_cast<int>(processors_of_process().size());
  const int quota = cpu_quota_cores();
  return quota > 0 ? std::min(there, quota) : there;
}

/// What several are together.
Result<NetDevice> merge_devices(const std::vector<const NetDevice*>& parts) {
  if (parts.empty() || parts.size() > RailsWire::kRailsMax) {
    return Status(ErrorCode::kInvalidArgument, "net: a device has 1 to " +
                                                   std::to_string(RailsWire::kRailsMax) +
                                                   " rails, not " + std::to_string(parts.size()));
  }
  NetDevice merged = *parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const NetDevice& part = *parts[i];
    merged.name += "+" + part.name;
    merged.guid = mix64(merged.guid) ^ part.guid;
    merged.speed_mbps = std::min(merged.speed_mbps, part.speed_mbps);
    merged.mtu_bytes = std::min(merged.mtu_bytes, part.mtu_bytes);
    merged.is_loopback = merged.is_loopback && part.is_loopback;
    merged.takes_device_memory = merged.takes_device_memory && part.takes_device_memory;
    merged.takes_dma_buf = merged.takes_dma_buf && part.takes_dma_buf;
    merged.latency_us = std::max(merged.latency_us, part.latency_us);
    std::vector<int> both;
    std::set_union(merged.near_processors.begin(), merged.near_processors.end(),
                   part.near_processors.begin(), part.near_processors.end(),
                   std::back_inserter(both));
    merged.near_processors = std::move(both);
  }
  merged.speed_mbps *= static_cast<int>(parts.size());  // Each as fast as the slowest.
  return merged;
}

/// Where `wire` is verbs, or auto and can be verbs: leaves the devices that have RDMA ports.
Status choose_wire(const RdmaOptions& rdma, const Log& log, std::string* wire,
                   std::vector<NetDevice>* devices) {
  if (*wire != "verbs" && *wire != "auto") {
    return {};
  }
  auto found = rdma_devices(*devices, rdma, log);
  // A variable that cannot be understood is no reason to take another wire.
  const bool is_error = !found.ok() && found.status().code() == ErrorCode::kInvalidConfig;
  if (*wire == "auto" && !is_error) {
    *wire = found.ok() ? "verbs" : "udp";
    log(LogKind::kInfo, "net: TUTTI_NET_WIRE=auto is " + *wire +
                            (found.ok() ? "" : ": " + found.status().message()));
  } else if (!found.ok()) {
    return found.status();
  }
  if (found.ok()) {
    *devices = std::move(*found);
  }
  return {};
}

class SystemNetwork : public Network {
 public:
  SystemNetwork(const NetworkOptions& options, std::vector<NetDevice> devices,
                const tutti_transport_policy* policy, Log log)
      : config_(options.config),
        rdma_(options.rdma),
        device_copies_(options.device_copies),
        wants_buffer_(options.wants_buffer),
        log_(std::move(log)),
        watch_(config_, log_) {
    for (NetDevice& device : devices) {
      devices_.emplace_back().it = std::move(device);
    }
    channel_options_.policy = policy;
    channel_options_.controller = config_.net_controller;
    channel_options_.wire = config_.net_wire;
    channel_options_.log = log_;
    channel_options_.spray = config_.net_spray;
    channel_options_.authenticates = config_.net_authenticate;
    channel_options_.traffic_class = static_cast<std::uint8_t>(config_.net_traffic_class);
    channel_options_.lazy_ns = static_cast<transport::TimeNs>(config_.net_ack_delay_us) * 1000;
    channel_options_.timeout_ns = static_cast<transport::TimeNs>(config_.net_timeout_s * 1e9);
    // Counted now in any case: NCCL may have bound even the first thread when a device starts.
    const bool has_many = processors() >= kProcessorsToSpare;
    is_busy_ = config_.net_polling == "busy" || (config_.net_polling == "auto" && has_many);
  }

  ~SystemNetwork() override {
    // Waits for eager sends to be acknowledged and for closes under way: the last acknowledgement
    // may be the last packet that the peer gets. A dead peer does not delay the caller for long.
    const std::chrono::duration<double> close_time(
        std::clamp(kCloseShare * config_.net_timeout_s, kCloseTimeMinS, kCloseTimeMaxS));
    const bool are_closed = wait_for_all(close_time, [](const Engine& engine) {
      return !engine.has_eager_sends() && engine.is_quiet();
    });
    for (const Device& device : devices_) {
      for (const auto& engine : device.engines) {
        const std::string awaited = are_closed ? std::string() : engine->awaited();
        if (!awaited.empty()) {
          log_(LogKind::kInfo, "net: channels that their peers have not closed: " + awaited);
        }
        log_(LogKind::kInfo, "net: " + engine->report());
        (void)engine->publish();
      }
    }
    // Before one of them goes: sub-connections of one channel write to each other's engines.
    for (const Device& device : devices_) {
      for (const auto& engine : device.engines) {
        engine->stop();
      }
    }
  }

  std::vector<NetDevice> devices() const override {
    const std::lock_guard lock(mutex_);
    std::vector<NetDevice> all;
    for (const Device& device : devices_) {
      all.push_back(device.it);
    }
    return all;
  }

  Result<int> merge(std::span<const int> numbers) override {
    const std::lock_guard lock(mutex_);
    const std::vector<int> rails(numbers.begin(), numbers.end());
    if (rails.size() == 1) {
      TUTTI_RETURN_IF_ERROR(check(rails[0]));
      return rails[0];
    }
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (!rails.empty() && devices_[i].it.rails == rails) {
        return static_cast<int>(i);
      }
    }
    std::vector<const NetDevice*> parts;
    for (const int number : rails) {
      TUTTI_RETURN_IF_ERROR(check(number));
      parts.push_back(&devices_[static_cast<std::size_t>(number)].it);
      if (!parts.back()->rails.empty() || std::count(rails.begin(), rails.end(), number) > 1) {
        return Status(ErrorCode::kInvalidArgument,
                      "net: " + parts.back()->name + " cannot be a rail " +
                          (parts.back()->rails.empty() ? "twice" : "of others, it has some"));
      }
    }
    TUTTI_ASSIGN_OR_RETURN(NetDevice merged, merge_devices(parts));
    merged.rails = rails;
    devices_.emplace_back().it = std::move(merged);
    return static_cast<int>(devices_.size()) - 1;
  }

  Result<std::unique_ptr<Listener>> listen(int number) override {
    TUTTI_ASSIGN_OR_RETURN(Device* const device, start(number));
    TUTTI_ASSIGN_OR_RETURN(const SocketAddress local, address_of(device->it));
    return make_listener(local, channel_options_of(*device), [this, device](std::uint64_t peer) {
      return next_engines(*device, peer, false);
    });
  }

  Result<std::unique_ptr<Connector>> connect(int number, const Handle& handle,
                                             int traffic_class) override {
    if (traffic_class < kDefaultClass || traffic_class > 255) {
      return Status(ErrorCode::kInvalidArgument,
                    "net: a traffic class is 0 to 255, not " + std::to_string(traffic_class));
    }
    TUTTI_ASSIGN_OR_RETURN(Device* const device, start(number));
    ChannelOptions options = channel_options_of(*device);
    if (traffic_class != kDefaultClass) {
      options.traffic_class = static_cast<std::uint8_t>(traffic_class);
    }
    TUTTI_ASSIGN_OR_RETURN(const SocketAddress local, address_of(device->it));
    return make_connector(local, handle, options, [this, device](std::uint64_t peer) {
      return next_engines(*device, peer, true);
    });
  }

  void finish_watch() override {
    const std::lock_guard lock(mutex_);
    // Their sends are done, so nobody else looks after them.
    (void)wait_for_all(kExitTime, [](const Engine& engine) { return !engine.has_eager_sends(); });
    for (const Device& device : devices_) {
      for (const auto& engine : device.engines) {
        engine->answer_all();
        (void)engine->publish();
      }
    }
    watch_.finish();
  }

 private:
  using Engines = std::vector<std::unique_ptr<Engine>>;

  struct Device {
    NetDevice it;
    Engines engines;                       ///< Once it is used.
    std::uint64_t id = 0;                  ///< Handshake::device; random, once it is used.
    std::unique_ptr<Placement> placement;  ///< Of the channels on the engines.
    Bytes window_bytes = 0;                ///< Most that its sockets hold of one peer; 0: enough.
  };

  /// Until all engines are so, or (false) the time is over.
  template <class Wanted>
  bool wait_for_all(std::chrono::duration<double> time, Wanted wanted) const {
    using std::chrono::steady_clock;
    const auto end = steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(time);
    const auto are_so = [&] {
      return std::all_of(devices_.begin(), devices_.end(), [&](const Device& device) {
        return std::all_of(device.engines.begin(), device.engines.end(),
                           [&](const auto& engine) { return wanted(*engine); });
      });
    };
    while (!are_so()) {
      if (steady_clock::now() >= end) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }

  /// Under the lock.
  Status check(int number) const {
    if (number >= 0 && static_cast<std::size_t>(number) < devices_.size()) {
      return {};
    }
    return Status(ErrorCode::kInvalidArgument, "net: there is no device " + std::to_string(number) +
                                                   " among " + std::to_string(devices_.size()));
  }

  /// A wire over one interface. `paths`: of it. `buffer_bytes`: what its socket has.
  Result<std::unique_ptr<wire::Wire>> open_rail_of(
      const NetDevice& device, int paths, const std::shared_ptr<Fallbacks>& fallbacks,
      const std::shared_ptr<wire::DeviceCopies>& copies, Bytes* buffer_bytes) const {
    // 8 bits of a byte, 10^6 ps of a microsecond: ps_per_byte = 8e6 / Mb/s.
    const int ps_per_byte = std::max(8'000'000 / std::max(1, device.speed_mbps), 1);
    TUTTI_ASSIGN_OR_RETURN(Rail rail, open_rail({device, config_, static_cast<std::uint32_t>(paths),
                                                 static_cast<std::uint32_t>(ps_per_byte),
                                                 wants_timestamps(), fallbacks, rdma_, copies}));
    *buffer_bytes = rail.buffer_bytes;
    check_buffer(device, rail, *fallbacks);
    return std::move(rail.wire);
  }

  /// Less than the default is usual without privileges: it is a fall-back where the user asked for
  /// more, or where windows have to shrink for it.
  void check_buffer(const NetDevice& device, const Rail& rail, Fallbacks& fallbacks) const {
    const Bytes window_bytes = window_of(rail.buffer_bytes);
    if (rail.buffer_bytes < rail.buffer_bytes_wanted && (window_bytes > 0 || wants_buffer_)) {
      fallbacks.add(
          device.name,
          "a receive buffer of " + kib(rail.buffer_bytes) + " and not " +
              kib(rail.buffer_bytes_wanted) +
              (window_bytes == 0 ? "" : ", which shrinks windows to " + kib(window_bytes)),
          "net.core.rmem_max of " + std::to_string(config_.net_buffer_bytes) +
              " (sysctl), CAP_NET_ADMIN, or a smaller TUTTI_NET_BUFFER");
    }
  }

  /// Of each rail of a device that has so many engines. Each is a socket, and a device leaves half
  /// of the descriptors that there are to those after it, to channels and to the program. A peer
  /// may have more; the fewer count.
  int paths_of_rail(const NetDevice& device, int engines, Fallbacks& fallbacks) const {
    const auto rails = static_cast<int>(std::max<std::size_t>(device.rails.size(), 1));
    const int wanted = std::max(config_.net_paths / rails, 1);
    const int room =
        std::max((descriptors_left() / 2 / engines - kDescriptorsOfEngine) / rails - 1, kPathsMin);
    // As many as leave each window group the same number of them.
    const auto even = [](int paths) { return paths - (paths > kGroups ? paths % kGroups : 0); };
    if (room < wanted) {
      fallbacks.add(device.name,
                    std::to_string(rails * even(room)) + " paths and not " +
                        std::to_string(config_.net_paths) + ", for ulimit -n is " +
                        std::to_string(descriptors_max()),
                    "a higher one, or fewer TUTTI_NET_PATHS");
      return even(room);
    }
    return rails == 1 ? wanted : even(wanted);
  }

  /// Over all rails of a device. `buffer_bytes`: of the socket that has least.
  Result<std::unique_ptr<wire::Wire>> open_wire(const NetDevice& device, int paths,
                                                const std::shared_ptr<Fallbacks>& fallbacks,
                                                const std::shared_ptr<wire::DeviceCopies>& copies,
                                                Bytes* buffer_bytes) const {
    if (device.rails.empty()) {
      return open_rail_of(device, paths, fallbacks, copies, buffer_bytes);
    }
    *buffer_bytes = UINT64_MAX;
    std::vector<std::unique_ptr<wire::Wire>> rails;
    for (const int number : device.rails) {
      TUTTI_RETURN_IF_ERROR(check(number));
      Bytes of_rail_bytes = 0;
      TUTTI_ASSIGN_OR_RETURN(rails.emplace_back(),
                             open_rail_of(devices_[static_cast<std::size_t>(number)].it, paths,
                                          fallbacks, copies, &of_rail_bytes));
      *buffer_bytes = std::min(*buffer_bytes, of_rail_bytes);
    }
    TUTTI_ASSIGN_OR_RETURN(auto wire, RailsWire::open(std::move(rails), monotonic_ns));
    return std::unique_ptr<wire::Wire>(std::move(wire));
  }

  /// The device, whose engines start at its first use.
  Result<Device*> start(int number) {
    const std::lock_guard lock(mutex_);
    TUTTI_RETURN_IF_ERROR(check(number));
    Device& device = devices_[static_cast<std::size_t>(number)];
    if (!device.engines.empty()) {
      return &device;
    }
    const NetDevice& it = device.it;
    const auto fallbacks = std::make_shared<Fallbacks>(config_.strict, log_);
    TUTTI_ASSIGN_OR_RETURN(const std::vector<int> processors, processors_for(it, *fallbacks));
    const int count = config_.net_engines > 0 ? config_.net_engines : engines_by_default(it);
    const std::size_t sub_connections = sub_connections_of(it, static_cast<std::size_t>(count));
    if (config_.net_sub_connections > static_cast<int>(sub_connections)) {
      fallbacks->add(it.name,
                     std::to_string(sub_connections) + " sub-connection(s) and not " +
                         std::to_string(config_.net_sub_connections) +
                         (it.reaches_gpus() ? ", for messages may be in a GPU's memory"
                                            : ", for it has as many engines"),
                     it.reaches_gpus()
                         ? "fewer TUTTI_NET_SUB_CONNECTIONS"
                         : "more TUTTI_NET_ENGINES, or fewer TUTTI_NET_SUB_CONNECTIONS");
    }
    const int paths = paths_of_rail(it, count, *fallbacks);
    const auto dead_peers = std::make_shared<DeadPeers>();
    TUTTI_RETURN_IF_ERROR(system_random(&device.id, sizeof device.id));
    std::vector<std::unique_ptr<Engine>> started;
    std::string description;
    for (int i = 0; i < count; ++i) {
      Bytes buffer_bytes = 0;
      const std::shared_ptr<wire::DeviceCopies> copies =
          it.reaches_gpus() && device_copies_ ? device_copies_() : nullptr;
      TUTTI_ASSIGN_OR_RETURN(auto wire, open_wire(it, paths, fallbacks, copies, &buffer_bytes));
      TUTTI_RETURN_IF_ERROR(fallbacks->status());
      if (const Bytes window_bytes = window_of(buffer_bytes); window_bytes > 0) {
        device.window_bytes = window_bytes;
      }
      EngineOptions of_engine;
      of_engine.fallbacks = fallbacks;
      of_engine.name = "tutti-net-" + std::to_string(number) + "-" + std::to_string(i);
      of_engine.is_busy = is_busy_;
      of_engine.processors = processors;
      of_engine.eager_bytes_max = config_.net_copy_bytes;
      of_engine.dead_peers = dead_peers;
      of_engine.device_id = device.id;
      of_engine.device_copies = copies;
      of_engine.device = it.name;
      of_engine.address = it.address;
      of_engine.controller = config_.net_controller;
      of_engine.number = static_cast<std::uint32_t>(i);
      of_engine.speed_mbps = static_cast<std::uint32_t>(std::max(0, it.speed_mbps));
      if (!config_.fault.empty()) {
        TUTTI_ASSIGN_OR_RETURN(auto plan,
                               wire::fault::parse_fault_plan(config_.fault, "TUTTI_FAULT"));
        TUTTI_RETURN_IF_ERROR(
            wire::fault::check_kills(plan, wire->capabilities().paths, wire->capabilities().rails));
        wire = std::make_unique<wire::fault::FaultWire>(std::move(wire), std::move(plan),
                                                        monotonic_ns, fault_stream(number, i));
      }
      of_engine.watch = watch_.add();
      auto engine = std::make_unique<Engine>(std::move(wire), of_engine);
      if (started.empty()) {
        description = engine->description();  // The engine's thread may change it.
      }
      TUTTI_RETURN_IF_ERROR(engine->start());
      started.push_back(std::move(engine));
    }
    log_(LogKind::kInfo,
         "net: " + it.name + " " + it.address + ", " + std::to_string(count) +
             (is_busy_ ? " busy" : " shared") + " engine(s)" +
             (processors.empty() ? "" : " on processors " + topology::format_cpus(processors)) +
             ", " + std::to_string(sub_connections) + " sub-connection(s), " +
             config_.net_controller +
             (channel_options_.policy == nullptr
                  ? std::string()
                  : std::string(", policy ") + channel_options_.policy->name) +
             ", " + description);
    device.placement = std::make_unique<Placement>(started.size());
    device.engines = std::move(started);
    return &device;
  }

  /// Where its engines run; empty: anywhere.
  Result<std::vector<int>> processors_for(const NetDevice& device, Fallbacks& fallbacks) const {
    const std::vector<int>& allowed = processors_of_process();
    std::string fallback;
    TUTTI_ASSIGN_OR_RETURN(
        std::vector<int> chosen,
        choose_processors(config_.net_affinity, device.near_processors, allowed, &fallback));
    if (!fallback.empty()) {
      fallbacks.add(device.name, fallback,
                    "TUTTI_NET_AFFINITY=off, or a list of those that it may use, " +
                        topology::format_cpus(allowed));
    }
    return chosen;
  }

  /// Once it is started.
  ChannelOptions channel_options_of(const Device& device) const {
    ChannelOptions options = channel_options_;
    options.window_bytes = device.window_bytes;
    options.device_id = device.id;
    return options;
  }

  /// They cost a little of each packet.
  bool wants_timestamps() const {
    if (config_.net_timestamps != "auto") {
      return config_.net_timestamps == "on";
    }
    return transport::uses_delay(config_.net_controller) || channel_options_.policy != nullptr;
  }

  /// Of a device: those that spin are shared out, for NCCL uses all devices at once.
  int engines_by_default(const NetDevice& device) const {
    if (!is_busy_) {
      return 1;
    }
    const int all = std::clamp(processors() / kProcessorsOfBusy, 1, kEnginesWhenBusyMax);
    const auto links = std::count_if(devices_.begin(), devices_.end(),
                                     [](const Device& one) { return one.it.rails.empty(); });
    const auto own = std::max<std::size_t>(device.rails.size(), 1);
    return std::max(all * static_cast<int>(own) / static_cast<int>(links), 1);
  }

  /// Measured (docs/network-measured.md): a link's windows are better left whole, one engine is
  /// faster than it; memory is faster than an engine.
  std::size_t sub_connections_of(const NetDevice& device, std::size_t engines) const {
    const std::size_t wanted = device.reaches_gpus() ? 1
                               : config_.net_sub_connections > 0
                                   ? static_cast<std::size_t>(config_.net_sub_connections)
                               : device.is_loopback ? kSubConnectionsOfLoopback
                                                    : 1;
    return std::min(wanted, engines);
  }

  std::vector<Engine*> next_engines(const Device& device, std::uint64_t peer, bool sends) const {
    std::vector<Engine*> chosen;
    for (const std::size_t i : device.placement->next(
             peer, sends, sub_connections_of(device.it, device.engines.size()))) {
      chosen.push_back(device.engines[i].get());
    }
    return chosen;
  }

  Config config_;
  RdmaOptions rdma_;
  std::function<std::shared_ptr<wire::DeviceCopies>()> device_copies_;
  bool wants_buffer_;
  Log log_;
  Watch watch_;  ///< Outlives the engines.
  bool is_busy_ = false;
  ChannelOptions channel_options_;
  mutable std::mutex mutex_;    ///< Of the devices' number, and of the engines' start.
  std::deque<Device> devices_;  ///< They stay where they are.
};

}  // namespace

Result<std::unique_ptr<Network>> Network::open(const NetworkOptions& wanted, Log log,
                                               std::vector<NetDevice> devices) {
  NetworkOptions options = wanted;
  Config& config = options.config;
  TUTTI_RETURN_IF_ERROR(Watch::check(config));
  // Here NCCL can still take another network; when channels are made it cannot.
  const auto controller = transport::make_controller(config.net_controller, {});
  if (!controller.ok()) {
    return Status(ErrorCode::kInvalidConfig,
                  "TUTTI_NET_CONTROLLER: " + controller.status().message());
  }
  if (config.net_chunk_bytes != 0 && config.net_chunk_bytes < kChunkBytesMin) {
    return Status(ErrorCode::kInvalidConfig,
                  "TUTTI_NET_CHUNK: " + std::to_string(config.net_chunk_bytes) +
                      " bytes are less than a datagram should have; write 0, or " +
                      std::to_string(kChunkBytesMin) + " to 64K");
  }
  TUTTI_RETURN_IF_ERROR(wire::fault::parse_fault_plan(config.fault, "TUTTI_FAULT").status());
  // What it means depends on the rank's own processors: an error here would have that rank alone
  // take another network.
  TUTTI_RETURN_IF_ERROR(check_affinity(config.net_affinity));
  if (devices.empty()) {
    InterfaceFilter filter;
    filter.names = options.interfaces;
    filter.family = options.family;
    TUTTI_ASSIGN_OR_RETURN(devices, find_devices(filter));
    TUTTI_RETURN_IF_ERROR(choose_wire(options.rdma, log, &config.net_wire, &devices));
    // What plants faults copies payloads with the CPU.
    if (config.net_wire == "verbs" && config.fault.empty() && options.device_copies) {
      try_device_memory(options.device_copies(), log, &devices);
    }
  } else if (config.net_wire == "auto") {
    config.net_wire = devices[0].rdma_device.empty() ? "udp" : "verbs";
  }
  if (config.net_speed_mbps > 0) {
    for (NetDevice& device : devices) {
      const auto links = static_cast<int>(std::max<std::size_t>(device.rails.size(), 1));
      device.speed_mbps = config.net_speed_mbps * links;
    }
  }
  for (NetDevice& device : devices) {
    device.latency_us = config.net_latency_us;
  }
  TUTTI_ASSIGN_OR_RETURN(const tutti_transport_policy* const policy,
                         policy::load_transport_policy(config.transport_policy));
  return std::unique_ptr<Network>(
      std::make_unique<SystemNetwork>(options, std::move(devices), policy, std::move(log)));
}

}  // namespace tutti::net
