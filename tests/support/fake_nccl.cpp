// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A fake of NCCL and RCCL: the same C interface, written by us from the public header's
// contract, with no code of either library in it. Works over host memory, between the processes
// and threads of one machine, so that everything above the library can be tested without a GPU.
// Compiled twice: as libnccl.so.2 beside the CUDA fake and as librccl.so.1 beside HIP's.
//
// Work runs in stream order when a device fake that exports tutti_fake_enqueue is loaded, else
// at once on the calling thread. As strict as the real library where it matters to a caller: two
// ranks on one device, a bad type, operation or root, a null or dead communicator, and the use of
// a non-blocking communicator before it has settled are errors. Stricter in one place: ranks that
// disagree on the call are told so instead of hanging. Float8 (2.24 on) is not done.
//
// Environment, read at every call; SPEC is SYMBOL[:CALLS][@RANK], several separated by commas:
//   FAKE_CCL_FAIL=SPEC     after CALLS good calls the function returns ncclInternalError
//   FAKE_CCL_STALL=SPEC    after CALLS good calls its work never completes, until abort
//   FAKE_CCL_CONNECT=SPEC  after CALLS good calls the function itself stays, until abort, as where
//                          the real one connects to a peer that does not come
//   FAKE_CCL_VERSION=N     what ncclGetVersion says
//   FAKE_CCL_IN_PROGRESS=N every call on a non-blocking communicator stays in progress for N polls
//                          (unset: only its first, as with lazily connected ranks)
//   FAKE_CCL_MEET=SPEC     ncclCommDestroy or ncclCommAbort returns when all ranks have left the
//                          communicator, as the real one's ranks of a node, or have ended
//   FAKE_CCL_GRAPH=1       a graph holds every communicator: destroy and abort wait, as the real
//   ones FAKE_CCL_LOG=PATH      appends "SYMBOL COUNT TYPE OP RANK/RANKS" for each call
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fnv1a.hpp"
#include "ccl/nccl_abi.hpp"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

namespace abi = tutti::ccl::abi;
using abi::Result;
using tutti::ccl::UniqueId;

constexpr int kDefaultVersion = 22304;
constexpr int kTypes = 10;
constexpr int kOpSum = 0;
constexpr int kOpProd = 1;
constexpr int kOpMax = 2;
constexpr int kOpMin = 3;
constexpr int kOpAvg = 4;
constexpr int kOps = 5;
constexpr const char* kTypeNames[kTypes] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                            "uint64", "float16", "float32", "float64", "bfloat16"};
constexpr std::size_t kTypeSizes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr const char* kOpNames[kOps] = {"sum", "prod", "max", "min", "avg"};

// ---- Shared memory ------------------------------------------------------------------------

constexpr std::uint64_t kIdMagic = 0x74757474692d6964;  // "tutti-id"
constexpr int kRanksMax = 256;

/// What a unique id holds.
struct IdContent {
  std::uint64_t magic;
  char name[64];
};
static_assert(sizeof(IdContent) <= sizeof(UniqueId));

enum SlotState : std::uint32_t { kNeverCame = 0, kAttached = 1, kGone = 2 };

struct Slot {
  std::atomic<std::uint32_t> claimed;
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint64_t> device;  ///< Identity of the physical device; 0: no driver.
};

constexpr const char* kNamePrefix = "tutti-fake-ccl-";

/// Removes segments whose maker is dead and which have lain for a minute: those of ranks that ended
/// while they waited for the others.
void remove_stale_segments() {
  std::error_code error;
  const auto now = std::filesystem::file_time_type::clock::now();
  for (std::filesystem::directory_iterator entry("/dev/shm", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind(kNamePrefix, 0) != 0) {
      continue;
    }
    std::error_code gone;  // Another process may be quicker.
    const auto written = std::filesystem::last_write_time(entry->path(), gone);
    const pid_t maker = std::atoi(name.c_str() + std::strlen(kNamePrefix));
    if (!gone && now - written > std::chrono::minutes(1) && kill(maker, 0) != 0 && errno == ESRCH) {
      shm_unlink(("/" + name).c_str());
    }
  }
}

/// All zeros is the valid first state of everything in the segment.
struct Shared {
  std::atomic<std::uint32_t> ranks;
  std::atomic<std::uint32_t> attached;
  Slot slots[kRanksMax];
};

struct alignas(64) RingState {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
};

/// A bounded byte queue from one rank to another.
class Ring {
 public:
  Ring(RingState* state, char* data, std::size_t capacity)
      : state_(state), data_(data), capacity_(capacity) {}

  std::size_t readable() const {
    return state_->written.load(std::memory_order_acquire) -
           state_->read.load(std::memory_order_relaxed);
  }

  std::size_t write(const void* source, std::size_t bytes) {
    const std::uint64_t at = state_->written.load(std::memory_order_relaxed);
    const std::size_t used = at - state_->read.load(std::memory_order_acquire);
    bytes = std::min(bytes, capacity_ - used);
    const std::size_t offset = at % capacity_;
    const std::size_t first = std::min(bytes, capacity_ - offset);
    if (bytes > 0) {
      std::memcpy(data_ + offset, source, first);
      std::memcpy(data_, static_cast<const char*>(source) + first, bytes - first);
      state_->written.store(at + bytes, std::memory_order_release);
    }
    return bytes;
  }

  std::size_t read(void* destination, std::size_t bytes) {
    const std::uint64_t at = state_->read.load(std::memory_order_relaxed);
    bytes = std::min(bytes, readable());
    const std::size_t offset = at % capacity_;
    const std::size_t first = std::min(bytes, capacity_ - offset);
    if (bytes > 0) {
      std::memcpy(destination, data_ + offset, first);
      std::memcpy(static_cast<char*>(destination) + first, data_, bytes - first);
      state_->read.store(at + bytes, std::memory_order_release);
    }
    return bytes;
  }

 private:
  RingState* state_;
  char* data_;
  std::size_t capacity_;
};

/// Collectives and point-to-point messages do not share an order, so each pair has two rings.
enum Use { kCollectives = 0, kMessages = 1 };

class Segment {
 public:
  ~Segment() {
    if (base_ != nullptr) {
      munmap(base_, bytes_);
    }
  }

  /// Empty, or why not.
  std::string attach(const std::string& name, int ranks) {
    ranks_ = ranks;
    capacity_ = std::size_t{256} << 10;
    while (capacity_ > 4096 && capacity_ * ranks * ranks > (std::size_t{2} << 20)) {
      capacity_ /= 2;
    }
    bytes_ = rings_offset() + 2 * ring_bytes() * ranks * ranks;
    const int file = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) {
      return std::string("shm_open: ") + std::strerror(errno);
    }
    // Reserved now: a full /dev/shm is an error here and a SIGBUS later.
    const int full = posix_fallocate(file, 0, static_cast<off_t>(bytes_));
    if (full != 0) {
      close(file);
      shm_unlink(name.c_str());
      return std::string("shared memory: ") + std::strerror(full);
    }
    void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (base == MAP_FAILED) {
      return std::string("mmap: ") + std::strerror(errno);
    }
    base_ = static_cast<char*>(base);
    return {};
  }

  Shared* shared() const { return reinterpret_cast<Shared*>(base_); }

  Ring ring(Use use, int from, int to) const {
    const std::size_t index = (static_cast<std::size_t>(use) * ranks_ + from) * ranks_ + to;
    char* at = base_ + rings_offset() + index * ring_bytes();
    return Ring(reinterpret_cast<RingState*>(at), at + sizeof(RingState), capacity_);
  }

 private:
  static constexpr std::size_t rings_offset() { return (sizeof(Shared) + 63) / 64 * 64; }
  std::size_t ring_bytes() const { return sizeof(RingState) + capacity_; }

  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t capacity_ = 0;
  int ranks_ = 0;
};

// ---- The device fake --------------------------------------------------------------------

