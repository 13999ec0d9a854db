// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One table for what we need of a GPU runtime. Filled by CUDA's driver API (cuda.cpp), by HIP
// (hip.cpp) and by the host device (tests/support/host_device: a GPU made of threads, for machines
// without one and for tests). All three are found at run time; nothing foreign is linked.
//
// Rules that every implementation keeps:
//  - no context is created: the application's current context or a retained *active or requested*
//    primary context is used; the application's current device is restored on every return;
//  - every return code is checked and becomes a Status with the library's own words;
//  - before the application has initialised the driver, every pointer is host memory.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/config.hpp"
#include "base/result.hpp"
#include "base/units.hpp"

namespace tutti::device {

enum class MemoryKind : std::uint8_t {
  kHost,    ///< Pageable or pinned: the CPU reads and writes it. Managed memory counts here.
  kDevice,  ///< Only the device reads and writes it fast.
};

/// Result of a classification. `device` is the ordinal that owns the memory, -1 for host memory.
struct PointerInfo {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;
  /// Of another context than the primary one (CUDA): copies reach it, but neither kernels of ours
  /// nor libraries, which run in the primary context; theirs would end in a fault.
  bool is_foreign = false;

  /// Memory of `device` that kernels of ours and libraries can take.
  bool is_usable_on(int wanted) const {
    return kind == MemoryKind::kDevice && device == wanted && !is_foreign;
  }
};

/// Opaque handles; CUstream / hipStream_t / our own. Null is never a valid stream of ours.
using Stream = void*;
using Event = void*;
using Module = void*;
using Function = void*;
using Launcher = void*;
/// Of a graph of the application's.
using GraphNode = void*;

/// How memory of a device is shown to other processes.
enum class Sharing : std::uint8_t {
  kIpc,         ///< By a handle of the library's: bytes alone, for processes of one node.
  kDescriptor,  ///< By a file descriptor, which must reach the other process as one.
  kFabric,      ///< By a handle of the fabric's manager: bytes alone, also for other nodes.
};

/// What lets another process map an allocation.
struct IpcHandle {
  unsigned char bytes[64] = {};  ///< CUipcMemHandle, CUmemFabricHandle
  Bytes size_bytes = 0;
  /// kDescriptor: in the process that has made the handle, its own until the memory is freed; for
  /// open_memory(), the caller's copy of it.
  int descriptor = -1;
  Sharing sharing = Sharing::kIpc;
};

struct LaunchShape {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
};

/// The table. Thread-safe. A Stream belongs to the device it was created on; functions that take
/// one make that device current for the call and restore the application's afterwards.
class Api {
 public:
  virtual ~Api() = default;

  /// "cuda", "hip" or "host".
  virtual const char* name() const = 0;
  /// The library file and its version, for `tutti info`.
  virtual std::string library() const = 0;
  /// Devices visible to this process; 0 before the application has initialised the driver unless
  /// initialize() was called.
  virtual Result<int> device_count() = 0;
  /// Initialises the driver (cuInit). Creates no context. Called when a device buffer or a plan
  /// needs the device, never from MPI_Init.
  virtual Status initialize() = 0;

  /// Asks the library, uncached (40-500 ns). Never fails: what the library does not know is host.
  virtual PointerInfo classify(const void* pointer) = 0;
  /// False: nobody in this process has initialised the GPU library, so no memory is a GPU's. Takes
  /// a few nanoseconds.
  virtual bool is_in_use() { return true; }
  /// The application's current device, -1 when it has none.
  virtual int current_device() = 0;
  /// Stable identity of the physical device, equal in every process ("GPU-<uuid>" or PCI bus id).
  virtual Result<std::string> identity(int device) = 0;
  /// Where it sits on the PCI bus, "0000:1b:00.0"; not every device is on one.
  virtual Result<std::string> pci_address(int device);
  /// Processors of `device` that kernels of this process run on beside those of other processes,
  /// kUnlimited where each process has its own; 0: kernels of several processes take turns, so
  /// that none may wait for another's.
  virtual Result<int> concurrent_processors(int device);
  static constexpr int kUnlimited = INT_MAX;
  /// Threads of a warp: lanes that run our kernels together.
  virtual int warp_threads() const { return 32; }
  /// Kernels run on the CPU's cores, which nobody who waits for them may keep.
  virtual bool computes_on_cpu() const { return false; }
  /// Product name, for example "NVIDIA H200".
  virtual Result<std::string> device_name(int device) = 0;

