// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The host as a device: eight ordinals, each with memory of its own and any number of streams.
// Not a mock. A stream is a thread that runs its queue in order, a copy really happens later, an
// event really waits, and a handle really maps the memory into another process of the node.
//
// Fork. The child starts with a fresh, empty host device: the threads are gone and the locks may
// be held. What it inherited stays readable and counts as host memory.
#include "support/host_device/host_device.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "support/host_device/host_module.hpp"
#include "support/host_device/memory.hpp"
#include "support/host_device/streams.hpp"

namespace tutti::device::host_device {
namespace {

struct LoadedModule {
  const HostModule* table;
  int device;
};

/// Handles that the caller holds, so that a wrong one is an error and not a crash.
template <class T>
class Handles {
 public:
  void* add(std::shared_ptr<T> object) {
    const std::unique_lock lock(mutex_);
    void* handle = object.get();
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  std::shared_ptr<T> find(const void* handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> remove(const void* handle) {
    const std::unique_lock lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) {
      return nullptr;
    }
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }
  std::vector<std::shared_ptr<T>> all() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<T>> result;
    result.reserve(objects_.size());
    for (const auto& [handle, object] : objects_) {
      result.push_back(object);
    }
    return result;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<T>> objects_;
};

struct Runtime {
  Memory memory;
  Handles<HostStream> streams;
  Handles<HostEvent> events;
  Handles<LoadedModule> modules;
  Handles<HostGraph> graphs;
  std::atomic<std::uint64_t> captures = 0;
  std::mutex default_mutex;
  Stream default_streams[kHostDeviceCount] = {};  // Made at first use, never destroyed.
  std::atomic<bool> stopped = false;
  Runtime* inherited = nullptr;  // In a forked child: its parent's, unusable, kept reachable.

  /// Ends every thread; queued work is dropped. New streams are refused from here on.
  void stop() {
    stopped.store(true);
    const auto all = streams.all();
    for (const auto& stream : all) {
      stream->abandon();
    }
    for (const auto& stream : all) {
      stream->finish();
    }
  }
};

std::atomic<Runtime*> current_runtime = nullptr;

void start_again_after_fork() {
  auto* fresh = new Runtime;
  fresh->inherited = current_runtime.load(std::memory_order_relaxed);
  current_runtime.store(fresh, std::memory_order_release);
}

/// Lives as long as the library: its destructor runs at exit and at dlclose, and joins.
struct Lifetime {
  Lifetime() {
    current_runtime.store(new Runtime, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, start_again_after_fork);
  }
  // The object itself stays: other static destructors may still free through it.
  ~Lifetime() { current_runtime.load(std::memory_order_acquire)->stop(); }
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;
};

Runtime& runtime() {
  static Lifetime lifetime;
  return *current_runtime.load(std::memory_order_acquire);
}

thread_local int current_ordinal = -1;

Status check_device(int device) {
  if (device < 0 || device >= kHostDeviceCount) {
    return invalid("no device " + std::to_string(device));
  }
  return {};
}

Result<std::shared_ptr<HostStream>> find_stream(Stream stream) {
  auto found = runtime().streams.find(stream);
  if (found == nullptr) {
    return invalid(pointer_text(stream) + " is not a stream");
  }
  return found;
}

Result<std::shared_ptr<HostEvent>> find_event(Event event) {
  auto found = runtime().events.find(event);
  if (found == nullptr) {
    return invalid(pointer_text(event) + " is not an event");
  }
  return found;
}

Status wait_for_device(int device) {
  if (HostStream::on_any_stream()) {
    return invalid("a stream's own thread cannot wait for a device");
  }
  for (const auto& stream : runtime().streams.all()) {
    if (stream->device() == device) {
      stream->wait();
    }
  }
  return {};
}

/// A queued launch: the arguments' values are copied, the kernel runs block by block.
class Launch {
 public:
  Launch(const HostFunction& function, const LaunchShape& shape, void** arguments)
      : function_(function), shape_(shape) {
    values_.reserve(static_cast<std::size_t>(function.argument_count));
    for (int i = 0; i < function.argument_count; ++i) {
      const auto* bytes = static_cast<const unsigned char*>(arguments[i]);
      values_.emplace_back(bytes, bytes + function.argument_bytes[i]);
    }
  }