#ifdef FAKE_CCL_HIP
constexpr const char* kDriverFile = "libamdhip64.so";
constexpr const char* kCurrentDevice = "hipGetDevice";
constexpr const char* kDeviceUuid = "hipDeviceGetUuid";
constexpr const char* kContext = "";  // HIP has none that matter.
constexpr const char* kPointerAttribute = "";
#else
constexpr const char* kDriverFile = "libcuda.so";
constexpr const char* kCurrentDevice = "cuCtxGetDevice";
constexpr const char* kDeviceUuid = "cuDeviceGetUuid";
constexpr const char* kContext = "cuCtxGetCurrent";
constexpr const char* kPointerAttribute = "cuPointerGetAttribute";
#endif

struct Driver {
  void (*enqueue)(void* stream, void (*function)(void*), void* argument) = nullptr;
  int (*current_device)(int* device) = nullptr;
  int (*device_uuid)(void* uuid, int device) = nullptr;
  int (*context)(void** context) = nullptr;
  int (*pointer_attribute)(void* value, int attribute, std::uintptr_t pointer) = nullptr;
};

int find_driver(dl_phdr_info* info, std::size_t, void* argument) {
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* name = slash == nullptr ? info->dlpi_name : slash + 1;
  if (std::strncmp(name, kDriverFile, std::strlen(kDriverFile)) == 0) {
    *static_cast<std::string*>(argument) = info->dlpi_name;
    return 1;
  }
  return 0;
}

/// All null while no device fake is loaded; a real driver has no tutti_fake_enqueue.
Driver driver() {
  static std::mutex mutex;
  static Driver found;
  const std::lock_guard lock(mutex);
  if (found.enqueue != nullptr) {
    return found;
  }
  std::string path;
  if (dl_iterate_phdr(find_driver, &path) == 0) {
    return {};
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr || dlsym(library, "tutti_fake_enqueue") == nullptr) {
    return {};
  }
  const auto resolve = [&](auto** function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
  };
  resolve(&found.current_device, kCurrentDevice);
  resolve(&found.device_uuid, kDeviceUuid);
  resolve(&found.context, kContext);
  resolve(&found.pointer_attribute, kPointerAttribute);
  resolve(&found.enqueue, "tutti_fake_enqueue");
  return found;
}

int current_device() {
  const Driver table = driver();
  int device = 0;
  // The real library's runtime takes device 0 where the caller has chosen none.
  if (table.current_device != nullptr && table.current_device(&device) != 0) {
    device = 0;
  }
  return device;
}

/// Equal for two ranks only when they use the same physical device; 0 without a driver.
std::uint64_t device_identity(int device) {
  const Driver table = driver();
  if (table.enqueue == nullptr) {
    return 0;
  }
  unsigned char uuid[16] = {};
  if (table.device_uuid == nullptr || table.device_uuid(uuid, device) != 0) {
    std::memcpy(uuid, &device, sizeof device);
  }
  tutti::Fnv1a hash;
  hash.add_bytes({reinterpret_cast<const char*>(uuid), sizeof uuid});
  return hash.value() | 1;
}

// ---- Arithmetic ---------------------------------------------------------------------------

float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  std::uint32_t bits;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) / 16777216.0f;  // 2^-24
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000u | (fraction << 13);
  } else {
    bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  }
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint16_t half_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u);
  }
  if (bits >= 0x477ff000u) {  // 65520 and above round to infinity.
    return static_cast<std::uint16_t>(sign | 0x7c00u);
  }
  if (bits < 0x38800000u) {  // Below 2^-14 halves are multiples of 2^-24.
    return static_cast<std::uint16_t>(sign | std::lrint(std::fabs(value) * 16777216.0f));
  }
  bits += 0xfffu + ((bits >> 13) & 1);  // To nearest, ties to even.
  return static_cast<std::uint16_t>(sign | ((bits >> 13) - (std::uint32_t{112} << 10)));
}

float float_of_bfloat(std::uint16_t value) {
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

std::uint16_t bfloat_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  }
  bits += 0x7fffu + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

/// How an element is stored and what it is summed up in. 16-bit floats are summed in 32 bits and
/// rounded once.
template <class T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum load(Stored value) { return value; }
  static Stored store(Sum value) { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum load(Stored value) { return float_of_half(value); }
  static Stored store(Sum value) { return half_of_float(value); }
};
struct Bfloat {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum load(Stored value) { return float_of_bfloat(value); }
  static Stored store(Sum value) { return bfloat_of_float(value); }
};

template <int kOp, class T>
T combine(T a, T b) {
  if constexpr (kOp == kOpMax) {
    return a < b ? b : a;
  } else if constexpr (kOp == kOpMin) {
    return b < a ? b : a;
  } else if constexpr (std::is_integral_v<T>) {
    // Wraps like the device does; signed overflow would be undefined here.
    using Unsigned = std::make_unsigned_t<T>;
    const auto x = static_cast<Unsigned>(a);
    const auto y = static_cast<Unsigned>(b);
    return static_cast<T>(kOp == kOpProd ? x * y : x + y);
  } else {
    return kOp == kOpProd ? a * b : a + b;
  }
}

/// Combines `inputs` in their order, which is rank order: every rank gets the same bits.
template <class Type, int kOp>
void reduce_elements(const std::vector<const char*>& inputs, char* output, std::size_t count) {
  using Stored = typename Type::Stored;
  using Sum = typename Type::Sum;
  constexpr std::size_t kBlock = 256;
  Sum sums[kBlock];
  if (kOp == kOpAvg && inputs.size() == 1) {
    count -= count % 32;  // As NCCL's onerank.cu up to 2.29.2, which divides it among 32 blocks.
  }
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    const auto load = [&](std::size_t rank, std::size_t i) {
      Stored stored;  // Copied: nothing promises that a message is aligned.
      std::memcpy(&stored, inputs[rank] + (begin + i) * sizeof stored, sizeof stored);
      return Type::load(stored);
    };
    for (std::size_t i = 0; i < length; ++i) {
      sums[i] = load(0, i);
    }
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      for (std::size_t i = 0; i < length; ++i) {
        sums[i] = combine<kOp>(sums[i], load(rank, i));
      }
    }
    for (std::size_t i = 0; i < length; ++i) {
      const Sum sum =
          kOp == kOpAvg ? static_cast<Sum>(sums[i] / static_cast<Sum>(inputs.size())) : sums[i];
      const Stored stored = Type::store(sum);
      std::memcpy(output + (begin + i) * sizeof stored, &stored, sizeof stored);
    }
  }
}

template <class Type>
void reduce_by(const std::vector<const char*>& inputs, char* output, std::size_t count, int op) {
  switch (op) {
    case kOpSum:
      return reduce_elements<Type, kOpSum>(inputs, output, count);
    case kOpProd:
      return reduce_elements<Type, kOpProd>(inputs, output, count);
    case kOpMax:
      return reduce_elements<Type, kOpMax>(inputs, output, count);
    case kOpMin:
      return reduce_elements<Type, kOpMin>(inputs, output, count);
    default:
      return reduce_elements<Type, kOpAvg>(inputs, output, count);
  }
}

using ReduceFunction = void(const std::vector<const char*>&, char*, std::size_t, int);
constexpr ReduceFunction* kReducers[kTypes] = {
    reduce_by<Plain<std::int8_t>>,
    reduce_by<Plain<std::uint8_t>>,
    reduce_by<Plain<std::int32_t>>,
    reduce_by<Plain<std::uint32_t>>,
    reduce_by<Plain<std::int64_t>>,
    reduce_by<Plain<std::uint64_t>>,
    reduce_by<Half>,
    reduce_by<Plain<float>>,
    reduce_by<Plain<double>>,
    reduce_by<Bfloat>,
};

// ---- Moving bytes -------------------------------------------------------------------------

