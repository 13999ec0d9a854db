// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The transport as a service of a process: devices, connections, requests. Engine threads (see
// engine.hpp) do the work; these calls only hand it to them and read words that they write. The
// NCCL plugin and the schedule runner stand on it. Messages of a channel go one way. All calls may
// come from any thread; those of one channel's requests from one thread at a time.
//
//   receiver                                sender
//   Listener l = network.listen(device)
//   l.handle()  --- by any bootstrap --->   Connector c = network.connect(device, handle)
//   until l.accept() gives a channel        until c.poll() gives a channel
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/result.hpp"
#include "base/units.hpp"
#include "net/bootstrap/handle.hpp"
#include "net/observe/log.hpp"
#include "transport/types.hpp"
#include "wire/device_copies.hpp"
#include "wire/wire.hpp"

namespace tutti::net {

/// One network interface, or several that merge() has made one of.
struct NetDevice {
  std::string name;        ///< "eth0", "eth0+eth1"
  std::string address;     ///< "192.0.2.1" or "2001:db8::1"; of several the first one's.
  std::string pci_path;    ///< Real path below /sys of its PCI device; empty: a virtual one.
  std::uint64_t guid = 0;  ///< Unique among the devices of this host.
  int speed_mbps = 0;      ///< Megabit/s in each direction.
  int mtu_bytes = 0;
  std::vector<int> near_processors;  ///< Ascending; empty: unknown.
  bool is_loopback = false;          ///< Memory of this host, no link.
  double latency_us = 0;             ///< One way, for a tuner's model; 0: not known.
  std::vector<int> rails = {};       ///< Numbers of the devices it is made of; empty: an interface.
  std::string rdma_device = {};      ///< Behind it, for the verbs wire (net/rdma.hpp).
  int rdma_port = 0;
  bool takes_device_memory = false;  ///< Channel::register_device_memory(): by its address.
  bool takes_dma_buf = false;        ///< By its dma-buf.
  bool reaches_gpus() const { return takes_device_memory || takes_dma_buf; }
};

inline constexpr int kDefaultClass = -1;  ///< A traffic class: TUTTI_NET_TRAFFIC_CLASS.

/// What became of a request.
struct Completion {
  Status status;           ///< kTimeout: the peer is gone; kInvalidArgument: too long a message.
  std::uint8_t parts = 0;  ///< Of a receive; 1 of a send.
  std::array<Bytes, transport::kReceivePartsMax> bytes{};
};

/// Belongs to its channel; void after test() has reported it, or with the channel.
struct Request;

/// One direction between two processes. The destructor ends what is unfinished: when it returns
/// nothing touches a buffer any more. Of a channel with nothing unfinished it closes in order, and
/// engine threads do the rest.
class Channel {
 public:
  virtual ~Channel() = default;
  /// Null: too many are unfinished, test some and try again. Errors: the channel has failed.
  virtual Result<Request*> send(transport::Tag tag, const void* data, Bytes bytes) = 0;
  /// 1 to kReceivePartsMax parts. Same.
  virtual Result<Request*> receive(std::span<const transport::ReceivePart> parts) = 0;
  /// Memory that many sends or receives will lie in (wire::Wire::register_memory). Any thread.
  /// Errors: the system does not let so much be pinned (kUnavailable).
  virtual Status register_memory(std::span<std::byte> memory) {
    (void)memory;
    return {};
  }
  /// Memory of a GPU that sends or receives will lie in: others there are errors. Any thread.
  /// Errors: not this network, or its NIC does not reach it, and what would help.
  virtual Status register_device_memory(const wire::DeviceMemory& memory) {
    (void)memory;
    return wire::Wire::no_device_memory();
  }
  virtual void deregister_memory(std::span<std::byte> memory) { (void)memory; }
  /// Once it is done, the GPU sees what receives that were done before have brought into this
  /// memory, not empty; of some GPUs nobody needs it. Null, errors: as send().
  virtual Result<Request*> flush(std::span<const std::byte> memory) {
    (void)memory;
    return Status(ErrorCode::kUnsupported, "net: no memory of a GPU is registered here");
  }
  virtual std::string peer() const = 0;  ///< "host1 (192.0.2.7), process 4711"
};

/// True: it has ended, `completion` is filled, and the request is void. Never blocks.
bool test(Request* request, Completion* completion);
/// Whether test() would say that it has ended; does none of the work that test() may do. Of many
/// requests it is enough to test() one in turn.
bool has_ended(const Request* request);

class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Handle& handle() const = 0;
  /// Null: nobody has come yet. Never blocks. Errors: the peer does not fit (another version, wire
  /// or key), and what differs.
  virtual Result<std::unique_ptr<Channel>> accept() = 0;
  /// A peer whose set-up of a channel takes longer than TUTTI_NET_TIMEOUT is no error from here on.
  virtual void leave_wait_to_caller() {}
};

