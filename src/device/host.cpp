// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The host as a device: eight ordinals, each with memory of its own and any number of streams.
// Not a mock. A stream is a thread that runs its queue in order, a copy really happens later, an
// event really waits, and a handle really maps the memory into another process of the node.
//
// Memory. Each ordinal owns one range of addresses, reserved once, 2 MiB aligned and never given
// back: an address that was device memory of ordinal n never becomes anything else, so a stale
// pointer is an error and never somebody else's memory. Behind the range is one memory file, so
// another process maps an allocation by (process, descriptor, offset); nothing is left behind by
// a crash, and ten thousand allocations need one descriptor.
//
// Fork. The child starts with a fresh, empty host device: the threads are gone and the locks may
// be held. What it inherited stays readable and counts as host memory.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "device/device.hpp"
#include "device/host_memory.hpp"
#include "device/host_module.hpp"

namespace tutti::device {
namespace {

constexpr Bytes kAlignment = 512;                     // What GPU allocators give.
constexpr Bytes kReserveAlignment = Bytes{2} << 20;   // What GPU drivers reserve in.
constexpr Bytes kArenaBytesWanted = Bytes{64} << 30;  // Addresses only; pages come when touched.
constexpr Bytes kArenaBytesLeast = Bytes{64} << 20;   // Under a tight address space limit.
constexpr std::uint64_t kIpcMagic = 0x3163706974747574ULL;

Bytes round_up(Bytes value, Bytes unit) { return (value + unit - 1) / unit * unit; }
Bytes round_down(Bytes value, Bytes unit) { return value / unit * unit; }

std::string errno_text(const char* what) {
  return std::string("host device: ") + what + ": " + std::strerror(errno);
}

Status invalid(const std::string& what) {
  return Status(ErrorCode::kInvalidArgument, "host device: " + what);
}

std::string pointer_text(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", pointer);
  return text;
}

/// Reserves addresses that start at a multiple of 2 MiB; null when there are none.
char* reserve(Bytes bytes) {
  const Bytes padded = bytes + kReserveAlignment;
  void* raw = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return nullptr;
  }
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = round_up(start, kReserveAlignment);
  if (aligned != start) {
    munmap(raw, aligned - start);
  }
  const std::uintptr_t end = aligned + bytes;
  if (start + padded != end) {
    munmap(reinterpret_cast<void*>(end), start + padded - end);
  }
  return reinterpret_cast<char*>(aligned);
}

// ---- streams and events ------------------------------------------------------------------------

/// One recording of an event: set once, waited for by any number of threads.
class Completion {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

/// Sets a completion when the last task that holds it is gone, so that a task which is dropped at
/// unload instead of run does not leave a waiter behind.
class Signal {
 public:
  explicit Signal(std::shared_ptr<Completion> completion) : completion_(std::move(completion)) {}
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() { completion_->set(); }

 private:
  std::shared_ptr<Completion> completion_;
};

using Task = std::function<void()>;

/// A queue and the thread that runs it.
class HostStream {
 public:
  explicit HostStream(int device) : device_(device), thread_([this] { work(); }) {}
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  ~HostStream() { finish(); }

  int device() const { return device_; }

  void enqueue(Task task) {
    const std::lock_guard lock(mutex_);
    if (closing_) {
      return;  // Only at unload, where the task's waiters are released by dropping it.
    }
    tasks_.push_back(std::move(task));
    ++submitted_;
    work_.notify_one();
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    return finished_ == submitted_;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    const std::uint64_t target = submitted_;
    progress_.wait(lock, [&] { return finished_ >= target; });
  }

  /// True on the stream's own thread, where waiting for the stream would never end.
  bool is_this_thread() const { return running_ == this; }
  static bool on_any_stream() { return running_ != nullptr; }

  /// Runs what is queued and ends the thread.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      work_.notify_one();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  /// Drops what is queued; finish() then waits only for the task that runs now.
  void abandon() {
    std::deque<Task> dropped;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      dropped.swap(tasks_);
      finished_ += dropped.size();
      work_.notify_one();
      progress_.notify_all();
    }
  }

 private:
  void work() {
    running_ = this;
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) {
        return;
      }
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // Its signals fire before the stream counts as done.
      lock.lock();
      ++finished_;
      progress_.notify_all();
    }
  }

  static thread_local const HostStream* running_;

  const int device_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable progress_;
  std::deque<Task> tasks_;
  std::uint64_t submitted_ = 0;
  std::uint64_t finished_ = 0;
  bool closing_ = false;
  std::thread thread_;  // Last: it uses all of the above.
};

thread_local const HostStream* HostStream::running_ = nullptr;