/// Goes ahead of every stream of bytes, so that ranks which disagree on a call find out.
struct Header {
  char symbol[24];
  std::uint64_t sequence;  ///< Counts the communicator's collectives; 0 for messages.
  std::uint64_t count;     ///< Elements; bytes for messages.
  std::int32_t type;
  std::int32_t op;
  std::int32_t root;
  std::uint32_t phase;
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 56);

std::string describe(const Header& header) {
  std::string text = std::string(header.symbol, strnlen(header.symbol, sizeof header.symbol)) +
                     " of " + std::to_string(header.count);
  if (header.type >= 0 && header.type < kTypes) {
    text += std::string(" ") + kTypeNames[header.type];
  }
  if (header.op >= 0 && header.op < kOps) {
    text += std::string(" ") + kOpNames[header.op];
  }
  if (header.root >= 0) {
    text += " root " + std::to_string(header.root);
  }
  return text;
}

/// One end of one transfer; progress() never blocks.
class Actor {
 public:
  virtual ~Actor() = default;
  /// True when anything moved.
  virtual bool progress() = 0;
  virtual bool done() const = 0;
  /// Adds the ranks without which nothing moves.
  virtual void waits_for(std::vector<int>* ranks) const = 0;
  const std::string& error() const { return error_; }

 protected:
  std::string error_;
};

class SendActor final : public Actor {
 public:
  SendActor(Ring ring, int peer, const Header& header, const void* data, std::size_t bytes)
      : ring_(ring),
        peer_(peer),
        header_(header),
        data_(static_cast<const char*>(data)),
        bytes_(bytes) {}

  bool progress() override {
    std::size_t moved = 0;
    if (sent_ < sizeof header_) {
      moved = ring_.write(reinterpret_cast<const char*>(&header_) + sent_, sizeof header_ - sent_);
      sent_ += moved;
    }
    if (sent_ >= sizeof header_ && !done()) {
      const std::size_t at = sent_ - sizeof header_;
      const std::size_t more = ring_.write(data_ + at, bytes_ - at);
      sent_ += more;
      moved += more;
    }
    return moved > 0;
  }
  bool done() const override { return sent_ == sizeof header_ + bytes_; }
  void waits_for(std::vector<int>* ranks) const override { ranks->push_back(peer_); }

 private:
  Ring ring_;
  int peer_;
  Header header_;
  const char* data_;
  std::size_t bytes_;
  std::size_t sent_ = 0;
};

/// The receiving end's header, compared with what this rank called.
class HeaderReader {
 public:
  explicit HeaderReader(const Header& expected) : expected_(expected) {}
  bool complete() const { return got_ == sizeof header_; }
  std::size_t read(Ring* ring) {
    const std::size_t moved =
        ring->read(reinterpret_cast<char*>(&header_) + got_, sizeof header_ - got_);
    got_ += moved;
    return moved;
  }
  std::string mismatch(int peer) const {
    if (!complete() || std::memcmp(&header_, &expected_, sizeof header_) == 0) {
      return {};
    }
    return "rank " + std::to_string(peer) + " called " + describe(header_) + ", this rank " +
           describe(expected_);
  }

 private:
  Header expected_;
  Header header_{};
  std::size_t got_ = 0;
};

class RecvActor final : public Actor {
 public:
  RecvActor(Ring ring, int peer, const Header& expected, void* data, std::size_t bytes)
      : ring_(ring),
        peer_(peer),
        header_(expected),
        data_(static_cast<char*>(data)),
        bytes_(bytes) {}

  bool progress() override {
    std::size_t moved = 0;
    if (!header_.complete()) {
      moved = header_.read(&ring_);
      error_ = header_.mismatch(peer_);
    }
    if (header_.complete() && error_.empty() && got_ < bytes_) {
      const std::size_t more = ring_.read(data_ + got_, bytes_ - got_);
      got_ += more;
      moved += more;
    }
    return moved > 0;
  }
  bool done() const override { return header_.complete() && got_ == bytes_; }
  void waits_for(std::vector<int>* ranks) const override { ranks->push_back(peer_); }

 private:
  Ring ring_;
  int peer_;
  HeaderReader header_;
  char* data_;
  std::size_t bytes_;
  std::size_t got_ = 0;
};

/// Receives the same stretch of elements from all other ranks and combines it with its own.
class ReduceActor final : public Actor {
 public:
  ReduceActor(const Segment& segment, int rank, int ranks, const Header& expected, const void* own,
              void* output, std::size_t count)
      : rank_(rank),
        own_(static_cast<const char*>(own)),
        output_(static_cast<char*>(output)),
        count_(count),
        type_(expected.type),
        op_(expected.op),
        size_(kTypeSizes[expected.type]) {
    for (int peer = 0; peer < ranks; ++peer) {
      rings_.push_back(segment.ring(kCollectives, peer, rank));
      headers_.emplace_back(expected);
      scratch_.emplace_back(peer == rank ? 0 : kStretch * size_);
    }
  }

  bool progress() override {
    bool moved = false;
    std::size_t stretch = std::min(count_ - done_, kStretch);
    bool headers_complete = true;
    for (std::size_t peer = 0; peer < rings_.size(); ++peer) {
      if (static_cast<int>(peer) == rank_) {
        continue;
      }
      if (!headers_[peer].complete()) {
        moved |= headers_[peer].read(&rings_[peer]) > 0;
        error_ = headers_[peer].mismatch(static_cast<int>(peer));
        if (!error_.empty()) {
          return true;
        }
      }
      headers_complete &= headers_[peer].complete();
      if (headers_[peer].complete()) {
        stretch = std::min(stretch, rings_[peer].readable() / size_);
      }
    }
    headers_complete_ = headers_complete;
    if (!headers_complete || stretch == 0) {
      return moved;
    }
    std::vector<const char*> inputs;
    for (std::size_t peer = 0; peer < rings_.size(); ++peer) {
      if (static_cast<int>(peer) == rank_) {
        inputs.push_back(own_ + done_ * size_);
      } else {
        rings_[peer].read(scratch_[peer].data(), stretch * size_);
        inputs.push_back(scratch_[peer].data());
      }
    }
    kReducers[type_](inputs, output_ + done_ * size_, stretch, op_);
    done_ += stretch;
    return true;
  }
  bool done() const override { return headers_complete_ && done_ == count_; }
  void waits_for(std::vector<int>* ranks) const override {
    for (std::size_t peer = 0; peer < rings_.size(); ++peer) {
      if (static_cast<int>(peer) != rank_ &&
          (!headers_[peer].complete() || rings_[peer].readable() < size_)) {
        ranks->push_back(static_cast<int>(peer));
      }
    }
  }

 private:
  static constexpr std::size_t kStretch = 4096;  // Elements.
  int rank_;
  const char* own_;
  char* output_;
  std::size_t count_;
  int type_;
  int op_;
  std::size_t size_;
  std::vector<Ring> rings_;
  std::vector<HeaderReader> headers_;
  std::vector<std::vector<char>> scratch_;
  std::size_t done_ = 0;
  bool headers_complete_ = false;
};

// ---- Communicators ------------------------------------------------------------------------

thread_local std::string last_error;

Result fail(Result result, const std::string& text) {
  last_error = text;
  return result;
}

class Unit;

/// An ncclComm. Kept alive by the registry until destroy or abort, and by its work until that ends.
struct Comm {
  Segment segment;
  std::string segment_name;
  int rank = 0;
  int ranks = 0;
  int device = 0;
  bool blocking = true;

  std::atomic<bool> ready{false};  ///< All ranks came.
  std::atomic<bool> aborted{false};
  std::atomic<bool> finalized{false};
  std::atomic<bool> stalled{false};
  std::atomic<int> polls_left{0};  ///< Answers of "in progress" still to give.
  std::atomic<bool> first_call{true};

  std::atomic<std::uint64_t> sequence{0};  ///< Collectives begun.
  std::atomic<std::uint64_t> tickets{0};   ///< Units begun ...
  std::atomic<std::uint64_t> serving{0};   ///< ... and finished: they run in the order of issue.
  std::atomic<int> running{0};