  /// Blocking copy between any two kinds of memory; returns when `destination` is readable.
  virtual Status copy(void* destination, const void* source, Bytes bytes) = 0;
  /// Stream-ordered copy. Asynchronous to the host only when host memory is pinned.
  virtual Status copy_async(void* destination, const void* source, Bytes bytes, Stream stream) = 0;
  /// Stream-ordered fill with one byte.
  virtual Status fill_async(void* destination, int value, Bytes bytes, Stream stream) = 0;

  /// Non-blocking stream of the highest priority on `device`.
  virtual Result<Stream> create_stream(int device) = 0;
  virtual Status destroy_stream(Stream stream) = 0;
  /// True when all work of the stream is done.
  virtual Result<bool> stream_done(Stream stream) = 0;
  /// Blocks the calling thread until all work of the stream is done.
  virtual Status wait_stream(Stream stream) = 0;
  /// Blocks until the whole device is idle (TUTTI_SYNC_DEVICE).
  virtual Status wait_device(int device) = 0;

  /// The device's default stream as a handle that the functions here take; it is the
  /// application's. Make the device current (CurrentDevice) around calls that are given it.
  virtual Result<Stream> default_stream(int device) = 0;
  /// What the runtime itself, and libraries on it, call a stream that the functions here take.
  virtual Stream native_stream(Stream stream) const { return stream; }
  /// Whether work of `device` can be queued on a stream of the application's (null: the default
  /// stream). kInvalidArgument: it is none, of another device, or of a context where nothing of
  /// ours is. Ok where that cannot be known.
  virtual Status check_stream(Stream stream, int device);
  /// A number that no other stream of the process has, or had before; 0: not known.
  virtual std::uint64_t stream_id(Stream /*stream*/) { return 0; }
  /// The device of a stream of the application's; where that cannot be known, and for a default
  /// stream, the current one. -1: neither.
  virtual int stream_device(Stream stream);
  /// Default streams' handles: null, and what CUDA and HIP call the legacy and the per-thread one.
  static bool is_default_stream(Stream stream) {
    return reinterpret_cast<std::uintptr_t>(stream) <= 2;
  }
  /// Of this thread: calls on `stream` need not look for its device, which is current. Returns the
  /// one before. For CurrentDevice.
  virtual Stream exchange_current_stream(Stream /*stream*/) { return nullptr; }
  /// Whether what is queued on `stream` now goes into a graph in place of the device.
  /// kInvalidArgument: it is no stream.
  virtual Result<bool> is_capturing(Stream stream);
  /// Sets which calls of this thread end a capture that is under way (the value is CUDA's and
  /// HIP's alike); returns what was set before. RelaxedCapture is how to use it.
  virtual int exchange_capture_mode(int mode) { return mode; }

  /// Whether the four functions that follow are there: a graph's launches can be put in order with
  /// other work, and its end is told.
  virtual bool orders_graphs() const { return false; }
  /// Of the capture that is under way on `stream`; 0: none is.
  virtual Result<std::uint64_t> capture_id(Stream stream);
  /// While `stream` captures: each launch of the graph waits here for what `event` was recorded
  /// behind when it was launched.
  virtual Status wait_at_launch(Stream stream, Event event);
  /// Each launch records `event` behind what `stream` has captured, and behind `before` (null: no
  /// other); what is captured after it does not wait for that. The launch counts as the recording.
  virtual Result<GraphNode> record_at_launch(Stream stream, Event event, GraphNode before);
  /// `release(argument)`, once, by any thread, when the graph and all that was instantiated from it
  /// is gone. It must call nothing of the GPU library.
  virtual Status on_graph_end(Stream stream, void (*release)(void*), void* argument);

  virtual Result<Event> create_event(int device) = 0;
  virtual Status destroy_event(Event event) = 0;
  virtual Status record_event(Event event, Stream stream) = 0;
  virtual Result<bool> event_done(Event event) = 0;
  /// Work queued on `stream` after this call waits for the event.
  virtual Status stream_wait_event(Stream stream, Event event) = 0;