struct HostEvent {
  std::mutex mutex;
  std::shared_ptr<Completion> latest;  // Null until the event is recorded.
};

struct LoadedModule {
  const HostModule* table;
  int device;
};

// ---- memory ------------------------------------------------------------------------------------

/// What an IpcHandle of the host device holds.
struct IpcRecord {
  std::uint64_t magic;
  std::uint64_t inode;  // With `filesystem`: proves that the descriptor is still the same file.
  std::uint64_t filesystem;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::int32_t process;
  std::int32_t descriptor;
};
static_assert(sizeof(IpcRecord) <= sizeof(IpcHandle));

/// The address range of one ordinal and the memory file behind it.
class Arena {
 public:
  /// False, with errno, when neither addresses nor a memory file could be had.
  bool open(int device) {
    const std::string name = "tutti-device-" + std::to_string(device);
    descriptor_ = memfd_create(name.c_str(), MFD_CLOEXEC);
    if (descriptor_ < 0) {
      return false;
    }
    struct stat state {};
    if (fstat(descriptor_, &state) != 0) {
      return false;
    }
    inode_ = state.st_ino;
    filesystem_ = state.st_dev;
    for (bytes_ = kArenaBytesWanted; bytes_ >= kArenaBytesLeast; bytes_ /= 2) {
      if (map()) {
        free_.emplace(0, bytes_);
        return true;
      }
    }
    return false;
  }

  bool is_open() const { return base_ != nullptr; }
  bool contains(std::uintptr_t address) const {
    const auto base = reinterpret_cast<std::uintptr_t>(base_);
    return base_ != nullptr && address >= base && address - base < bytes_;
  }

  /// First fit; null when no span is long enough.
  char* take(Bytes bytes) {
    for (auto span = free_.begin(); span != free_.end(); ++span) {
      const auto [offset, length] = *span;
      if (length >= bytes) {
        free_.erase(span);
        if (length > bytes) {
          free_.emplace(offset + bytes, length - bytes);
        }
        return base_ + offset;
      }
    }
    return nullptr;
  }

  /// Returns a span to the free list and its pages to the system.
  void give(char* pointer, Bytes bytes) {
    Bytes offset = static_cast<Bytes>(pointer - base_);
    Bytes end = offset + bytes;
    const Bytes freed_begin = offset;
    const Bytes freed_end = end;
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == end) {
      end += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        free_.erase(before);
      }
    }
    free_.emplace(offset, end - offset);
    // Pages that the freed span shares with a live neighbour stay.
    const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
    const Bytes first = std::max(round_up(offset, page), round_down(freed_begin, page));
    const Bytes last = std::min(round_down(end, page), round_up(freed_end, page));
    if (last > first) {
      // Failure only means that the pages are kept.
      (void)fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(first), static_cast<off_t>(last - first));
    }
  }

  /// The place of an allocation for another process; an error when the program closed our file.
  Result<IpcRecord> export_span(const char* pointer, Bytes bytes) const {
    struct stat state {};
    if (fstat(descriptor_, &state) != 0 || state.st_ino != inode_ || state.st_dev != filesystem_) {
      return Status(ErrorCode::kUnavailable,
                    "host device: the program closed the file behind the device memory");
    }
    return IpcRecord{.magic = kIpcMagic,
                     .inode = inode_,
                     .filesystem = filesystem_,
                     .offset = static_cast<std::uint64_t>(pointer - base_),
                     .bytes = bytes,
                     .process = getpid(),
                     .descriptor = descriptor_};
  }

 private:
  bool map() {
    if (ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0) {
      return false;
    }
    char* addresses = reserve(bytes_);
    if (addresses == nullptr) {
      return false;
    }
    if (mmap(addresses, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             descriptor_, 0) == MAP_FAILED) {
      munmap(addresses, bytes_);
      return false;
    }
    madvise(addresses, bytes_, MADV_DONTDUMP);
    base_ = addresses;
    return true;
  }

  int descriptor_ = -1;
  std::uint64_t inode_ = 0;
  std::uint64_t filesystem_ = 0;
  char* base_ = nullptr;
  Bytes bytes_ = 0;
  std::map<Bytes, Bytes> free_;  // Offset -> length, never two adjacent ones.
};

struct Allocation {
  Bytes bytes = 0;       // As asked for.
  Bytes span_bytes = 0;  // As taken: from the arena, or as mapped by an import.
  char* span = nullptr;  // Start of the span; not the pointer itself for an import.
  int device = -1;
  HostMemoryOrigin origin = HostMemoryOrigin::kUnknown;
};