  void run() {
    std::vector<void*> arguments;
    for (auto& value : values_) {
      arguments.push_back(value.data());
    }
    HostBlock block{};
    std::memcpy(block.grid, shape_.grid, sizeof block.grid);
    std::memcpy(block.block, shape_.block, sizeof block.block);
    block.shared_bytes = shape_.shared_bytes;
    for (block.index[2] = 0; block.index[2] < block.grid[2]; ++block.index[2]) {
      for (block.index[1] = 0; block.index[1] < block.grid[1]; ++block.index[1]) {
        for (block.index[0] = 0; block.index[0] < block.grid[0]; ++block.index[0]) {
          std::vector<unsigned char> shared(shape_.shared_bytes);
          block.shared = shared.data();
          function_.kernel(block, arguments.data());
        }
      }
    }
  }

 private:
  HostFunction function_;
  LaunchShape shape_;
  std::vector<std::vector<unsigned char>> values_;
};

class HostApi final : public Api {
 public:
  const char* name() const override { return "host"; }
  std::string library() const override {
    Dl_info own;
    return dladdr(&current_runtime, &own) != 0 ? own.dli_fname : "";
  }
  Result<int> device_count() override { return kHostDeviceCount; }
  Status initialize() override { return {}; }

  PointerInfo classify(const void* pointer) override {
    const HostMemoryRange range = runtime().memory.range(pointer);
    if (range.device < 0) {
      return {};
    }
    return {MemoryKind::kDevice, range.device};
  }

  int current_device() override { return current_ordinal; }

  Result<int> concurrent_processors(int /*device*/) override { return kUnlimited; }
  int warp_threads() const override { return 1; }
  bool computes_on_cpu() const override { return true; }
  const void* kernel_image() const override { return &host_kernels(); }

  Result<std::string> identity(int device) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    return "HOST-" + node_name() + "-" + std::to_string(device);
  }

  Result<std::string> device_name(int device) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    return std::string("Tutti host device");
  }

  Status copy(void* destination, const void* source, Bytes bytes) override {
    TUTTI_RETURN_IF_ERROR(check_copy(destination, source, bytes));
    if (bytes != 0) {
      std::memmove(destination, source, bytes);
    }
    return {};
  }

  Status copy_async(void* destination, const void* source, Bytes bytes, Stream stream) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    TUTTI_RETURN_IF_ERROR(check_copy(destination, source, bytes));
    if (bytes != 0) {
      queue->enqueue([=] { move(destination, source, bytes); });
    }
    return {};
  }

