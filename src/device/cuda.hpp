// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The table over CUDA's driver API. Devices, contexts and whose a stream is: cuda.cpp; memory:
// cuda_memory.cpp; launches made again: cuda_launcher.cpp; graphs of the application's:
// cuda_graphs.cpp; what HIP has too: gpu_api.cpp.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_virtual_memory.hpp"
#include "device/driver_cuda.hpp"
#include "device/gpu_api.hpp"

namespace tutti::device {

class CudaApi final : public GpuApi {
 public:
  CudaApi(DynamicLibrary library, const driver::Functions& common, const cuda::Functions& functions)
      : GpuApi(library, common), cu_(functions) {}
  ~CudaApi() override;

  const char* name() const override { return "cuda"; }
  std::string library() const override;
  bool is_in_use() override;
  int current_device() override;
  Result<std::string> identity(int device) override;
  Result<int> concurrent_processors(int device) override;
  Result<void*> make_current(int device) override;
  void restore_current(void* previous) override;

  Result<Stream> default_stream(int device) override;
  Status check_stream(Stream stream, int device) override;
  std::uint64_t stream_id(Stream stream) override;
  int stream_device(Stream stream) override;

  PointerInfo classify(const void* pointer) override;
  Status copy_async(void* destination, const void* source, Bytes bytes, Stream stream) override;
  Status fill_async(void* destination, int value, Bytes bytes, Stream stream) override;
  Result<void*> allocate_pinned(Bytes bytes, int device) override;
  Status free_pinned(void* pointer) override;
  Status register_host(void* memory, Bytes bytes, int device) override;
  Status unregister_host(void* memory) override;
  Result<void*> allocate_device(int device, Bytes bytes) override;
  Result<void*> allocate_shared(int device, Bytes bytes, Sharing sharing) override;
  Status free_device(void* pointer) override;
  Result<IpcHandle> export_memory(void* pointer) override;
  Result<void*> open_memory(int device, const IpcHandle& handle) override;
  Status close_memory(void* pointer) override;

  Result<Launcher> create_launcher(Function function, int device, const LaunchShape& shape,
                                   void** arguments) override;
  Status destroy_launcher(Launcher handle) override;
  Status launch_again(Launcher handle, const LaunchShape& shape, Stream stream,
                      void** arguments) override;

  bool orders_graphs() const override;
  Result<std::uint64_t> capture_id(Stream stream) override;
  Status wait_at_launch(Stream stream, Event event) override;
  Result<GraphNode> record_at_launch(Stream stream, Event event, GraphNode before) override;
  Status on_graph_end(Stream stream, void (*release)(void*), void* argument) override;

 private:
  static constexpr int kDevicesMax = 128;  // Ordinals of one process: 16 GPUs of 7 MIG slices each.

  Status enter(Scope& scope, int device) override;
  Status enter_any(Scope& scope, int device) override;
  Status enter_foreign(Scope& scope, Stream stream, bool is_judged) override;
  driver::Outcome copy_now(void* destination, const void* source, Bytes bytes) override;
  std::pair<const char*, const char*> describe(driver::Result error) const override;

  /// The primary context of `device`, retained at the first call for it.
  Result<cuda::Context> primary(int device);
  /// Makes it current, above what is.
  Status push(int device);
  /// Whether memory of `context` is beyond the primary context of `device`. Memory that was mapped
  /// or came out of a pool has no context: it is the GPU's.
  bool is_foreign(cuda::Context context, int device);
  struct Capture {
    std::uint64_t id = 0;  ///< 0: none is under way.
    cuda::Graph graph = nullptr;
    std::vector<cuda::GraphNode> last;  ///< What the stream would wait for next.
  };
  Result<Capture> capture_of(Stream stream);
  /// Of a context; -1: of none, or of one that is gone.
  int device_of(cuda::Context context);
  /// A device whose primary context exists, those that we have retained first; kUnknown: there is
  /// none.
  int active_device() const;
  static Status no_active_device();

  const cuda::Functions cu_;
  std::atomic<bool> is_in_use_{false};
  CudaVirtualMemory virtual_memory_{cu_,
                                    [this](driver::Outcome outcome) { return check(outcome); }};
  std::mutex retain_mutex_;
  std::array<std::atomic<cuda::Context>, kDevicesMax> primary_{};
};

}  // namespace tutti::device