/// Every allocation of the process by address.
class Memory {
 public:
  Result<void*> allocate(int device, Bytes bytes) {
    if (bytes == 0) {
      return invalid("an allocation of 0 bytes");
    }
    if (bytes > kArenaBytesWanted) {
      return out_of_memory(device, bytes);
    }
    const std::unique_lock lock(mutex_);
    Arena& arena = arenas_[device];
    if (!arena.is_open() && !arena.open(device)) {
      return Status(ErrorCode::kOutOfMemory, errno_text("no memory for an ordinal"));
    }
    const Bytes span_bytes = round_up(bytes, kAlignment);
    char* pointer = arena.take(span_bytes);
    if (pointer == nullptr) {
      return out_of_memory(device, bytes);
    }
    allocations_[address_of(pointer)] = {.bytes = bytes,
                                         .span_bytes = span_bytes,
                                         .span = pointer,
                                         .device = device,
                                         .origin = HostMemoryOrigin::kAllocated};
    return static_cast<void*>(pointer);
  }

  Status free(void* pointer) {
    const std::unique_lock lock(mutex_);
    const auto found = find_exact(pointer, HostMemoryOrigin::kAllocated);
    if (found == allocations_.end()) {
      return invalid(pointer_text(pointer) + " is not the start of device memory");
    }
    arenas_[found->second.device].give(found->second.span, found->second.span_bytes);
    allocations_.erase(found);
    return {};
  }

  Result<void*> allocate_pinned(Bytes bytes) {
    if (bytes == 0) {
      return invalid("an allocation of 0 bytes");
    }
    void* pointer =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pointer == MAP_FAILED) {
      return Status(ErrorCode::kOutOfMemory, errno_text("pinned memory"));
    }
    const std::unique_lock lock(mutex_);
    allocations_[address_of(pointer)] = {.bytes = bytes,
                                         .span_bytes = bytes,
                                         .span = static_cast<char*>(pointer),
                                         .device = -1,
                                         .origin = HostMemoryOrigin::kPinned};
    return pointer;
  }

  Status free_pinned(void* pointer) {
    const std::unique_lock lock(mutex_);
    const auto found = find_exact(pointer, HostMemoryOrigin::kPinned);
    if (found == allocations_.end()) {
      return invalid(pointer_text(pointer) + " is not the start of pinned memory");
    }
    munmap(pointer, found->second.bytes);
    allocations_.erase(found);
    return {};
  }

  Result<IpcRecord> export_memory(void* pointer) {
    const std::shared_lock lock(mutex_);
    const auto found = find_exact(pointer, HostMemoryOrigin::kAllocated);
    if (found == allocations_.end()) {
      return invalid(pointer_text(pointer) + " is not the start of device memory");
    }
    const Allocation& allocation = found->second;
    return arenas_[allocation.device].export_span(allocation.span, allocation.bytes);
  }

  /// `given`: a descriptor of the exporter's memory, the caller's; -1: it is looked up.
  Result<void*> import(int device, const IpcRecord& record, int given) {
    if (record.magic != kIpcMagic || record.bytes == 0) {
      return invalid("not a memory handle of the host device");
    }
    if (given >= 0) {
      return import_from(given, device, record);
    }
    const std::string path =
        "/proc/" + std::to_string(record.process) + "/fd/" + std::to_string(record.descriptor);
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) {
      return Status(ErrorCode::kUnavailable, errno_text(("memory of " + path).c_str()));
    }
    Result<void*> mapped = import_from(descriptor, device, record);
    close(descriptor);
    return mapped;
  }

  Status close_import(void* pointer) {
    const std::unique_lock lock(mutex_);
    const auto found = find_exact(pointer, HostMemoryOrigin::kImported);
    if (found == allocations_.end()) {
      return invalid(pointer_text(pointer) + " was not opened by a handle");
    }
    const Allocation& allocation = found->second;
    // The addresses stay reserved for later imports of the same device.
    if (mmap(allocation.span, allocation.span_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
      return Status(ErrorCode::kLibraryFailed, errno_text("unmapping"));
    }
    parked_.emplace(std::pair(allocation.device, allocation.span_bytes), allocation.span);
    allocations_.erase(found);
    return {};
  }

  HostMemoryRange range(const void* pointer) const {
    const std::shared_lock lock(mutex_);
    const auto found = find_containing(address_of(pointer));
    if (found == allocations_.end()) {
      return {};
    }
    return {.origin = found->second.origin,
            .base = reinterpret_cast<void*>(found->first),
            .bytes = found->second.bytes,
            .device = found->second.device};
  }

  /// An error when [pointer, pointer + bytes) starts in our memory and leaves its allocation.
  Status check(const void* pointer, Bytes bytes) const {
    const std::uintptr_t address = address_of(pointer);
    if (pointer == nullptr) {
      return invalid("a null pointer");
    }
    const std::shared_lock lock(mutex_);
    const auto found = find_containing(address);
    if (found != allocations_.end()) {
      if (bytes <= found->first + found->second.bytes - address) {
        return {};
      }
      return invalid(std::to_string(bytes) + " bytes at " + pointer_text(pointer) +
                     " leave their allocation");
    }
    for (const Arena& arena : arenas_) {
      if (arena.contains(address)) {
        return invalid(pointer_text(pointer) + " is device memory that is not allocated");
      }
    }
    return {};
  }

 private:
  using Allocations = std::map<std::uintptr_t, Allocation>;

  static std::uintptr_t address_of(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }

  static Status out_of_memory(int device, Bytes bytes) {
    return Status(ErrorCode::kOutOfMemory, "host device " + std::to_string(device) + ": no " +
                                               std::to_string(bytes) + " bytes left");
  }

  Allocations::iterator find_exact(const void* pointer, HostMemoryOrigin origin) {
    const auto found = allocations_.find(address_of(pointer));
    return found != allocations_.end() && found->second.origin == origin ? found
                                                                         : allocations_.end();
  }

  Allocations::const_iterator find_containing(std::uintptr_t address) const {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) {
      return allocations_.end();
    }
    const auto before = std::prev(after);
    return address - before->first < before->second.bytes ? before : allocations_.end();
  }

  Result<void*> import_from(int descriptor, int device, const IpcRecord& record) {
    struct stat state {};
    if (fstat(descriptor, &state) != 0 || state.st_ino != record.inode ||
        state.st_dev != record.filesystem) {
      return Status(ErrorCode::kUnavailable,
                    "host device: the memory of a handle is gone (its process has ended)");
    }
    if (record.offset + record.bytes > static_cast<std::uint64_t>(state.st_size)) {
      return invalid("a memory handle that leaves its file");
    }
    const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
    const Bytes begin = round_down(record.offset, page);
    const Bytes bytes = round_up(record.offset + record.bytes, page) - begin;
    const Bytes span_bytes = round_up(bytes, kReserveAlignment);

    const std::unique_lock lock(mutex_);
    char* span = nullptr;
    if (const auto parked = parked_.find({device, span_bytes}); parked != parked_.end()) {
      span = parked->second;
      parked_.erase(parked);
    } else {
      span = reserve(span_bytes);
    }
    if (span == nullptr) {
      return Status(ErrorCode::kOutOfMemory, errno_text("addresses for a handle"));
    }
    if (mmap(span, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             descriptor, static_cast<off_t>(begin)) == MAP_FAILED) {
      const Status failed(ErrorCode::kLibraryFailed, errno_text("mapping a handle"));
      parked_.emplace(std::pair(device, span_bytes), span);
      return failed;
    }
    char* pointer = span + (record.offset - begin);
    allocations_[address_of(pointer)] = {.bytes = record.bytes,
                                         .span_bytes = span_bytes,
                                         .span = span,
                                         .device = device,
                                         .origin = HostMemoryOrigin::kImported};
    return static_cast<void*>(pointer);
  }

  mutable std::shared_mutex mutex_;
  Arena arenas_[kHostDeviceCount];
  Allocations allocations_;
  std::multimap<std::pair<int, Bytes>, char*> parked_;  // (device, bytes) -> reserved addresses.
};