  Status fill_async(void* destination, int value, Bytes bytes, Stream stream) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    if (bytes == 0) {
      return {};
    }
    TUTTI_RETURN_IF_ERROR(runtime().memory.check(destination, bytes));
    queue->enqueue([=] { std::memset(destination, value, bytes); });
    return {};
  }

  Result<Stream> create_stream(int device) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    if (runtime().stopped.load()) {
      return Status(ErrorCode::kUnavailable, "host device: the library is being unloaded");
    }
    return runtime().streams.add(std::make_shared<HostStream>(device));
  }

  Result<Stream> default_stream(int device) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    const std::lock_guard lock(runtime().default_mutex);
    Stream& stream = runtime().default_streams[device];
    if (stream == nullptr) {
      TUTTI_ASSIGN_OR_RETURN(stream, create_stream(device));
    }
    return stream;
  }

  Status destroy_stream(Stream stream) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    if (queue->is_this_thread()) {
      return invalid("a stream cannot be destroyed from its own thread");
    }
    if (runtime().streams.remove(stream) == nullptr) {
      return invalid(pointer_text(stream) + " is not a stream");
    }
    queue->finish();
    return {};
  }

  Result<bool> stream_done(Stream stream) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    return queue->idle();
  }

  Status wait_stream(Stream stream) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    if (queue->is_this_thread()) {
      return invalid("a stream cannot wait for itself");
    }
    queue->wait();
    return {};
  }

  Status wait_device(int device) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    return wait_for_device(device);
  }

  Result<Event> create_event(int device) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    return runtime().events.add(std::make_shared<HostEvent>());
  }

  Status destroy_event(Event event) override {
    if (runtime().events.remove(event) == nullptr) {
      return invalid(pointer_text(event) + " is not an event");
    }
    return {};
  }

  Status record_event(Event event, Stream stream) override {
    TUTTI_ASSIGN_OR_RETURN(auto target, find_event(event));
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    if (auto graph = queue->capture()) {
      const std::lock_guard lock(target->mutex);
      target->capture = graph;
      return {};
    }
    record(*target, *queue);
    return {};
  }

  Result<bool> event_done(Event event) override {
    TUTTI_ASSIGN_OR_RETURN(auto target, find_event(event));
    const std::lock_guard lock(target->mutex);
    return target->latest == nullptr || target->latest->done();
  }

  Status stream_wait_event(Stream stream, Event event) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    TUTTI_ASSIGN_OR_RETURN(auto target, find_event(event));
    std::shared_ptr<Completion> awaited;
    {
      const std::lock_guard lock(target->mutex);
      if (auto graph = target->capture.lock()) {
        queue->set_capture(std::move(graph));  // Behind all that it has up to now.
        return {};
      }
      awaited = target->latest;
    }
    if (awaited != nullptr) {
      queue->enqueue([awaited] { awaited->wait(); });
    }
    return {};
  }

  Result<void*> allocate_pinned(Bytes bytes, int /*device*/) override {
    return runtime().memory.allocate_pinned(bytes);
  }
  Status free_pinned(void* pointer) override { return runtime().memory.free_pinned(pointer); }
  Status register_host(void* /*memory*/, Bytes /*bytes*/, int /*device*/) override { return {}; }

  Result<void*> allocate_device(int device, Bytes bytes) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    return runtime().memory.allocate(device, bytes);
  }

  Status free_device(void* pointer) override {
    const HostMemoryRange range = runtime().memory.range(pointer);
    if (range.origin == HostMemoryOrigin::kAllocated && !HostStream::on_any_stream()) {
      TUTTI_RETURN_IF_ERROR(wait_for_device(range.device));
    }
    return runtime().memory.free(pointer);
  }

  Result<void*> allocate_shared(int device, Bytes bytes, Sharing sharing) override {
    return sharing == Sharing::kFabric ? Api::allocate_shared(device, bytes, sharing)
                                       : allocate_device(device, bytes);
  }

  Result<IpcHandle> export_memory(void* pointer) override {
    TUTTI_ASSIGN_OR_RETURN(const IpcRecord record, runtime().memory.export_memory(pointer));
    IpcHandle handle;
    std::memcpy(handle.bytes, &record, sizeof record);
    handle.size_bytes = record.bytes;
    handle.descriptor = record.descriptor;  // All of our memory has one.
    return handle;
  }

  Result<void*> open_memory(int device, const IpcHandle& handle) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    IpcRecord record{};
    std::memcpy(&record, handle.bytes, sizeof record);
    return runtime().memory.import(device, record,
                                   handle.sharing == Sharing::kDescriptor ? handle.descriptor : -1);
  }

  Status close_memory(void* pointer) override { return runtime().memory.close_import(pointer); }

  Result<Module> load_module(int device, const void* image) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    const auto* table = static_cast<const HostModule*>(image);
    if (table == nullptr || table->magic != kHostModuleMagic) {
      return invalid("the image is not a HostModule");
    }
    return runtime().modules.add(std::make_shared<LoadedModule>(LoadedModule{table, device}));
  }

  Status unload_module(Module module) override {
    if (runtime().modules.remove(module) == nullptr) {
      return invalid(pointer_text(module) + " is not a module");
    }
    return {};
  }

  Result<Function> find_function(Module module, const char* function_name) override {
    const auto loaded = runtime().modules.find(module);
    if (loaded == nullptr) {
      return invalid(pointer_text(module) + " is not a module");
    }
    for (int i = 0; i < loaded->table->function_count; ++i) {
      const HostFunction& function = loaded->table->functions[i];
      if (std::strcmp(function.name, function_name) == 0) {
        return static_cast<void*>(const_cast<HostFunction*>(&function));
      }
    }
    return invalid(std::string("the module has no function ") + function_name);
  }

  Status launch(Function function, const LaunchShape& shape, Stream stream,
                void** arguments) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    if (!is_loaded(function)) {
      return invalid(pointer_text(function) + " is not a function of a loaded module");
    }
    for (int i = 0; i < 3; ++i) {
      if (shape.grid[i] == 0 || shape.block[i] == 0) {
        return invalid("a launch without blocks or threads");
      }
    }
    auto queued =
        std::make_shared<Launch>(*static_cast<const HostFunction*>(function), shape, arguments);
    queue->enqueue([queued] { queued->run(); });
    return {};
  }

  Result<void*> make_current(int device) override {
    TUTTI_RETURN_IF_ERROR(check_device(device));
    // One up, so that "none" (-1) is a value and not null.
    void* previous = reinterpret_cast<void*>(static_cast<std::intptr_t>(current_ordinal + 1));
    current_ordinal = device;
    return previous;
  }

  void restore_current(void* previous) override {
    current_ordinal = static_cast<int>(reinterpret_cast<std::intptr_t>(previous)) - 1;
  }

  int stream_device(Stream stream) override {
    const auto queue = find_stream(stream);
    return queue.ok() ? (*queue)->device() : Api::stream_device(stream);
  }

  std::uint64_t stream_id(Stream stream) override {
    const auto queue = find_stream(stream);
    return queue.ok() ? (*queue)->id() : 0;
  }

  bool orders_graphs() const override { return true; }

  Result<bool> is_capturing(Stream stream) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    return queue->capture() != nullptr;
  }

  Result<std::uint64_t> capture_id(Stream stream) override {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    const auto graph = queue->capture();
    return graph == nullptr ? std::uint64_t{0} : graph->id;
  }

  Status wait_at_launch(Stream stream, Event event) override {
    TUTTI_ASSIGN_OR_RETURN(const auto graph, find_capture(stream));
    TUTTI_ASSIGN_OR_RETURN(auto target, find_event(event));
    graph->steps.emplace_back([target](HostStream& queue) {
      const std::lock_guard lock(target->mutex);
      if (target->latest != nullptr) {
        queue.enqueue([awaited = target->latest] { awaited->wait(); });
      }
    });
    return {};
  }

  Result<GraphNode> record_at_launch(Stream stream, Event event, GraphNode /*before*/) override {
    TUTTI_ASSIGN_OR_RETURN(const auto graph, find_capture(stream));
    TUTTI_ASSIGN_OR_RETURN(auto target, find_event(event));
    graph->steps.emplace_back([target](HostStream& queue) { record(*target, queue); });
    return GraphNode{};
  }

  Status on_graph_end(Stream stream, void (*release)(void*), void* argument) override {
    TUTTI_ASSIGN_OR_RETURN(const auto graph, find_capture(stream));
    graph->at_end.emplace_back([=] { release(argument); });
    return {};
  }

 private:
  static Result<std::shared_ptr<HostGraph>> find_capture(Stream stream) {
    TUTTI_ASSIGN_OR_RETURN(auto queue, find_stream(stream));
    auto graph = queue->capture();
    if (graph == nullptr) {
      return invalid(pointer_text(stream) + " captures nothing");
    }
    return graph;
  }

  static void record(HostEvent& event, HostStream& queue) {
    auto completion = std::make_shared<Completion>();
    // Under the lock, so that the latest recording is also the last one queued.
    const std::lock_guard lock(event.mutex);
    queue.enqueue([signal = std::make_shared<Signal>(completion)] {});
    event.latest = std::move(completion);
    event.capture.reset();
  }

  /// A word goes in one piece, as by a GPU's copies: kernels look at it meanwhile.
  static void move(void* destination, const void* source, Bytes bytes) {
    using Word = std::uint32_t;
    const auto bits =
        reinterpret_cast<std::uintptr_t>(destination) | reinterpret_cast<std::uintptr_t>(source);
    if (bytes == sizeof(Word) && bits % sizeof(Word) == 0) {
      __atomic_store_n(static_cast<Word*>(destination),
                       __atomic_load_n(static_cast<const Word*>(source), __ATOMIC_ACQUIRE),
                       __ATOMIC_RELAXED);
    } else {
      std::memmove(destination, source, bytes);
    }
  }

  static Status check_copy(const void* destination, const void* source, Bytes bytes) {
    if (bytes == 0) {
      return {};
    }
    TUTTI_RETURN_IF_ERROR(runtime().memory.check(destination, bytes));
    return runtime().memory.check(source, bytes);
  }

  static bool is_loaded(const void* function) {
    for (const auto& module : runtime().modules.all()) {
      for (int i = 0; i < module->table->function_count; ++i) {
        if (&module->table->functions[i] == function) {
          return true;
        }
      }
    }
    return false;
  }

  /// Equal in all processes of a node and different on every node: the kernel's boot identity.
  static const std::string& node_name() {
    static const std::string name = [] {
      char text[64] = {};
      if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
        const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
        std::fclose(file);
        text[length] = '\0';
      }
      text[std::strcspn(text, "\n")] = '\0';
      if (text[0] == '\0') {
        gethostname(text, sizeof text - 1);
      }
      return std::string(text);
    }();
    return name;
  }
};

}  // namespace

