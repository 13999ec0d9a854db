// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A network plugin's shared object, loaded as NCCL loads it and called through the table of one
// version. All versions look alike here; what an old one cannot say is left out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nccl_net/abi.hpp"

namespace tutti::driver {

using nccl_net::abi::Result;

const char* to_string(Result result);

using HandleBuffer = std::array<std::byte, nccl_net::abi::kHandleBytes>;

/// Of a device; what a version does not have is as its absence is taken.
struct DeviceProperties {
  const char* name = nullptr;
  const char* pci_path = nullptr;
  std::uint64_t guid = 0;
  int pointer_support = 0;
  int speed_mbps = 0;
  float latency_us = 0;
  int comms_max = 0;
  int receives_max = 0;
  std::size_t message_bytes_max = std::size_t{1} << 30;
  int member_count = 1;
};

/// What the plugin's WARN lines said. Filled by any thread.
class Warnings {
 public:
  static std::size_t count();
  static std::string last();
};

/// INFO lines too go to standard error from now on.
void show_log();

class NetPlugin {
 public:
  /// Null with `why` set: no such file, no such version.
  static std::unique_ptr<NetPlugin> load(const std::string& path, int version, std::string* why);
  virtual ~NetPlugin();

  virtual int version() const = 0;
  virtual std::string name() const = 0;

  /// `context` stays null before version 11.
  virtual Result init(void** context) = 0;
  virtual Result finalize(void* context) = 0;
  virtual Result devices(int* count) = 0;
  virtual Result properties(int device, DeviceProperties* properties) = 0;
  /// One device of the first `members`. Success and `device` as it is where versions have no such.
  virtual Result merge(int members, int* device) = 0;
  virtual Result listen(void* context, int device, void* handle, void** comm) = 0;
  virtual Result connect(void* context, int device, void* handle, void** comm) = 0;
  virtual Result accept(void* listen_comm, void** comm) = 0;
  virtual Result reg_mr(void* comm, void* data, std::size_t bytes, int type, void** mhandle) = 0;
  virtual Result dereg_mr(void* comm, void* mhandle) = 0;
  virtual Result isend(void* comm, void* data, std::size_t bytes, int tag, void* mhandle,
                       void** request) = 0;
  /// *request goes in as it is: version 9 and later read a hint there.
  virtual Result irecv(void* comm, int parts, void** data, const std::size_t* bytes, int* tags,
                       void** mhandles, void** request) = 0;
  virtual Result iflush(void* comm, void* data, int bytes, void* mhandle, void** request) = 0;
  virtual Result test(void* request, int* done, int* bytes) = 0;
  virtual Result close_send(void* comm) = 0;
  virtual Result close_recv(void* comm) = 0;
  virtual Result close_listen(void* comm) = 0;

 protected:
  void* library_ = nullptr;
};

}  // namespace tutti::driver