class Connector {
 public:
  virtual ~Connector() = default;
  /// Null: not yet. Never blocks. Errors: as accept(), and nobody there.
  virtual Result<std::unique_ptr<Channel>> poll() = 0;
  /// As a listener's; also of a peer that has not answered.
  virtual void leave_wait_to_caller() {}
};

/// Which RDMA ports and GIDs, as NCCL's variables say; empty: chosen.
struct RdmaOptions {
  std::string hca;           ///< NCCL_IB_HCA
  std::string gid_index;     ///< NCCL_IB_GID_INDEX
  std::string roce_version;  ///< NCCL_IB_ROCE_VERSION_NUM
  std::string family;        ///< NCCL_IB_ADDR_FAMILY
  std::string class_directory = "/sys/class/infiniband";
  std::string net_directory = "/sys/class/net";
};

/// How a Network is to be.
struct NetworkOptions {
  Config config;              ///< TUTTI_NET_* and what is of all rooms.
  bool wants_buffer = false;  ///< config.net_buffer_bytes is the user's wish, no default.
  std::string interfaces;     ///< As NCCL_SOCKET_IFNAME; empty: chosen.
  std::string family;         ///< As NCCL_SOCKET_FAMILY.
  RdmaOptions rdma = {};
  /// Makes what an engine needs of GPUs, for wires whose NICs reach their memory, and gives null
  /// where there are none. Empty: messages are in host memory.
  std::function<std::shared_ptr<wire::DeviceCopies>()> device_copies = {};
};

class Network {
 public:
  virtual ~Network() = default;
  virtual std::vector<NetDevice> devices() const = 0;
  /// The number of a device whose connections run over all of these, each a rail: with the links of
  /// all, and as long as one of them is up. Handshakes go over the first. The same ones give the
  /// same number. Errors: none or more than 8, one that there is not, twice, or made of others
  /// (kInvalidArgument).
  virtual Result<int> merge(std::span<const int> devices) = 0;
  virtual Result<std::unique_ptr<Listener>> listen(int device) = 0;
  /// `traffic_class`: of the channel's packets both ways (IPv4's TOS without its two low bits), 0
  /// to 255, or kDefaultClass.
  virtual Result<std::unique_ptr<Connector>> connect(int device, const Handle& handle,
                                                     int traffic_class) = 0;
  /// The process ends, and channels are still open: waits a moment for what sends that are done
  /// have left to do, and ends the files of those who watch. The channels go on.
  virtual void finish_watch() {}

  /// Finds the devices. No threads before the first listen() or connect(). The destructor finishes
  /// open closes for a bounded time and joins the threads; all channels are gone by then. Errors:
  /// no device (kUnavailable), an option that cannot be (kInvalidConfig). `devices`: not empty, of
  /// an earlier network, which stay these (one that is gone is an error when it is used).
  static Result<std::unique_ptr<Network>> open(const NetworkOptions& options, Log log,
                                               std::vector<NetDevice> devices = {});
};

/// As the environment says (TUTTI_*, NCCL_SOCKET_*). Errors: a bad variable, too (kInvalidConfig).
Result<NetworkOptions> options_of_environment(const Log& log);
Result<std::unique_ptr<Network>> open_network(Log log, std::vector<NetDevice> devices = {});
/// Same, for messages in memory of GPUs, too (net/gpu).
Result<std::unique_ptr<Network>> open_gpu_network(Log log, std::vector<NetDevice> devices = {});

}  // namespace tutti::net