std::unique_ptr<Api> make_api() { return std::make_unique<HostApi>(); }

}  // namespace tutti::device::host_device

using namespace tutti::device;
using host_device::runtime;

Api* tutti_host_device_open(const char* version) {
  return std::strcmp(version, TUTTI_DEVICE_TABLE) == 0 ? host_device::make_api().release()
                                                       : nullptr;
}

void* tutti_host_device_alloc(std::size_t bytes) {
  const int ordinal = host_device::current_ordinal;
  tutti::Result<void*> pointer = runtime().memory.allocate(ordinal < 0 ? 0 : ordinal, bytes);
  return pointer.ok() ? *pointer : nullptr;
}

void tutti_host_device_free(void* pointer) {
  if (pointer != nullptr) {
    // Nothing to tell an error to; a wrong pointer changes nothing.
    static_cast<void>(host_device::make_api()->free_device(pointer).ok());
  }
}

Stream tutti_host_device_create_stream() {
  const int ordinal = host_device::current_ordinal;
  const tutti::Result<Stream> stream =
      host_device::make_api()->create_stream(ordinal < 0 ? 0 : ordinal);
  return stream.ok() ? *stream : nullptr;
}

void tutti_host_device_enqueue(Stream stream, void (*function)(void*), void* argument) {
  const auto queue = runtime().streams.find(stream);
  CHECK(queue != nullptr,
        host_device::pointer_text(stream) + " is not a stream of the host device");
  queue->enqueue([=] { function(argument); });
}

