// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net_plugin.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace tutti::driver {
namespace {

namespace abi = nccl_net::abi;

std::atomic<bool> shows_log{false};
std::mutex warnings_mutex;
std::vector<std::string> warnings;

void logger(abi::LogLevel level, unsigned long /*subsystems*/, const char* /*file*/, int /*line*/,
            const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (shows_log) {
    std::fprintf(stderr, "[%d] %s\n", getpid(), text);
  }
  if (level == abi::LogLevel::kWarn) {
    const std::scoped_lock lock(warnings_mutex);
    warnings.emplace_back(text);
  }
}

abi::Result profiler(void** /*event*/, int /*type*/, void* /*handle*/, std::int64_t /*plugin_id*/,
                     void* /*data*/) {
  return Result::kSuccess;
}

template <int kVersion>
class Loaded : public NetPlugin {
 public:
  Loaded(void* library, const void* table)
      : net_(*static_cast<const abi::Net<kVersion>*>(table)), calls_(net_.calls) {
    library_ = library;
  }

  int version() const override { return kVersion; }
  std::string name() const override { return calls_.name; }

  Result init(void** context) override {
    if constexpr (kVersion >= 11) {
      static std::atomic<std::uint64_t> comm_id{1};
      return calls_.init(context, comm_id++, &config_, logger, profiler);
    } else if constexpr (kVersion == 10) {
      return calls_.init(logger, profiler);
    } else {
      return calls_.init(logger);
    }
  }

  Result finalize(void* context) override {
    if constexpr (kVersion >= 11) {
      return net_.finalize(context);
    }
    return Result::kSuccess;
  }

  Result devices(int* count) override { return calls_.devices(count); }

  Result properties(int device, DeviceProperties* to) override {
    abi::Properties<kVersion> from{};
    const Result result = calls_.get_properties(device, &from);
    to->name = from.name;
    to->pci_path = from.pci_path;
    to->guid = from.guid;
    to->pointer_support = from.pointer_support;
    to->speed_mbps = from.speed_mbps;
    to->latency_us = from.latency_us;
    to->comms_max = from.comms_max;
    to->receives_max = from.receives_max;
    if constexpr (kVersion >= 9) {
      to->message_bytes_max = std::min(from.p2p_bytes_max, from.collective_bytes_max);
      to->member_count = from.virtual_device.count;
    }
    return result;
  }

  Result merge(int members, int* device) override {
    if constexpr (kVersion >= 9) {
      decltype(abi::Properties<kVersion>::virtual_device) of{};
      of.count = members;
      for (int i = 0; i < std::min<int>(members, std::size(of.devices)); ++i) {
        of.devices[i] = i;
      }
      return net_.make_virtual_device(device, &of);
    }
    return Result::kSuccess;
  }

  Result listen(void* context, int device, void* handle, void** comm) override {
    if constexpr (kVersion >= 11) {
      return calls_.listen(context, device, handle, comm);
    } else {
      return calls_.listen(device, handle, comm);
    }
  }

  Result connect(void* context, int device, void* handle, void** comm) override {
    abi::DeviceHandle* device_handle = nullptr;
    if constexpr (kVersion >= 11) {
      return calls_.connect(context, device, handle, comm, &device_handle);
    } else if constexpr (kVersion == 10) {
      return calls_.connect(device, &config_, handle, comm, &device_handle);
    } else if constexpr (kVersion >= 7) {
      return calls_.connect(device, handle, comm, &device_handle);
    } else {
      return calls_.connect(device, handle, comm);
    }
  }

  Result accept(void* listen_comm, void** comm) override {
    abi::DeviceHandle* device_handle = nullptr;
    if constexpr (kVersion >= 7) {
      return calls_.accept(listen_comm, comm, &device_handle);
    } else {
      return calls_.accept(listen_comm, comm);
    }
  }

  Result reg_mr(void* comm, void* data, std::size_t bytes, int type, void** mhandle) override {
    if constexpr (kVersion >= 8) {
      return calls_.reg_mr(comm, data, bytes, type, mhandle);
    } else {
      return calls_.reg_mr(comm, data, static_cast<int>(bytes), type, mhandle);
    }
  }

