// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The tables of functions for NCCL, one for each version. A call that changed between versions is
// an overload here, and the table's field picks the one of its type. Nothing is thrown across this
// border, and out-arguments are written whatever happens. A new version: its records in abi.hpp,
// its table here, and its name in exported_tables.cpp.
#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/config.hpp"
#include "nccl_net/plugin.hpp"
#include "nccl_net/table.hpp"

namespace tutti::nccl_net {
namespace {

using abi::CommConfig;
using abi::DeviceHandle;
using abi::Logger;
using abi::Profiler;
using abi::Result;
using transport::ReceivePart;

constexpr char kName[] = "Tutti";
constexpr int kCommsMax = 4096;
/// 8.
constexpr int kReceivesMax = static_cast<int>(transport::kReceivePartsMax);

/// Runs the body of an entry, which gives a Status. `has_failed`: of the comm, or null.
template <class Body>
Result guarded(const char* call, bool* has_failed, Body body) noexcept {
  if (Plugin::is_forked()) [[unlikely]] {
    return Result::kSystemError;
  }
  const Plugin& plugin = Plugin::instance();
  try {
    try {
      const Status status = body();
      return status.ok() ? Result::kSuccess : plugin.answer(status, call, has_failed);
    } catch (const std::bad_alloc&) {
      return plugin.answer({ErrorCode::kOutOfMemory, "no memory"}, call, has_failed);
    } catch (const std::exception& error) {
      return plugin.answer({ErrorCode::kFallback, error.what()}, call, has_failed);
    }
  } catch (...) {
    return Result::kInternalError;  // There was no memory for the message either.
  }
}

Status missing(const char* what) {
  return {ErrorCode::kInvalidArgument, std::string(what) + " is null"};
}

/// A negative one is undefined: NCCL has two numbers for that.
int traffic_class_of(const CommConfig* config) {
  return config == nullptr || config->traffic_class < 0 ? abi::kUndefined : config->traffic_class;
}

Result init(Logger* logger) {
  return guarded("init", nullptr, [&] { return Plugin::instance().init(logger); });
}

Result init(Logger* logger, Profiler* /*profiler*/) { return init(logger); }

Result init(void** context, std::uint64_t /*comm_id*/, CommConfig* config, Logger* logger,
            Profiler* /*profiler*/) {
  if (context != nullptr) {
    *context = nullptr;
  }
  return guarded("init", nullptr, [&]() -> Status {
    if (context == nullptr) {
      return missing("the context");
    }
    return Plugin::instance().init_context(logger, traffic_class_of(config), context);
  });
}

Result finalize(void* context) {
  if (context == nullptr || Plugin::is_forked()) {
    return Result::kSuccess;
  }
  return guarded("finalize", nullptr, [&] { return Plugin::instance().finalize(context); });
}

Result devices(int* count) {
  return guarded("devices", nullptr, [&]() -> Status {
    *count = Plugin::instance().device_count();
    return {};
  });
}

template <int kVersion>
Result get_properties(int device, abi::Properties<kVersion>* properties) {
  return guarded("getProperties", nullptr, [&]() -> Status {
    TUTTI_ASSIGN_OR_RETURN(net::NetDevice* const found, Plugin::instance().device(device));
    net::NetDevice& from = *found;
    abi::Properties<kVersion>& to = *properties;
    to = {};
    to.name = from.name.data();
    if (!from.rails.empty() && from.pci_path.empty()) {
      // NCCL (2.28, graph/topo.cc) hangs a merged device below what its members have in common,
      // which without a PCI device is where it looks for none. By a member's name it takes that
      // one's place.
      TUTTI_ASSIGN_OR_RETURN(net::NetDevice* const first,
                             Plugin::instance().device(from.rails.front()));
      to.name = first->name.data();
    }
    to.pci_path = from.pci_path.empty() ? nullptr : from.pci_path.data();
    to.guid = from.guid;
    to.pointer_support = abi::kPointerHost | (from.takes_device_memory ? abi::kPointerCuda : 0) |
                         (from.takes_dma_buf ? abi::kPointerDmaBuf : 0);
    to.speed_mbps = speed_for_channels_mbps(from.speed_mbps);
    to.latency_us = static_cast<float>(from.latency_us);
    to.comms_max = kCommsMax;
    to.receives_max = kReceivesMax;
    // Zero is right for: port, reg_is_global, force_flush, device_type, device_version.
    if constexpr (kVersion >= 9) {
      const std::vector<int> itself = {device};
      const std::vector<int>& members = from.rails.empty() ? itself : from.rails;
      const auto room = std::size(to.virtual_device.devices);
      to.virtual_device.count = static_cast<int>(std::min(members.size(), room));
      std::copy_n(members.begin(), to.virtual_device.count, to.virtual_device.devices);
      to.p2p_bytes_max = to.collective_bytes_max = abi::kMessageBytesMax;
    }
    if constexpr (kVersion >= 11) {
      to.multi_request_max = 1;
    }
    if constexpr (kVersion >= 12) {
      to.rail_id = to.plane_id = abi::kUndefined;
    }
    return {};
  });
}

Result listen(void* /*context*/, int device, void* handle, void** listen_comm) {
  *listen_comm = nullptr;
  return guarded("listen", nullptr,
                 [&] { return Plugin::instance().listen(device, handle, listen_comm); });
}

Result listen(int device, void* handle, void** listen_comm) {
  return listen(nullptr, device, handle, listen_comm);
}

Result connect(void* context, int traffic_class, int device, void* handle, void** send_comm) {
  *send_comm = nullptr;
  return guarded("connect", nullptr, [&] {
    return Plugin::instance().connect(context, traffic_class, device, handle, send_comm);
  });
}

Result connect(void* context, int device, void* handle, void** send_comm,
               DeviceHandle** /*device_handle*/) {
  const auto* const made = static_cast<const Context*>(context);
  const int traffic_class = made == nullptr ? abi::kUndefined : made->traffic_class;
  return connect(context, traffic_class, device, handle, send_comm);
}

Result connect(int device, CommConfig* config, void* handle, void** send_comm,
               DeviceHandle** /*device_handle*/) {
  return connect(nullptr, traffic_class_of(config), device, handle, send_comm);
}

Result connect(int device, void* handle, void** send_comm, DeviceHandle** /*device_handle*/) {
  return connect(nullptr, abi::kUndefined, device, handle, send_comm);
}

Result connect(int device, void* handle, void** send_comm) {
  return connect(nullptr, abi::kUndefined, device, handle, send_comm);
}

Result accept(void* listen_comm, void** recv_comm, DeviceHandle** /*device_handle*/) {
  *recv_comm = nullptr;
  return guarded("accept", nullptr,
                 [&] { return Plugin::instance().accept(listen_comm, recv_comm); });
}

Result accept(void* listen_comm, void** recv_comm) {
  return accept(listen_comm, recv_comm, nullptr);
}

/// `memory`: of a GPU; null: `data` is the host's.
Status register_with(Comm* comm, std::span<std::byte> data, const wire::DeviceMemory* memory,
                     void** mhandle) {
  auto made = std::make_unique<Registration>();
  made->memory = data;
  made->is_device = memory != nullptr;
  made->channel = comm->channel;
  TUTTI_RETURN_IF_ERROR(memory == nullptr ? comm->channel->register_memory(data)
                                          : comm->channel->register_device_memory(*memory));
  *mhandle = made.release();
  return {};
}

Result reg_mr(void* comm, void* data, std::size_t bytes, int type, void** mhandle) {
  *mhandle = nullptr;
  return guarded("regMr", nullptr, [&]() -> Status {
    const wire::DeviceMemory memory{.span = {static_cast<std::byte*>(data), bytes}};
    if (type != abi::kPointerHost && type != abi::kPointerCuda) {
      return {ErrorCode::kInvalidArgument, "there is no memory of type " + std::to_string(type)};
    }
    return register_with(static_cast<Comm*>(comm), memory.span,
                         type == abi::kPointerHost ? nullptr : &memory, mhandle);
  });
}

Result reg_mr(void* comm, void* data, int bytes, int type, void** mhandle) {
  return reg_mr(comm, data, static_cast<std::size_t>(bytes), type, mhandle);
}

/// NCCL closes the descriptor afterwards.
Result reg_mr_dma_buf(void* comm, void* data, std::size_t bytes, int /*type*/, std::uint64_t offset,
                      int fd, void** mhandle) {
  *mhandle = nullptr;
  return guarded("regMrDmaBuf", nullptr, [&]() -> Status {
    const wire::DeviceMemory memory{
        .span = {static_cast<std::byte*>(data), bytes}, .descriptor = fd, .offset = offset};
    return register_with(static_cast<Comm*>(comm), memory.span, &memory, mhandle);
  });
}

Result dereg_mr(void* /*comm*/, void* mhandle) {
  return guarded("deregMr", nullptr, [&]() -> Status {
    const std::unique_ptr<Registration> made(static_cast<Registration*>(mhandle));
    if (made != nullptr) {
      if (const std::shared_ptr<net::Channel> channel = made->channel.lock()) {
        channel->deregister_memory(made->memory);
      }
    }
    return {};
  });
}

Result isend(void* send_comm, void* data, std::size_t bytes, int tag, void* /*mhandle*/,
             void* /*profiler_handle*/, void** request) {
  *request = nullptr;
  auto* const comm = static_cast<Comm*>(send_comm);
  return guarded("isend", &comm->has_failed,
                 [&] { return Plugin::isend(comm, data, bytes, tag, request); });
}

Result isend(void* send_comm, void* data, std::size_t bytes, int tag, void* mhandle,
             void** request) {
  return isend(send_comm, data, bytes, tag, mhandle, nullptr, request);
}

Result isend(void* send_comm, void* data, int bytes, int tag, void* mhandle, void** request) {
  if (bytes < 0) {
    *request = nullptr;
    return guarded("isend", nullptr, [&]() -> Status {
      return {ErrorCode::kInvalidArgument, std::to_string(bytes) + " bytes"};
    });
  }
  return isend(send_comm, data, static_cast<std::size_t>(bytes), tag, mhandle, nullptr, request);
}

template <class Size>
Result receive(void* recv_comm, int count, void** data, const Size* bytes, const int* tags,
               void** request) {
  // It may hold kOptionalCompletion. To complete early would gain nothing.
  *request = nullptr;
  auto* const comm = static_cast<Comm*>(recv_comm);
  return guarded("irecv", &comm->has_failed, [&]() -> Status {
    if (count < 1 || count > kReceivesMax) {
      return {ErrorCode::kInvalidArgument, std::to_string(count) + " grouped receives; 1 to " +
                                               std::to_string(kReceivesMax) + " are possible"};
    }
    std::array<ReceivePart, transport::kReceivePartsMax> parts;
    for (int i = 0; i < count; ++i) {
      if constexpr (std::is_signed_v<Size>) {
        if (bytes[i] < 0) {
          return {ErrorCode::kInvalidArgument, std::to_string(bytes[i]) + " bytes"};
        }
      }
      parts[static_cast<std::size_t>(i)] = {.tag = static_cast<transport::Tag>(tags[i]),
                                            .data = static_cast<std::byte*>(data[i]),
                                            .capacity_bytes = static_cast<Bytes>(bytes[i])};
    }
    return Plugin::irecv(comm, std::span(parts).first(static_cast<std::size_t>(count)), request);
  });
}

Result irecv(void* recv_comm, int parts, void** data, std::size_t* bytes, int* tags,
             void** /*mhandles*/, void** /*profiler_handles*/, void** request) {
  return receive(recv_comm, parts, data, bytes, tags, request);
}

Result irecv(void* recv_comm, int parts, void** data, std::size_t* bytes, int* tags,
             void** /*mhandles*/, void** request) {
  return receive(recv_comm, parts, data, bytes, tags, request);
}

Result irecv(void* recv_comm, int parts, void** data, int* bytes, int* tags, void** /*mhandles*/,
             void** request) {
  return receive(recv_comm, parts, data, bytes, tags, request);
}

/// Host memory needs none; no request says that it is done. Of what a NIC has written it is enough
/// to wait for what it has written last.
Result iflush(void* recv_comm, int parts, void** data, int* bytes, void** mhandles,
              void** request) {
  *request = nullptr;
  if (Plugin::is_forked()) {
    return Result::kSystemError;
  }
  std::span<const std::byte> last;
  for (int i = 0; mhandles != nullptr && i < parts; ++i) {
    const auto* const made = static_cast<const Registration*>(mhandles[i]);
    if (made != nullptr && made->is_device && bytes[i] > 0) {
      last = {static_cast<const std::byte*>(data[i]), static_cast<std::size_t>(bytes[i])};
    }
  }
  if (last.empty()) {
    return Result::kSuccess;
  }
  auto* const comm = static_cast<Comm*>(recv_comm);
  return guarded("iflush", &comm->has_failed, [&] { return Plugin::iflush(comm, last, request); });
}

Result test(void* request, int* done, int* bytes) {
  *done = 0;
  if (request == nullptr) {
    *done = 1;
    return Plugin::is_forked() ? Result::kSystemError : Result::kSuccess;
  }
  auto* const slot = static_cast<RequestSlot*>(request);
  const Result result =
      guarded("test", &slot->comm->has_failed, [&] { return Plugin::test(slot, done, bytes); });
  // The argument that can be wrong is the size of the receive, or of the send at the other end.
  return result == Result::kInvalidArgument ? Result::kInvalidUsage : result;
}

/// Closes are also for the clean-up of a child, where they have nothing to do.
template <class Object>
Result close(const char* call, void* object) {
  if (object == nullptr || Plugin::is_forked()) {
    return Result::kSuccess;
  }
  return guarded(call, nullptr,
                 [&] { return Plugin::instance().close(static_cast<Object*>(object)); });
}

Result close_send(void* comm) { return close<Comm>("closeSend", comm); }
Result close_recv(void* comm) { return close<Comm>("closeRecv", comm); }
Result close_listen(void* comm) { return close<ListenComm>("closeListen", comm); }

template <int kMembersMax>
Result make_virtual_device(int* device, abi::VirtualDevice<kMembersMax>* members) {
  return guarded("makeVDevice", nullptr, [&]() -> Status {
    if (device == nullptr || members == nullptr) {
      return missing("the device");
    }
    if (members->count < 1 || members->count > kMembersMax) {
      return {ErrorCode::kInvalidArgument, std::to_string(members->count) +
                                               " devices behind a virtual one; 1 to " +
                                               std::to_string(kMembersMax) + " are possible"};
    }
    const auto count = static_cast<std::size_t>(members->count);
    TUTTI_ASSIGN_OR_RETURN(*device,
                           Plugin::instance().merge(std::span(members->devices).first(count)));
    return {};
  });
}

/// What is not named stays null: this network has no device code, and merges NICs where it is asked
/// to only (offer_rails()).
template <int kVersion>
constexpr abi::Net<kVersion> table() {
  abi::Net<kVersion> net{};
  net.calls = {.name = kName,
               .init = init,
               .devices = devices,
               .get_properties = get_properties<kVersion>,
               .listen = listen,
               .connect = connect,
               .accept = accept,
               .reg_mr = reg_mr,
               .reg_mr_dma_buf = reg_mr_dma_buf,
               .dereg_mr = dereg_mr,
               .isend = isend,
               .irecv = irecv,
               .iflush = iflush,
               .test = test,
               .close_send = close_send,
               .close_recv = close_recv,
               .close_listen = close_listen};
  if constexpr (kVersion >= 11) {
    net.finalize = finalize;
  }
  return net;
}

}  // namespace

constinit Tables tables = {.v6 = table<6>(),
                           .v7 = table<7>(),
                           .v8 = table<8>(),
                           .v9 = table<9>(),
                           .v10 = table<10>(),
                           .v11 = table<11>(),
                           .v12 = table<12>()};

void offer_rails(bool is_wanted) {
  const auto set = [&](auto& net) {
    net.make_virtual_device = nullptr;
    if (is_wanted) {
      net.make_virtual_device = make_virtual_device;
    }
  };
  set(tables.v9);
  set(tables.v10);
  set(tables.v11);
  set(tables.v12);
}

}  // namespace tutti::nccl_net

const void* TUTTI_NCCL_NET_TABLE(int version) noexcept {
  using namespace tutti::nccl_net;
  // By default NCCL takes all NICs without a PCI device (bonds, virtual ones) for ports of one
  // card.
  offer_rails(!tutti::environment_value("NCCL_NET_FORCE_MERGE").empty() ||
              !tutti::environment_value("NCCL_NET_MERGE_LEVEL").empty());
  switch (version) {
    case 6:
      return &tables.v6;
    case 7:
      return &tables.v7;
    case 8:
      return &tables.v8;
    case 9:
      return &tables.v9;
    case 10:
      return &tables.v10;
    case 11:
      return &tables.v11;
    case 12:
      return &tables.v12;
    default:
      return nullptr;
  }
}