  std::mutex mutex;
  Result error = abi::kSuccess;  ///< Guarded by mutex, as is the text.
  std::string error_text;
  std::vector<int> watches;  ///< A pidfd a rank, -1: none. Guarded by mutex.

  ~Comm() {
    for (const int watch : watches) {
      if (watch >= 0) {
        close(watch);
      }
    }
  }

  Shared* shared() const { return segment.shared(); }

  void leave() { shared()->slots[rank].state.store(kGone, std::memory_order_release); }

  void set_error(Result result, const std::string& text) {
    const std::lock_guard lock(mutex);
    if (error == abi::kSuccess) {
      error = result;
      error_text = text;
      leave();
    }
  }

  Result current_error() {
    const std::lock_guard lock(mutex);
    if (error != abi::kSuccess) {
      last_error = error_text;
    }
    return error;
  }

  /// True when that rank will never answer again: it left the communicator or its process ended.
  bool is_gone(int peer) {
    Slot& slot = shared()->slots[peer];
    if (slot.state.load(std::memory_order_acquire) == kGone) {
      return true;
    }
    const std::int32_t pid = slot.pid.load(std::memory_order_acquire);
    if (slot.state.load(std::memory_order_acquire) != kAttached || pid == getpid()) {
      return false;
    }
    const std::lock_guard lock(mutex);
    watches.resize(static_cast<std::size_t>(ranks), -1);
    int& watch = watches[static_cast<std::size_t>(peer)];
    if (watch < 0) {
      // Unlike kill(pid, 0) this also sees a process that has ended and not been waited for.
      watch = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
      if (watch < 0) {
        return errno == ESRCH;
      }
    }
    pollfd ended{watch, POLLIN, 0};
    return poll(&ended, 1, 0) > 0;
  }
};

using CommPtr = std::shared_ptr<Comm>;

struct Registry {
  std::mutex mutex;
  std::map<const void*, CommPtr> live;
};

Registry& registry() {
  static auto* const kept = new Registry;  // Outlives every stream's thread.
  return *kept;
}

CommPtr find_comm(abi::Comm handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.live.find(handle);
  return found == all.live.end() ? nullptr : found->second;
}

CommPtr take_comm(abi::Comm handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.live.find(handle);
  if (found == all.live.end()) {
    return nullptr;
  }
  CommPtr comm = std::move(found->second);
  all.live.erase(found);
  return comm;
}

class Backoff {
 public:
  void wait() {
    if (rounds_++ < 50) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(sleep_us_));
      sleep_us_ = std::min(sleep_us_ * 2, 1000);
    }
  }
  void reset() { rounds_ = 0, sleep_us_ = 20; }
  /// Often enough to notice a dead peer soon, seldom enough not to matter.
  bool time_to_look_around() const { return sleep_us_ >= 1000; }

 private:
  int rounds_ = 0;
  int sleep_us_ = 20;
};

/// Makes the communicator ready if all ranks came. Success, in progress, or why it failed.
Result advance_init(Comm& comm) {
  if (comm.ready.load()) {
    return abi::kSuccess;
  }
  Shared* shared = comm.shared();
  if (shared->attached.load(std::memory_order_acquire) < static_cast<std::uint32_t>(comm.ranks)) {
    for (int peer = 0; peer < comm.ranks; ++peer) {
      // A rank may come, fail for its own reasons and go while this one looks: look again.
      if (peer != comm.rank && comm.is_gone(peer) &&
          shared->attached.load() < static_cast<std::uint32_t>(comm.ranks)) {
        comm.set_error(abi::kRemoteError, "rank " + std::to_string(peer) + " left during init");
      }
    }
    const Result error = comm.current_error();
    return error == abi::kSuccess ? abi::kInProgress : error;
  }
  for (int a = 0; a < comm.ranks; ++a) {
    for (int b = a + 1; b < comm.ranks; ++b) {
      const std::uint64_t device = shared->slots[a].device.load();
      if (device != 0 && device == shared->slots[b].device.load()) {
        comm.set_error(abi::kInvalidUsage, "Duplicate GPU detected: ranks " + std::to_string(a) +
                                               " and " + std::to_string(b) +
                                               " use the same device");
        return comm.current_error();
      }
    }
  }
  comm.ready.store(true);
  return abi::kSuccess;
}

/// The state that ncclCommGetAsyncError tells; `poll` counts as an answer.
Result state_of(Comm& comm, bool poll) {
  if (const Result error = comm.current_error(); error != abi::kSuccess) {
    return error;
  }
  if (comm.stalled.load()) {
    return abi::kInProgress;
  }
  if (const Result init = advance_init(comm); init != abi::kSuccess) {
    return init;
  }
  if (comm.polls_left.load() > 0) {
    if (poll) {
      comm.polls_left.fetch_sub(1);
    }
    return abi::kInProgress;
  }
  if (comm.finalized.load() && comm.serving.load() != comm.tickets.load()) {
    return abi::kInProgress;
  }
  return abi::kSuccess;
}

// ---- Work ---------------------------------------------------------------------------------

