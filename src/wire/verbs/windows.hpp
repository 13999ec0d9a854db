// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that peers write into, each for the time of one receive: memory windows of type 1 (IBTA
// 10.6.7), which a NIC opens and closes without the kernel, by requests in the send queue of a
// queue pair that is connected to itself. Once a window is closed its key opens nothing: what a
// network has delayed or duplicated, or a peer has sent twice, cannot touch the memory any more.
// The NIC changes a window's key as it opens and as it closes but has only 256 of them, so windows
// take turns: with kFreeMin of them a key comes again after half a million receives.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/types.hpp"
#include "wire/verbs/driver_verbs.hpp"

namespace tutti::wire::verbs {

class Windows {
 public:
  static constexpr std::uint32_t kWindowsMax = 16384;
  /// Windows are made while fewer are free.
  static constexpr std::uint32_t kFreeMin = 4096;
  static constexpr std::uint32_t kRequestsMax = 256;  ///< In the queue pair's send queue.
  /// Set in the numbers of its completions.
  static constexpr std::uint64_t kCompletion = 1ULL << 63;

  /// `qp`: ready to send, with completions of its own (kCompletion). `on_kept`: told why a window
  /// that should have gone may still be open.
  Windows(Context* context, Pd* pd, Qp* qp, std::function<void(const std::string& why)> on_kept)
      : context_(context), pd_(pd), qp_(qp), on_kept_(std::move(on_kept)) {}
  /// The queue pair is gone by then.
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  /// Whether the NIC has such windows at all: 0, or the error.
  int try_one();

  // As wire::Wire's functions of these names.
  std::uint64_t open(Mr* mr, std::span<std::byte> memory);
  bool has_opened(std::uint64_t name, transport::RemoteMemory* remote);
  void close(std::uint64_t name);
  bool has_closed(std::uint64_t name);

  /// Closes all on this memory, at once. False: the NIC is about to open or close one.
  bool revoke(const Mr* mr);

  /// Closes all, and opens no more: the queue pair is gone.
  void abandon();

  /// Of one of its requests.
  void complete(std::uint64_t id, int status);
  /// Requests for which there was no room.
  void poll();

  /// No more are opened: receives are copied.
  bool has_failed() const { return has_failed_; }
  std::uint32_t requests() const { return requests_; }    ///< In the send queue.
  std::uint64_t completed() const { return completed_; }  ///< Requests so far.

 private:
  enum class State : std::uint8_t { kFree, kOpening, kOpen, kRefused, kClosing, kClosed };

  struct Window {
    Mw* mw = nullptr;
    Mr* mr = nullptr;
    std::uint64_t address = 0;
    State state = State::kFree;
    bool is_unwanted = false;  ///< To be closed as soon as that can be asked for.
    std::uint32_t uses = 0;    ///< High half of its name.
  };

  Window* find(std::uint64_t name);
  bool request(std::uint32_t index, std::uint64_t address, std::uint64_t bytes);
  void ask_to_close(std::uint32_t index);
  void release(Window& window);

  Context* context_;
  Pd* pd_;
  Qp* qp_;
  std::function<void(const std::string& why)> on_kept_;
  std::vector<Window> windows_;
  std::deque<std::uint32_t> free_;      ///< The one that was closed first is opened next.
  std::vector<std::uint32_t> pending_;  ///< Are unwanted and no request says so.
  std::uint32_t requests_ = 0;          ///< In the send queue.
  std::uint64_t completed_ = 0;
  std::size_t in_use_ = 0;
  bool has_all_ = false;     ///< The NIC has no more windows.
  bool has_failed_ = false;  ///< The queue pair takes no more.
};

}  // namespace tutti::wire::verbs
