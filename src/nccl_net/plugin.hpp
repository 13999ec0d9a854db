// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The plugin behind the tables of all versions (adapters.cpp): NCCL's calls in their newest form
// over net::Network. Not the transport, and no threads of its own.
//
// Lifetime. The process has one Network. init() opens it, to find the devices; it is destroyed, and
// its engine threads joined, as soon as no communicator's context (version 11 and later), listener,
// channel or connection attempt is left, and is opened again by the next listen() or connect().
// Versions 6 to 10 have no finalize, and NCCL unloads the library after the last close: no thread
// may outlive that. If the library is unloaded with channels open, the code stays mapped
// (nodelete). In a child after fork() the threads do not exist: every call answers kSystemError
// there, and the closes do nothing.
//
// Threads. One mutex for all set-up calls. isend(), irecv() and test() take none: NCCL has one
// progress thread for the requests of a comm, while others may register or close other comms.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "nccl_net/abi.hpp"
#include "net/network.hpp"

namespace tutti::nccl_net {

/// What NCCL gets, by version (table.hpp).
struct Tables {
  abi::Net<6> v6;
  abi::Net<7> v7;
  abi::Net<8> v8;
  abi::Net<9> v9;
  abi::Net<10> v10;
  abi::Net<11> v11;
  abi::Net<12> v12;
};
extern Tables tables;

/// Whether the tables of versions 9 and later offer NCCL to merge NICs. NCCL's are made when it
/// loads the plugin: if a user asks it for that (NCCL_NET_FORCE_MERGE, NCCL_NET_MERGE_LEVEL).
void offer_rails(bool is_wanted);

/// The speed that NCCL is told of a device. Its search for channels (2.28, graph/search.cc) knows
/// 0.24 GB/s and then 1.2 GB/s: a device between twice the first and the second would be cut into
/// two to four channels, and messages as much shorter, though each channel has the whole device.
/// What it costs: NCCL may believe up to 2.6 times the speed when it compares its algorithms.
int speed_for_channels_mbps(int speed_mbps);

/// What version 11's init() makes for one NCCL communicator.
struct Context {
  int traffic_class = abi::kUndefined;
};

struct ListenComm {
  std::unique_ptr<net::Listener> listener;
};

struct Comm;

/// What NCCL holds as a request. Part of its comm.
struct RequestSlot {
  Comm* comm = nullptr;
  net::Request* inner = nullptr;
  bool is_receive = false;
  Status failure;  ///< How it ended, if it did not end well: then it stays taken.
};

/// A send or receive comm.
struct Comm {
  explicit Comm(std::unique_ptr<net::Channel> open_channel);

  static constexpr std::size_t kSlots = abi::kRequestsMax * transport::kReceivePartsMax;

  /// There must be a free one.
  RequestSlot* take(net::Request* inner, bool is_receive);
  void give_back(RequestSlot* slot);

  std::array<RequestSlot, kSlots> slots;
  std::array<std::uint16_t, kSlots> free;  ///< Indices, the first free_count of them.
  std::size_t free_count = kSlots;
  bool has_failed = false;                ///< Its error has been logged.
  Status failure;                         ///< Of the first request that failed and stays taken.
  std::shared_ptr<net::Channel> channel;  ///< Goes first: it ends what uses the rest.
};

/// Behind an mhandle. NCCL may hand it back when the comm is closed; the memory is then the wire's
/// until the network ends.
struct Registration {
  std::span<std::byte> memory;
  bool is_device = false;  ///< A GPU's.
  std::weak_ptr<net::Channel> channel;
};

class Plugin {
 public:
  /// The process's; never destroyed.
  static Plugin& instance();

  /// True in a child that was forked after init().
  static bool is_forked();

  Status init(abi::Logger* logger);
  Status init_context(abi::Logger* logger, int traffic_class, void** context);
  Status finalize(void* context);

  /// What the first init() found and merge() has made stays for good, and so do its strings.
  Result<net::NetDevice*> device(int number);
  /// As far as NCCL knows them: merged ones from their merge() on. Whether an init() is one of NCCL
  /// that has loaded the plugin anew and counts interfaces, or of one that goes on with all that it
  /// had (NCCL_NET_PLUGIN_REF_COUNT) and does not ask, cannot be told.
  int device_count();
  /// One device of several, for connections that use the links of all. Its number; the same ones
  /// give the same.
  Result<int> merge(std::span<const int> members);

  Status listen(int device, void* handle, void** listen_comm);
  /// `traffic_class`: kUndefined: the network's default.
  Status connect(void* context, int traffic_class, int device, void* handle, void** send_comm);
  Status accept(void* listen_comm, void** recv_comm);
  Status close(Comm* comm);
  Status close(ListenComm* comm);

  static Status isend(Comm* comm, const void* data, Bytes bytes, int tag, void** request);
  /// Of memory that receives which are done have filled.
  static Status iflush(Comm* comm, std::span<const std::byte> memory, void** request);
  static Status irecv(Comm* comm, std::span<const transport::ReceivePart> parts, void** request);
  /// `bytes`: of each part of the receive, of the send; may be null.
  static Status test(RequestSlot* slot, int* done, int* bytes);

  /// Through NCCL's logger; nothing before init() has given it.
  void log(net::LogKind kind, const std::string& text) const;
  /// Logs an error, once for a comm that has failed, and translates it. `call`: "isend".
  abi::Result answer(const Status& status, const char* call, bool* has_failed = nullptr) const;

  /// At exit: joins the threads if nothing is open; what is in use by others' threads stays.
  void unload();

 private:
  Plugin() = default;

  Status set_up(abi::Logger* logger);
  Status open_network();
  Status check_device(int device) const;
  /// Their number; they come before what is made of them.
  std::size_t interfaces() const;
  bool is_used() const { return contexts_ > 0 || comms_ > 0 || !attempts_.empty(); }
  /// Null: it is in use, or there is none. Its end takes seconds if a peer or a disk does not
  /// answer, so it comes when the lock has been given back.
  [[nodiscard]] std::shared_ptr<net::Network> take_network_if_unused();

  std::mutex mutex_;
  std::shared_ptr<net::Network> network_;
  std::deque<net::NetDevice> devices_;
  std::size_t known_ = 0;  ///< To NCCL, from the first on.
  bool is_ready_ = false;
  std::size_t contexts_ = 0;
  std::size_t comms_ = 0;  ///< Of all kinds.

  struct Attempt {
    std::unique_ptr<net::Connector> connector;
    void* context = nullptr;
    std::chrono::steady_clock::time_point polled_at;
  };
  /// Of versions before 11, in which nobody says so: those that NCCL polls no more.
  void drop_abandoned_attempts();
  /// Connection attempts by the number that NCCL's handle buffer holds between the calls: a number
  /// and no pointer, for the buffer may be copied, and may come from another process.
  std::map<std::uint64_t, Attempt> attempts_;
  std::uint64_t next_attempt_ = 1;
};

}  // namespace tutti::nccl_net