// ---- the one host device of the process --------------------------------------------------------

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
  std::string library() const override { return "built in"; }
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
      queue->enqueue([=] { std::memmove(destination, source, bytes); });
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
    auto completion = std::make_shared<Completion>();
    // Under the lock, so that the latest recording is also the last one queued.
    const std::lock_guard lock(target->mutex);
    queue->enqueue([signal = std::make_shared<Signal>(completion)] {});
    target->latest = std::move(completion);
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

 private:
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

std::unique_ptr<Api> open_host() { return std::make_unique<HostApi>(); }

void* host_device_alloc(std::size_t bytes) {
  const int device = current_ordinal < 0 ? 0 : current_ordinal;
  Result<void*> pointer = runtime().memory.allocate(device, bytes);
  return pointer.ok() ? *pointer : nullptr;
}

void host_device_free(void* pointer) {
  if (pointer != nullptr) {
    HostApi api;
    // Nothing to tell an error to; a wrong pointer changes nothing.
    (void)api.free_device(pointer).ok();
  }
}

void host_device_enqueue(Stream stream, void (*function)(void*), void* argument) {
  const auto queue = runtime().streams.find(stream);
  CHECK(queue != nullptr, pointer_text(stream) + " is not a stream of the host device");
  queue->enqueue([=] { function(argument); });
}

HostMemoryRange host_device_range(const void* pointer) { return runtime().memory.range(pointer); }

}  // namespace tutti::device