  /// Page-locked host memory, portable to all devices and mapped. It lives as long as what it was
  /// made in: that of `device`, with kAnyDevice of any device that is in use.
  virtual Result<void*> allocate_pinned(Bytes bytes, int device) = 0;
  static constexpr int kAnyDevice = -1;
  virtual Status free_pinned(void* pointer) = 0;
  /// Lets kernels of all devices read and write memory of the host at its address, until
  /// unregister_host() or the end of `device`'s context. Errors: not here (kUnsupported).
  virtual Status register_host(void* memory, Bytes bytes, int device);
  virtual Status unregister_host(void* memory);
  virtual Result<void*> allocate_device(int device, Bytes bytes) = 0;
  virtual Status free_device(void* pointer) = 0;

  /// As allocate_device (kIpc), or memory that can be shown in the other ways: at least `bytes`,
  /// for free_device. Errors: there is no such way here (kUnsupported).
  virtual Result<void*> allocate_shared(int device, Bytes bytes, Sharing sharing);
  /// For memory of allocate_device and allocate_shared: a handle another process opens.
  virtual Result<IpcHandle> export_memory(void* pointer) = 0;
  virtual Result<void*> open_memory(int device, const IpcHandle& handle) = 0;
  virtual Status close_memory(void* pointer) = 0;

  /// What load_module() takes for our kernels on a device that brings them along; null: an image of
  /// this build (device/kernels/images.hpp).
  virtual const void* kernel_image() const { return nullptr; }
  /// Loads a device image (cubin, PTX, code object) and finds a kernel in it.
  virtual Result<Module> load_module(int device, const void* image) = 0;
  virtual Status unload_module(Module module) = 0;
  virtual Result<Function> find_function(Module module, const char* name) = 0;
  virtual Status launch(Function function, const LaunchShape& shape, Stream stream,
                        void** arguments) = 0;

  /// A launch that is prepared once and then repeated, with other arguments and shapes of the same
  /// function, for less than launch() costs (CUDA: a graph of one kernel). Null: there is no such
  /// thing here. `shape` and `arguments` are of the first launch, which is not made yet.
  virtual Result<Launcher> create_launcher(Function function, int device, const LaunchShape& shape,
                                           void** arguments);
  virtual Status destroy_launcher(Launcher launcher);
  /// As launch(). By one thread at a time for each launcher.
  virtual Status launch_again(Launcher launcher, const LaunchShape& shape, Stream stream,
                              void** arguments);

  /// Makes `device` current on this thread and returns what to give to restore_device. Used
  /// around calls into NCCL and RCCL, which act on the current device.
  virtual Result<void*> make_current(int device) = 0;
  virtual void restore_current(void* previous) = 0;
};

/// Makes a device current for a scope and restores the application's choice at its end.
class CurrentDevice {
 public:
  /// `stream`: of that device, and of the context in which things of ours are (check_stream());
  /// calls on it cost less meanwhile.
  static Result<CurrentDevice> set(Api& api, int device, Stream stream = nullptr);
  CurrentDevice(CurrentDevice&& other) noexcept;
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  ~CurrentDevice();

 private:
  CurrentDevice(Api* api, void* previous, Stream previous_stream)
      : api_(api), previous_(previous), previous_stream_(previous_stream) {}
  Api* api_;
  void* previous_;
  Stream previous_stream_;
};

/// For a scope: what this thread asks for (events, memory) ends no capture of the application's.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(Api& api) : api_(api), previous_(api.exchange_capture_mode(kRelaxed)) {}
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { (void)api_.exchange_capture_mode(previous_); }

 private:
  static constexpr int kRelaxed = 2;
  Api& api_;
  int previous_;
};

/// What open() found and what it did not find, for `tutti info` and the INFO line.
struct OpenReport {
  std::string taken;   ///< "cuda: /usr/lib/libcuda.so.1", or "none".
  std::string reason;  ///< Why nothing (or not the other) was taken.
};

/// The table for this process by TUTTI_DEVICE (auto: CUDA's driver if its library loads, else HIP,
/// else none; never the host device unless asked for). Loads libraries, initialises nothing.
/// Null when there is none; `report` says why.
std::unique_ptr<Api> open(const std::string& wanted, OpenReport* report);

std::unique_ptr<Api> open_cuda(OpenReport* report);  ///< cuda.cpp
std::unique_ptr<Api> open_hip(OpenReport* report);   ///< hip.cpp

}  // namespace tutti::device