void tutti_host_device_begin_capture(Stream stream) {
  const auto queue = runtime().streams.find(stream);
  CHECK(queue != nullptr && queue->capture() == nullptr, "no stream, or one that captures");
  queue->set_capture(std::make_shared<host_device::HostGraph>(++runtime().captures));
}

void* tutti_host_device_end_capture(Stream stream) {
  const auto queue = runtime().streams.find(stream);
  const auto graph = queue == nullptr ? nullptr : queue->capture();
  CHECK(graph != nullptr, host_device::pointer_text(stream) + " captures nothing");
  for (const auto& one : runtime().streams.all()) {
    if (one->capture() == graph) {
      one->set_capture(nullptr);
    }
  }
  return runtime().graphs.add(graph);
}

void tutti_host_device_launch_graph(void* handle, Stream stream) {
  const auto graph = runtime().graphs.find(handle);
  const auto queue = runtime().streams.find(stream);
  CHECK(graph != nullptr && queue != nullptr, "no graph or no stream of the host device");
  for (const auto& step : graph->steps) {
    step(*queue);
  }
  queue->enqueue([graph] {});  // Which lives until then.
}

void tutti_host_device_destroy_graph(void* handle) { runtime().graphs.remove(handle); }

HostMemoryRange tutti_host_device_range(const void* pointer) {
  return runtime().memory.range(pointer);
}