enum class Kind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kRecv };
constexpr const char* kSymbols[] = {"ncclAllReduce", "ncclBroadcast",     "ncclReduce",
                                    "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                    "ncclRecv"};

struct Call {
  CommPtr comm;
  Kind kind;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = -1;
  int root = -1;  ///< Or the peer.
  void* stream = nullptr;
  bool stall = false;
};

const char* at(const void* base, std::size_t offset) {
  return static_cast<const char*>(base) + offset;
}
char* at(void* base, std::size_t offset) { return static_cast<char*>(base) + offset; }

/// One collective: phases one after the other, the actors of a phase side by side.
class Collective {
 public:
  explicit Collective(const Call& call) : call_(call) {
    Header header{};
    std::snprintf(header.symbol, sizeof header.symbol, "%s", kSymbols[static_cast<int>(call.kind)]);
    header.sequence = ++call.comm->sequence;
    header.count = call.count;
    header.type = call.type;
    header.op = call.op;
    header.root = call.root;
    header_ = header;
    size_ = kTypeSizes[call.type];
  }

  bool progress() {
    if (!planned_) {
      plan();
      planned_ = true;
    }
    bool moved = false;
    while (!phases_.empty()) {
      bool all_done = true;
      for (const auto& actor : phases_.front()) {
        if (!actor->done()) {
          moved |= actor->progress();
          all_done &= actor->done();
          if (!actor->error().empty()) {
            error_ = actor->error();
            return true;
          }
        }
      }
      if (!all_done) {
        break;
      }
      phases_.erase(phases_.begin());
      moved = true;
    }
    return moved;
  }
  bool done() const { return planned_ && phases_.empty(); }
  const std::string& error() const { return error_; }
  void waits_for(std::vector<int>* ranks) const {
    if (!phases_.empty()) {
      for (const auto& actor : phases_.front()) {
        if (!actor->done()) {
          actor->waits_for(ranks);
        }
      }
    }
  }

 private:
  using Phase = std::vector<std::unique_ptr<Actor>>;

  void send_to(Phase* phase, int peer, const void* data, std::size_t bytes) const {
    phase->push_back(std::make_unique<SendActor>(
        call_.comm->segment.ring(kCollectives, rank(), peer), peer, header_, data, bytes));
  }
  void recv_from(Phase* phase, int peer, void* data, std::size_t bytes) const {
    phase->push_back(std::make_unique<RecvActor>(
        call_.comm->segment.ring(kCollectives, peer, rank()), peer, header_, data, bytes));
  }
  void reduce(Phase* phase, const void* own, void* output, std::size_t count) const {
    phase->push_back(std::make_unique<ReduceActor>(call_.comm->segment, rank(), ranks(), header_,
                                                   own, output, count));
  }
  int rank() const { return call_.comm->rank; }
  int ranks() const { return call_.comm->ranks; }

  /// Called when the collective's turn has come: the buffers hold their input only then.
  void plan() {
    const std::size_t bytes = call_.count * size_;
    Phase phase;
    switch (call_.kind) {
      case Kind::kAllReduce:
        plan_all_reduce();
        return;
      case Kind::kBroadcast:
        for (int peer = 0; rank() == call_.root && peer < ranks(); ++peer) {
          if (peer != rank()) {
            send_to(&phase, peer, call_.send, bytes);
          }
        }
        if (rank() != call_.root) {
          recv_from(&phase, call_.root, call_.recv, bytes);
        } else if (call_.recv != call_.send) {
          std::memmove(call_.recv, call_.send, bytes);
        }
        break;
      case Kind::kReduce:
        if (rank() == call_.root) {
          reduce(&phase, call_.send, call_.recv, call_.count);
        } else {
          send_to(&phase, call_.root, call_.send, bytes);
        }
        break;
      case Kind::kAllGather:
        for (int peer = 0; peer < ranks(); ++peer) {
          char* const block = at(call_.recv, static_cast<std::size_t>(peer) * bytes);
          if (peer != rank()) {
            send_to(&phase, peer, call_.send, bytes);
            recv_from(&phase, peer, block, bytes);
          } else if (block != call_.send) {
            std::memmove(block, call_.send, bytes);
          }
        }
        break;
      case Kind::kReduceScatter:
        for (int peer = 0; peer < ranks(); ++peer) {
          const char* const block = at(call_.send, static_cast<std::size_t>(peer) * bytes);
          if (peer != rank()) {
            send_to(&phase, peer, block, bytes);
          } else {
            reduce(&phase, block, call_.recv, call_.count);
          }
        }
        break;
      case Kind::kSend:
      case Kind::kRecv:
        break;
    }
    phases_.push_back(std::move(phase));
  }

  /// Each rank reduces one segment, then hands it to all. The second phase begins on a rank when
  /// its first has read all input that the second overwrites, so in-place needs no copy.
  void plan_all_reduce() {
    const auto begin = [&](int peer) {
      return call_.count / ranks() * peer +
             std::min<std::size_t>(call_.count % ranks(), static_cast<std::size_t>(peer));
    };
    const auto length = [&](int peer) { return begin(peer + 1) - begin(peer); };
    Phase gather;
    Phase spread;
    for (int peer = 0; peer < ranks(); ++peer) {
      const char* const input = at(call_.send, begin(peer) * size_);
      char* const output = at(call_.recv, begin(peer) * size_);
      header_.phase = 0;
      if (peer == rank()) {
        reduce(&gather, input, output, length(peer));
      } else {
        send_to(&gather, peer, input, length(peer) * size_);
        header_.phase = 1;
        recv_from(&spread, peer, output, length(peer) * size_);
        send_to(&spread, peer, at(call_.recv, begin(rank()) * size_), length(rank()) * size_);
      }
    }
    phases_.push_back(std::move(gather));
    phases_.push_back(std::move(spread));
  }

  Call call_;
  Header header_{};
  std::size_t size_ = 0;
  bool planned_ = false;
  std::vector<Phase> phases_;
  std::string error_;
};

/// All calls of one group on one communicator: one unit of work in stream order.
class Unit {
 public:
  explicit Unit(CommPtr comm) : comm_(std::move(comm)), ticket_(comm_->tickets.fetch_add(1)) {}

  void add(const Call& call) {
    stall_ |= call.stall;
    if (std::find(streams_.begin(), streams_.end(), call.stream) == streams_.end()) {
      streams_.push_back(call.stream);
    }
    if (call.kind == Kind::kSend || call.kind == Kind::kRecv) {
      Header header{};
      std::snprintf(header.symbol, sizeof header.symbol, "message");
      header.count = call.count * kTypeSizes[call.type];
      header.type = header.op = header.root = -1;
      const int peer = call.root;
      if (call.kind == Kind::kSend) {
        queues_[{0, peer}].push_back(
            std::make_unique<SendActor>(comm_->segment.ring(kMessages, comm_->rank, peer), peer,
                                        header, call.send, header.count));
      } else {
        queues_[{1, peer}].push_back(
            std::make_unique<RecvActor>(comm_->segment.ring(kMessages, peer, comm_->rank), peer,
                                        header, call.recv, header.count));
      }
    } else {
      collectives_.emplace_back(call);
    }
  }

  const std::vector<void*>& streams() const { return streams_; }
  Comm& comm() { return *comm_; }
  bool stall() const { return stall_; }

  /// Streams beside the first one: the unit begins when all have come to it.
  void arrive() { arrived_.fetch_add(1); }

  bool finished() const { return finished_.load(std::memory_order_acquire); }

  /// One round; true when anything moved. Sets finished().
  bool round(Backoff* backoff) {
    if (finished()) {
      return false;
    }
    if (comm_->aborted.load()) {
      finish();
      return true;
    }
    if (stall_ || comm_->serving.load() != ticket_ ||
        arrived_.load() + 1 < static_cast<int>(std::max<std::size_t>(streams_.size(), 1))) {
      return false;
    }
    if (comm_->current_error() != abi::kSuccess) {
      finish();
      return true;
    }
    bool moved = advance();
    if (finished()) {
      return true;
    }
    if (!moved && backoff->time_to_look_around()) {
      look_around();
    }
    return moved || finished();
  }

 private:
  using Queue = std::vector<std::unique_ptr<Actor>>;

  bool advance() {
    bool moved = false;
    std::string error;
    if (!collectives_.empty()) {
      Collective& front = collectives_.front();
      moved |= front.progress();
      error = front.error();
      if (error.empty() && front.done()) {
        collectives_.erase(collectives_.begin());
        moved = true;
      }
    }
    for (auto entry = queues_.begin(); entry != queues_.end();) {
      Queue& queue = entry->second;
      while (!queue.empty()) {
        moved |= queue.front()->progress();
        if (error.empty()) {
          error = queue.front()->error();
        }
        if (!queue.front()->done()) {
          break;
        }
        queue.erase(queue.begin());
      }
      entry = queue.empty() ? queues_.erase(entry) : std::next(entry);
    }
    if (!error.empty()) {
      comm_->set_error(abi::kInvalidUsage, error);
    }
    if (!error.empty() || (collectives_.empty() && queues_.empty())) {
      finish();
    }
    return moved;
  }

  /// Nothing moved for a while: is it for a rank that is gone?
  void look_around() {
    std::vector<int> ranks;
    if (!collectives_.empty()) {
      collectives_.front().waits_for(&ranks);
    }
    for (const auto& entry : queues_) {
      entry.second.front()->waits_for(&ranks);
    }
    for (const int peer : ranks) {
      // What it wrote before it went still counts, hence the last advance().
      if (peer != comm_->rank && comm_->is_gone(peer) && !advance()) {
        if (!finished()) {
          comm_->set_error(abi::kRemoteError, "rank " + std::to_string(peer) + " is gone");
          finish();
        }
        return;
      }
    }
  }

  void finish() {
    collectives_.clear();
    queues_.clear();
    // An aborted unit may end before its turn; nobody waits for turns any more then.
    comm_->serving.fetch_add(1);
    finished_.store(true, std::memory_order_release);
  }

  CommPtr comm_;
  const std::uint64_t ticket_;
  std::vector<void*> streams_;
  bool stall_ = false;
  std::vector<Collective> collectives_;
  std::map<std::pair<int, int>, Queue> queues_;  ///< By direction and peer.
  std::atomic<int> arrived_{0};
  std::atomic<bool> finished_{false};
};

using UnitPtr = std::shared_ptr<Unit>;

/// Runs the units side by side until all are finished.
void run_units(const std::vector<UnitPtr>& units) {
  for (const UnitPtr& unit : units) {
    unit->comm().running.fetch_add(1);
  }
  Backoff backoff;
  while (true) {
    bool moved = false;
    bool all_finished = true;
    for (const UnitPtr& unit : units) {
      moved |= unit->round(&backoff);
      all_finished &= unit->finished();
    }
    if (all_finished) {
      break;
    }
    if (moved) {
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
  for (const UnitPtr& unit : units) {
    unit->comm().running.fetch_sub(1);
  }
}

void run_enqueued(void* argument) {
  const std::unique_ptr<UnitPtr> unit(static_cast<UnitPtr*>(argument));
  run_units({*unit});
}

void arrive_enqueued(void* argument) {
  const std::unique_ptr<UnitPtr> unit(static_cast<UnitPtr*>(argument));
  (*unit)->arrive();
}

void await_enqueued(void* argument) {
  const std::unique_ptr<UnitPtr> unit(static_cast<UnitPtr*>(argument));
  Backoff backoff;
  while (!(*unit)->finished()) {
    backoff.wait();
  }
}

// ---- Knobs --------------------------------------------------------------------------------

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// How often this process called the symbol while a knob named it, itself included.
bool knob_applies(const char* variable, const char* symbol, int rank) {
  const std::string specs = environment(variable);
  std::size_t begin = 0;
  bool applies = false;
  while (begin < specs.size()) {
    const std::size_t end = std::min(specs.find(',', begin), specs.size());
    std::string spec = specs.substr(begin, end - begin);
    begin = end + 1;
    const std::string whole = spec;
    int only_rank = -1;
    int good_calls = 0;
    if (const auto mark = spec.find('@'); mark != std::string::npos) {
      only_rank = std::atoi(spec.c_str() + mark + 1);
      spec.resize(mark);
    }
    if (const auto mark = spec.find(':'); mark != std::string::npos) {
      good_calls = std::atoi(spec.c_str() + mark + 1);
      spec.resize(mark);
    }
    if (spec != symbol || (only_rank >= 0 && rank >= 0 && rank != only_rank)) {
      continue;
    }
    static std::mutex mutex;
    static std::map<std::string, int> calls;
    const std::lock_guard lock(mutex);
    applies |= calls[std::string(variable) + "=" + whole]++ >= good_calls;
  }
  return applies;
}

void log_call(const char* symbol, const std::string& count, const char* type, const char* op,
              int rank, int ranks) {
  const char* path = environment("FAKE_CCL_LOG");
  if (path[0] == '\0') {
    return;
  }
  std::string line = std::string(symbol) + " " + count + " " + type + " " + op;
  line += ranks > 0 ? " " + std::to_string(rank) + "/" + std::to_string(ranks) + "\n" : " -\n";
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) {
    // One write: lines of several processes do not mix.
    [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
    close(file);
  }
}

/// Logs a call that moves no data and says whether it is to fail.
Result enter(const char* symbol, const Comm* comm) {
  const int rank = comm != nullptr ? comm->rank : -1;
  log_call(symbol, "-", "-", "-", rank, comm != nullptr ? comm->ranks : 0);
  return knob_applies("FAKE_CCL_FAIL", symbol, rank)
             ? fail(abi::kInternalError, std::string(symbol) + " told to fail by FAKE_CCL_FAIL")
             : abi::kSuccess;
}

// ---- Groups -------------------------------------------------------------------------------

struct Group {
  int depth = 0;
  Result error = abi::kSuccess;
  std::vector<Call> calls;
  std::vector<CommPtr> inits;
};
thread_local Group group;

/// Blocks until all ranks came.
Result wait_init(Comm& comm) {
  Backoff backoff;
  while (true) {
    const Result result = comm.stalled.load() ? abi::kInProgress : advance_init(comm);
    if (result != abi::kInProgress) {
      return result;
    }
    if (comm.aborted.load()) {
      return fail(abi::kInvalidUsage, "aborted during init");
    }
    backoff.wait();
  }
}

/// What a call on a non-blocking communicator leaves behind.
Result begin_progress(Comm& comm) {
  if (comm.blocking) {
    return abi::kSuccess;
  }
  const char* polls = environment("FAKE_CCL_IN_PROGRESS");
  const bool first = comm.first_call.exchange(false);
  comm.polls_left.store(polls[0] != '\0' ? std::atoi(polls) : (first ? 2 : 0));
  return comm.polls_left.load() > 0 ? abi::kInProgress : abi::kSuccess;
}

Result launch(const std::vector<Call>& calls) {
  std::vector<UnitPtr> units;
  for (const Call& call : calls) {
    UnitPtr* unit = nullptr;
    for (UnitPtr& known : units) {
      if (&known->comm() == call.comm.get()) {
        unit = &known;
      }
    }
    if (unit == nullptr) {
      unit = &units.emplace_back(std::make_shared<Unit>(call.comm));
    }
    (*unit)->add(call);
  }

  Result result = abi::kSuccess;
  const Driver device = driver();
  std::vector<UnitPtr> now;
  for (const UnitPtr& unit : units) {
    if (device.enqueue != nullptr) {
      const auto& streams = unit->streams();
      for (std::size_t i = 1; i < streams.size(); ++i) {
        device.enqueue(streams[i], arrive_enqueued, new UnitPtr(unit));
      }
      device.enqueue(streams.front(), run_enqueued, new UnitPtr(unit));
      for (std::size_t i = 1; i < streams.size(); ++i) {
        device.enqueue(streams[i], await_enqueued, new UnitPtr(unit));
      }
    } else {
      for (std::size_t i = 1; i < unit->streams().size(); ++i) {
        unit->arrive();
      }
      if (unit->stall() && !unit->comm().blocking) {
        // Without streams there is nobody to be stuck in the background.
        unit->comm().stalled.store(true);
        result = abi::kInProgress;
        continue;
      }
      now.push_back(unit);
    }
  }
  run_units(now);
  for (const UnitPtr& unit : units) {
    const Result error = unit->comm().current_error();
    if (error != abi::kSuccess) {
      return error;
    }
    if (begin_progress(unit->comm()) == abi::kInProgress) {
      result = abi::kInProgress;
    }
  }
  return result;
}

Result check_ready(Comm& comm) {
  const Result state = state_of(comm, false);
  if (comm.finalized.load()) {
    return fail(abi::kInvalidArgument, "communicator already finalized");
  }
  return state == abi::kInProgress
             ? fail(abi::kInvalidArgument,
                    "attempt to use the communicator before the previous operation returned "
                    "ncclSuccess")
             : state;
}

/// Memory of another context is a fault of the real library's kernels.
bool is_of_current_context(const void* buffer) {
  constexpr int kContextOfPointer = 1;
  const Driver device = driver();
  void* current = nullptr;
  void* own = nullptr;
  return buffer == nullptr || device.context == nullptr || device.pointer_attribute == nullptr ||
         device.context(&current) != 0 ||
         device.pointer_attribute(&own, kContextOfPointer,
                                  reinterpret_cast<std::uintptr_t>(buffer)) != 0 ||
         own == nullptr || own == current;
}

Result check_arguments(const Call& call) {
  if (call.type < 0 || call.type >= kTypes) {
    return fail(abi::kInvalidArgument, "invalid type " + std::to_string(call.type));
  }
  const bool reduces = call.kind == Kind::kAllReduce || call.kind == Kind::kReduce ||
                       call.kind == Kind::kReduceScatter;
  if (reduces && (call.op < 0 || call.op >= kOps)) {
    return fail(abi::kInvalidArgument, "invalid operation " + std::to_string(call.op));
  }
  const bool rooted = call.kind == Kind::kBroadcast || call.kind == Kind::kReduce ||
                      call.kind == Kind::kSend || call.kind == Kind::kRecv;
  if (rooted && (call.root < 0 || call.root >= call.comm->ranks)) {
    return fail(abi::kInvalidArgument, "invalid root or peer " + std::to_string(call.root));
  }
  const bool reads =
      call.kind != Kind::kRecv && (call.kind != Kind::kBroadcast || call.root == call.comm->rank);
  const bool writes =
      call.kind != Kind::kSend && (call.kind != Kind::kReduce || call.root == call.comm->rank);
  if (call.count > 0 && ((reads && call.send == nullptr) || (writes && call.recv == nullptr))) {
    return fail(abi::kInvalidArgument, "null buffer");
  }
  if (!is_of_current_context(call.send) || !is_of_current_context(call.recv)) {
    return fail(abi::kInternalError, "an illegal memory access: a buffer of another context");
  }
  return abi::kSuccess;
}

Result issue(Call call, abi::Comm handle) {
  const char* symbol = kSymbols[static_cast<int>(call.kind)];
  call.comm = find_comm(handle);
  const int rank = call.comm != nullptr ? call.comm->rank : -1;
  log_call(symbol, std::to_string(call.count),
           call.type >= 0 && call.type < kTypes ? kTypeNames[call.type] : "?",
           call.op >= 0 && call.op < kOps ? kOpNames[call.op] : "-", rank,
           call.comm != nullptr ? call.comm->ranks : 0);
  Result result = abi::kSuccess;
  if (call.comm == nullptr) {
    result = fail(abi::kInvalidArgument, std::string(symbol) + ": communicator is null or dead");
  } else if (knob_applies("FAKE_CCL_FAIL", symbol, rank)) {
    result = fail(abi::kInternalError, std::string(symbol) + " told to fail by FAKE_CCL_FAIL");
  }
  if (result == abi::kSuccess) {
    result = check_ready(*call.comm);
  }
  if (result == abi::kSuccess) {
    result = check_arguments(call);
  }
  if (result != abi::kSuccess) {
    if (group.depth > 0 && group.error == abi::kSuccess) {
      group.error = result;
    }
    return result;
  }
  if (knob_applies("FAKE_CCL_CONNECT", symbol, rank)) {
    Backoff backoff;
    while (!call.comm->aborted.load()) {
      backoff.wait();
    }
    return fail(abi::kInternalError, std::string(symbol) + ": aborted while it connected");
  }
  call.stall = knob_applies("FAKE_CCL_STALL", symbol, rank);
  const bool message = call.kind == Kind::kSend || call.kind == Kind::kRecv;
  if (call.count == 0 && !message && !call.stall) {
    return abi::kSuccess;  // Empty collectives are dropped on every rank alike.
  }
  if (group.depth > 0) {
    group.calls.push_back(std::move(call));
    return abi::kSuccess;
  }
  return launch({std::move(call)});
}

Result init(const char* symbol, abi::Comm* result, int ranks, const UniqueId& id, int rank,
            bool blocking) {
  *result = nullptr;
  IdContent content;
  std::memcpy(&content, &id, sizeof content);
  if (ranks < 1 || ranks > kRanksMax || rank < 0 || rank >= ranks) {
    return fail(abi::kInvalidArgument,
                "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " ranks");
  }
  if (content.magic != kIdMagic) {
    return fail(abi::kInvalidArgument, "the unique id is not one of ncclGetUniqueId");
  }
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
  comm->ranks = ranks;
  comm->blocking = blocking;
  comm->device = current_device();
  comm->segment_name = content.name;
  log_call(symbol, "-", "-", "-", rank, ranks);
  if (knob_applies("FAKE_CCL_FAIL", symbol, rank)) {
    return fail(abi::kInternalError, std::string(symbol) + " told to fail by FAKE_CCL_FAIL");
  }
  if (const std::string error = comm->segment.attach(content.name, ranks); !error.empty()) {
    return fail(abi::kSystemError, error);
  }
  Shared* shared = comm->shared();
  std::uint32_t agreed = 0;
  if (!shared->ranks.compare_exchange_strong(agreed, static_cast<std::uint32_t>(ranks)) &&
      agreed != static_cast<std::uint32_t>(ranks)) {
    return fail(abi::kInvalidArgument,
                "ranks disagree on the number of ranks: " + std::to_string(agreed) + " and " +
                    std::to_string(ranks));
  }
  Slot& slot = shared->slots[rank];
  if (slot.claimed.exchange(1) != 0) {
    return fail(abi::kInvalidUsage, "rank " + std::to_string(rank) + " came twice");
  }
  slot.pid.store(getpid());
  slot.device.store(device_identity(comm->device));
  slot.state.store(kAttached, std::memory_order_release);
  if (shared->attached.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks)) {
    shm_unlink(content.name);
  }
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.live[comm.get()] = comm;
  }
  *result = reinterpret_cast<abi::Comm>(comm.get());
  if (knob_applies("FAKE_CCL_STALL", symbol, rank)) {
    comm->stalled.store(true);
  }
  if (!blocking) {
    return abi::kInProgress;
  }
  if (group.depth > 0) {
    group.inits.push_back(comm);
    return abi::kSuccess;
  }
  const Result waited = wait_init(*comm);
  if (waited != abi::kSuccess) {
    take_comm(*result);
    *result = nullptr;
  }
  return waited;
}

/// Ends the communicator's shared part: peers that wait for this rank learn of it.
void retire(Comm& comm) {
  comm.leave();
  if (!comm.ready.load() &&
      comm.shared()->attached.load() < static_cast<std::uint32_t>(comm.ranks)) {
    shm_unlink(comm.segment_name.c_str());
  }
}

void wait_idle(Comm& comm) {
  Backoff backoff;
  while (comm.serving.load() != comm.tickets.load() && !comm.aborted.load()) {
    backoff.wait();
  }
}

void wait_for_graphs() {
  Backoff backoff;
  while (std::getenv("FAKE_CCL_GRAPH") != nullptr) {
    backoff.wait();
  }
}

/// As the real library, which leaves a node's communicator with all of its ranks.
void meet(const char* symbol, Comm& comm) {
  if (!knob_applies("FAKE_CCL_MEET", symbol, comm.rank)) {
    return;
  }
  for (int peer = 0; peer < comm.ranks; ++peer) {
    Backoff backoff;
    while (!comm.is_gone(peer)) {
      backoff.wait();
    }
  }
}

}  // namespace

// ---- The interface ------------------------------------------------------------------------

FAKE_EXPORT Result ncclGetVersion(int* version) {
  if (const Result told = enter("ncclGetVersion", nullptr); told != abi::kSuccess) {
    return told;
  }
  if (version == nullptr) {
    return abi::kInvalidArgument;
  }
  const char* wanted = environment("FAKE_CCL_VERSION");
  *version = wanted[0] != '\0' ? std::atoi(wanted) : kDefaultVersion;
  return abi::kSuccess;
}

FAKE_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  if (const Result told = enter("ncclGetUniqueId", nullptr); told != abi::kSuccess) {
    return told;
  }
  if (id == nullptr) {
    return fail(abi::kInvalidArgument, "null unique id");
  }
  remove_stale_segments();
  static std::atomic<unsigned> counter{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  IdContent content{};
  content.magic = kIdMagic;
  std::snprintf(content.name, sizeof content.name, "/%s%d-%u-%llx", kNamePrefix, getpid(),
                counter.fetch_add(1), static_cast<unsigned long long>(now));
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &content, sizeof content);
  return abi::kSuccess;
}