  Result dereg_mr(void* comm, void* mhandle) override { return calls_.dereg_mr(comm, mhandle); }

  Result isend(void* comm, void* data, std::size_t bytes, int tag, void* mhandle,
               void** request) override {
    if constexpr (kVersion >= 10) {
      return calls_.isend(comm, data, bytes, tag, mhandle, nullptr, request);
    } else if constexpr (kVersion == 9) {
      return calls_.isend(comm, data, bytes, tag, mhandle, request);
    } else {
      return calls_.isend(comm, data, static_cast<int>(bytes), tag, mhandle, request);
    }
  }

  Result irecv(void* comm, int parts, void** data, const std::size_t* bytes, int* tags,
               void** mhandles, void** request) override {
    if constexpr (kVersion >= 9) {
      // NCCL's own arrays live on its stack: so do these.
      std::array<std::size_t, 8> sizes{};
      std::copy_n(bytes, parts, sizes.begin());
      if constexpr (kVersion >= 10) {
        std::array<void*, 8> profiler_handles{};
        return calls_.irecv(comm, parts, data, sizes.data(), tags, mhandles,
                            profiler_handles.data(), request);
      } else {
        return calls_.irecv(comm, parts, data, sizes.data(), tags, mhandles, request);
      }
    } else {
      std::array<int, 8> sizes{};
      std::transform(bytes, bytes + parts, sizes.begin(),
                     [](std::size_t size) { return static_cast<int>(size); });
      return calls_.irecv(comm, parts, data, sizes.data(), tags, mhandles, request);
    }
  }

  Result iflush(void* comm, void* data, int bytes, void* mhandle, void** request) override {
    return calls_.iflush(comm, 1, &data, &bytes, &mhandle, request);
  }

  Result test(void* request, int* done, int* bytes) override {
    return calls_.test(request, done, bytes);
  }
  Result close_send(void* comm) override { return calls_.close_send(comm); }
  Result close_recv(void* comm) override { return calls_.close_recv(comm); }
  Result close_listen(void* comm) override { return calls_.close_listen(comm); }

 private:
  abi::CommConfig config_{abi::kUndefined};
  const abi::Net<kVersion>& net_;
  const abi::Calls<kVersion>& calls_;
};

template <int kVersion>
std::unique_ptr<NetPlugin> wrap(int version, void* library, const void* table) {
  if constexpr (kVersion > abi::kVersionMax) {
    return nullptr;
  } else if (version == kVersion) {
    return std::make_unique<Loaded<kVersion>>(library, table);
  } else {
    return wrap<kVersion + 1>(version, library, table);
  }
}

}  // namespace

const char* to_string(Result result) {
  switch (result) {
    case Result::kSuccess:
      return "success";
    case Result::kUnhandledCudaError:
      return "unhandled CUDA error";
    case Result::kSystemError:
      return "system error";
    case Result::kInternalError:
      return "internal error";
    case Result::kInvalidArgument:
      return "invalid argument";
    case Result::kInvalidUsage:
      return "invalid usage";
    case Result::kRemoteError:
      return "remote error";
  }
  return "no result code";
}

std::size_t Warnings::count() {
  const std::scoped_lock lock(warnings_mutex);
  return warnings.size();
}

std::string Warnings::last() {
  const std::scoped_lock lock(warnings_mutex);
  return warnings.empty() ? "" : warnings.back();
}

void show_log() { shows_log = true; }

std::unique_ptr<NetPlugin> NetPlugin::load(const std::string& path, int version, std::string* why) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *why = dlerror();
    return nullptr;
  }
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(version);
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) {
    *why = path + " has no " + symbol;
    dlclose(library);
    return nullptr;
  }
  return wrap<abi::kVersionMin>(version, library, table);
}

NetPlugin::~NetPlugin() { dlclose(library_); }

}  // namespace tutti::driver