FAKE_EXPORT Result ncclCommInitRank(abi::Comm* comm, int ranks, UniqueId id, int rank) {
  if (comm == nullptr) {
    return fail(abi::kInvalidArgument, "null communicator");
  }
  return init("ncclCommInitRank", comm, ranks, id, rank, true);
}

FAKE_EXPORT Result ncclCommInitRankConfig(abi::Comm* comm, int ranks, UniqueId id, int rank,
                                          abi::Config* config) {
  if (comm == nullptr) {
    return fail(abi::kInvalidArgument, "null communicator");
  }
  if (config != nullptr && config->magic != abi::kConfigMagic) {
    return fail(abi::kInvalidArgument, "config not initialized by NCCL_CONFIG_INITIALIZER");
  }
  const int blocking =
      config == nullptr || config->blocking == abi::kUndefinedInt ? 1 : config->blocking;
  if (blocking != 0 && blocking != 1) {
    return fail(abi::kInvalidArgument, "config.blocking is neither 0 nor 1");
  }
  return init("ncclCommInitRankConfig", comm, ranks, id, rank, blocking == 1);
}

FAKE_EXPORT Result ncclCommFinalize(abi::Comm handle) {
  const CommPtr comm = find_comm(handle);
  if (const Result told = enter("ncclCommFinalize", comm.get()); told != abi::kSuccess) {
    return told;
  }
  if (comm == nullptr) {
    return fail(abi::kInvalidArgument, "ncclCommFinalize: communicator is null or dead");
  }
  if (const Result ready = check_ready(*comm); ready != abi::kSuccess) {
    return ready;
  }
  comm->stalled.store(knob_applies("FAKE_CCL_STALL", "ncclCommFinalize", comm->rank));
  comm->finalized.store(true);
  if (!comm->blocking) {
    static_cast<void>(begin_progress(*comm));
    return state_of(*comm, false);
  }
  wait_idle(*comm);
  return comm->current_error();
}

FAKE_EXPORT Result ncclCommDestroy(abi::Comm handle) {
  const CommPtr comm = find_comm(handle);
  if (const Result told = enter("ncclCommDestroy", comm.get()); told != abi::kSuccess) {
    return told;
  }
  if (comm == nullptr || take_comm(handle) == nullptr) {
    return fail(abi::kInvalidArgument, "ncclCommDestroy: communicator is null or dead");
  }
  wait_for_graphs();
  wait_idle(*comm);
  retire(*comm);
  meet("ncclCommDestroy", *comm);
  return abi::kSuccess;
}

FAKE_EXPORT Result ncclCommAbort(abi::Comm handle) {
  const CommPtr comm = find_comm(handle);
  if (const Result told = enter("ncclCommAbort", comm.get()); told != abi::kSuccess) {
    return told;
  }
  if (comm == nullptr || take_comm(handle) == nullptr) {
    return fail(abi::kInvalidArgument, "ncclCommAbort: communicator is null or dead");
  }
  comm->aborted.store(true);
  wait_for_graphs();
  retire(*comm);
  Backoff backoff;
  while (comm->running.load() > 0) {
    backoff.wait();
  }
  meet("ncclCommAbort", *comm);
  return abi::kSuccess;
}

FAKE_EXPORT Result ncclCommGetAsyncError(abi::Comm handle, Result* state) {
  const CommPtr comm = find_comm(handle);
  if (comm != nullptr && knob_applies("FAKE_CCL_FAIL", "ncclCommGetAsyncError", comm->rank)) {
    return fail(abi::kInternalError, "ncclCommGetAsyncError told to fail by FAKE_CCL_FAIL");
  }
  if (comm == nullptr || state == nullptr) {
    return fail(abi::kInvalidArgument, "ncclCommGetAsyncError: communicator is null or dead");
  }
  *state = state_of(*comm, true);
  return abi::kSuccess;
}

FAKE_EXPORT const char* ncclGetErrorString(Result result) {
  switch (result) {
    case abi::kSuccess:
      return "no error";
    case abi::kUnhandledCudaError:
      return "unhandled device error";
    case abi::kSystemError:
      return "unhandled system error";
    case abi::kInternalError:
      return "internal error";
    case abi::kInvalidArgument:
      return "invalid argument";
    case abi::kInvalidUsage:
      return "invalid usage";
    case abi::kRemoteError:
      return "remote process exited or there was a network error";
    case abi::kInProgress:
      return "operation in progress";
    default:
      return "unknown result code";
  }
}

FAKE_EXPORT const char* ncclGetLastError(abi::Comm) { return last_error.c_str(); }

FAKE_EXPORT Result ncclCommCount(abi::Comm handle, int* count) {
  const CommPtr comm = find_comm(handle);
  if (comm == nullptr || count == nullptr) {
    return fail(abi::kInvalidArgument, "ncclCommCount: communicator is null or dead");
  }
  *count = comm->ranks;
  return abi::kSuccess;
}

FAKE_EXPORT Result ncclCommUserRank(abi::Comm handle, int* rank) {
  const CommPtr comm = find_comm(handle);
  if (comm == nullptr || rank == nullptr) {
    return fail(abi::kInvalidArgument, "ncclCommUserRank: communicator is null or dead");
  }
  *rank = comm->rank;
  return abi::kSuccess;
}

FAKE_EXPORT Result ncclCommCuDevice(abi::Comm handle, int* device) {
  const CommPtr comm = find_comm(handle);
  if (comm == nullptr || device == nullptr) {
    return fail(abi::kInvalidArgument, "ncclCommCuDevice: communicator is null or dead");
  }
  *device = comm->device;
  return abi::kSuccess;
}

FAKE_EXPORT Result ncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op,
                                 abi::Comm comm, void* stream) {
  return issue({.comm = {},
                .kind = Kind::kAllReduce,
                .send = send,
                .recv = recv,
                .count = count,
                .type = type,
                .op = op,
                .stream = stream},
               comm);
}

FAKE_EXPORT Result ncclBroadcast(const void* send, void* recv, std::size_t count, int type,
                                 int root, abi::Comm comm, void* stream) {
  return issue({.comm = {},
                .kind = Kind::kBroadcast,
                .send = send,
                .recv = recv,
                .count = count,
                .type = type,
                .root = root,
                .stream = stream},
               comm);
}

FAKE_EXPORT Result ncclReduce(const void* send, void* recv, std::size_t count, int type, int op,
                              int root, abi::Comm comm, void* stream) {
  return issue({.comm = {},
                .kind = Kind::kReduce,
                .send = send,
                .recv = recv,
                .count = count,
                .type = type,
                .op = op,
                .root = root,
                .stream = stream},
               comm);
}

FAKE_EXPORT Result ncclAllGather(const void* send, void* recv, std::size_t send_count, int type,
                                 abi::Comm comm, void* stream) {
  return issue({.comm = {},
                .kind = Kind::kAllGather,
                .send = send,
                .recv = recv,
                .count = send_count,
                .type = type,
                .stream = stream},
               comm);
}

FAKE_EXPORT Result ncclReduceScatter(const void* send, void* recv, std::size_t recv_count, int type,
                                     int op, abi::Comm comm, void* stream) {
  return issue({.comm = {},
                .kind = Kind::kReduceScatter,
                .send = send,
                .recv = recv,
                .count = recv_count,
                .type = type,
                .op = op,
                .stream = stream},
               comm);
}

FAKE_EXPORT Result ncclSend(const void* buffer, std::size_t count, int type, int peer,
                            abi::Comm comm, void* stream) {
  return issue({.comm = {},
                .kind = Kind::kSend,
                .send = buffer,
                .count = count,
                .type = type,
                .root = peer,
                .stream = stream},
               comm);
}

FAKE_EXPORT Result ncclRecv(void* buffer, std::size_t count, int type, int peer, abi::Comm comm,
                            void* stream) {
  return issue({.comm = {},
                .kind = Kind::kRecv,
                .recv = buffer,
                .count = count,
                .type = type,
                .root = peer,
                .stream = stream},
               comm);
}

FAKE_EXPORT Result ncclGroupStart() {
  if (const Result told = enter("ncclGroupStart", nullptr); told != abi::kSuccess) {
    return told;
  }
  ++group.depth;
  return abi::kSuccess;
}

FAKE_EXPORT Result ncclGroupEnd() {
  if (const Result told = enter("ncclGroupEnd", nullptr); told != abi::kSuccess) {
    group = {};
    return told;
  }
  if (group.depth == 0) {
    return fail(abi::kInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  if (--group.depth > 0) {
    return abi::kSuccess;
  }
  const Group ended = std::exchange(group, {});
  if (ended.error != abi::kSuccess) {
    return ended.error;
  }
  for (const CommPtr& comm : ended.inits) {
    if (const Result waited = wait_init(*comm); waited != abi::kSuccess) {
      return waited;
    }
  }
  return ended.calls.empty() ? abi::kSuccess : launch(ended.calls);
}
