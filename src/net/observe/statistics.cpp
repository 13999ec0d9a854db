// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/observe/statistics.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>
#include <set>
#include <type_traits>

#include "base/clock.hpp"
#include "base/host_name.hpp"

namespace tutti::net {
namespace {

static_assert(std::endian::native == std::endian::little, "the layout is little-endian");

constexpr std::uint64_t kIntervalNs = 100'000'000;
constexpr int kReadsMax =
    1000;  ///< Of one record: a writer that stopped in the middle is no reason to hang.
constexpr int kNamesMax = 1000;
constexpr std::uint64_t kPageBytes = 4096;

using Word = std::atomic_ref<std::uint64_t>;

std::uint64_t unix_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::string program_name() {
  std::ifstream file("/proc/self/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// A seqlock without fences (which the thread sanitizer does not know): no word of the record can
// be seen before the odd number, and the number is read again after all words. On x86 these are
// plain moves.

void write_words(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, from + i, 8);
    Word(*reinterpret_cast<std::uint64_t*>(to + i)).store(value, std::memory_order_release);
  }
}

void read_words(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 8) {
    auto& word = *reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(from + i));
    const std::uint64_t value = Word(word).load(std::memory_order_acquire);
    std::memcpy(to + i, &value, 8);
  }
}

/// Writes a record between two numbers.
class Writing {
 public:
  explicit Writing(std::byte* record)
      : number_(*reinterpret_cast<std::uint64_t*>(record)),
        begun_(number_.load(std::memory_order_relaxed) + 1) {
    number_.store(begun_, std::memory_order_relaxed);
  }
  ~Writing() { number_.store(begun_ + 1, std::memory_order_release); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  Word number_;
  std::uint64_t begun_;
};

/// False: it changes all the time.
bool read_record(const std::byte* record, std::byte* to, std::size_t bytes) {
  Word number(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(record)));
  for (int i = 0; i < kReadsMax; ++i) {
    const std::uint64_t before = number.load(std::memory_order_acquire);
    if (before % 2 == 0) {
      read_words(to, record, bytes);
      if (number.load(std::memory_order_relaxed) == before) {
        return true;
      }
    }
  }
  return false;
}

/// Files of this process. Opened and closed once more by the process, they would lose their lock.
struct OwnFiles {
  std::mutex mutex;
  std::set<std::string> names;

  static OwnFiles& instance() {
    static auto* const files = new OwnFiles;  // Threads may outlive static objects.
    return *files;
  }
};

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string prefix() { return "tutti-net-" + std::to_string(geteuid()) + "-"; }

bool is_stale(int directory, const char* name) {
  const int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) {
    return false;
  }
  struct stat about {};
  struct flock lock = whole_file();
  const bool stale = fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
                     about.st_uid == geteuid() && fcntl(file, F_GETLK, &lock) == 0 &&
                     lock.l_type == F_UNLCK;
  close(file);
  return stale;
}

/// Writing a longer file raises a signal.
bool is_within_limit(std::uint64_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

bool write_at(int file, const void* from, std::uint64_t bytes, std::uint64_t offset) {
  return pwrite(file, from, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

template <class Record>
const std::byte* bytes_of(const Record& record) {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % 8 == 0);
  return reinterpret_cast<const std::byte*>(&record);
}

}  // namespace

int remove_stale_statistics(const std::string& directory) {
  DIR* const listing = opendir(directory.c_str());
  if (listing == nullptr) {
    return 0;
  }
  const std::string begin = prefix();
  OwnFiles& own = OwnFiles::instance();
  const std::lock_guard lock(own.mutex);
  int removed = 0;
  while (const dirent* const entry = readdir(listing)) {
    const std::string name = entry->d_name;
    if (name.starts_with(begin) && own.names.count(directory + "/" + name) == 0 &&
        is_stale(dirfd(listing), name.c_str())) {
      removed += unlinkat(dirfd(listing), name.c_str(), 0) == 0 ? 1 : 0;
    }
  }
  closedir(listing);
  return removed;
}

Result<std::unique_ptr<Statistics>> Statistics::open(const std::string& directory,
                                                     std::uint32_t paths) {
  std::unique_ptr<Statistics> it(new Statistics);
  it->process_ = getpid();
  FileHeader header{};
  header.magic = kStatisticsMagic;
  header.version = kStatisticsVersion;
  header.header_bytes = sizeof(FileHeader);
  header.engines_max = kEnginesShownMax;
  header.engine_bytes = sizeof(EngineRecord);
  header.connections_max = kConnectionsShownMax;
  header.connection_bytes = sizeof(ConnectionRecord);
  header.paths_max = std::clamp(paths, 1U, kPathsShownMax);
  header.path_bytes = sizeof(PathRecord);
  header.engines_offset = sizeof(FileHeader);
  header.slots_offset =
      header.engines_offset + std::uint64_t{header.engines_max} * sizeof(EngineRecord);
  header.slot_bytes =
      sizeof(ConnectionRecord) + std::uint64_t{header.paths_max} * sizeof(PathRecord);
  header.file_bytes = header.slots_offset + std::uint64_t{header.engines_max} *
                                                header.connections_max * header.slot_bytes;
  header.process = static_cast<std::uint32_t>(it->process_);
  header.user = geteuid();
  header.start_unix_ns = unix_ns();
  header.start_ns = monotonic_ns();
  header.interval_ns = kIntervalNs;
  set_text(header.program, program_name());
  set_text(header.host, host_name());

  it->header_ = header;
  it->bytes_ = header.file_bytes;
  const auto fail = [&](const std::string& what) {
    return Status(ErrorCode::kUnavailable, what + " " + directory + ": " + std::strerror(errno));
  };
  if (!directory.empty()) {
    remove_stale_statistics(directory);
    struct flock lock = whole_file();
    struct stat about {};
    if (!is_within_limit(it->bytes_)) {
      errno = EFBIG;
      return fail("no file in");
    }
    it->descriptor_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (it->descriptor_ < 0 || fstat(it->descriptor_, &about) != 0) {
      return fail("no file in");
    }
    // Now it is closed, whatever comes (is_own_descriptor()).
    it->device_ = about.st_dev;
    it->inode_ = about.st_ino;
    if (fcntl(it->descriptor_, F_SETLK, &lock) != 0 ||
        ftruncate(it->descriptor_, static_cast<off_t>(it->bytes_)) != 0) {
      return fail("no file in");
    }
    if (!it->allocate(0, header.slots_offset) ||
        !write_at(it->descriptor_, &header, sizeof header, 0)) {
      return fail("no room in");
    }
  }
  void* const memory = mmap(nullptr, it->bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail("no memory for statistics in");
  }
  it->memory_ = static_cast<std::byte*>(memory);
  if (!directory.empty()) {
    TUTTI_RETURN_IF_ERROR(it->make_file(directory));
  }
  return it;
}

/// Gives the file a name: now it may be read.
Status Statistics::make_file(const std::string& directory) {
  OwnFiles& own = OwnFiles::instance();
  const std::lock_guard lock(own.mutex);
  const std::string self = "/proc/self/fd/" + std::to_string(descriptor_);
  for (int i = 1; i <= kNamesMax; ++i) {
    const std::string name =
        directory + "/" + prefix() + std::to_string(process_) + "-" + std::to_string(i);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      own.names.insert(name);
      file_ = name;
      return {};
    }
    if (errno != EEXIST) {
      break;
    }
  }
  return Status(ErrorCode::kUnavailable,
                "no name for a file in " + directory + ": " + std::strerror(errno));
}

Statistics::~Statistics() {
  if (memory_ != nullptr) {
    munmap(memory_, bytes_);
  }
  remove_file();
  if (is_own_descriptor()) {
    close(descriptor_);
  }
}

void Statistics::remove_file() {
  if (!file_.empty() && is_mine()) {
    OwnFiles& own = OwnFiles::instance();
    const std::lock_guard lock(own.mutex);
    unlink(file_.c_str());
    own.names.erase(file_);
    file_.clear();
  }
}

bool Statistics::is_mine() const { return getpid() == process_; }

/// A program that closes all it does not know has perhaps opened something of its own since.
bool Statistics::is_own_descriptor() const {
  struct stat about {};
  return descriptor_ >= 0 && fstat(descriptor_, &about) == 0 && about.st_dev == device_ &&
         about.st_ino == inode_;
}

bool Statistics::can_publish() const { return is_own_descriptor() && is_within_limit(bytes_); }

void Statistics::publish(std::uint64_t offset, std::uint64_t bytes) const {
  if (!can_publish()) {
    return;
  }
  std::uint64_t number = 0;
  std::memcpy(&number, memory_ + offset, 8);
  const std::uint64_t odd = number - 1;
  if (write_at(descriptor_, &odd, 8, offset) &&
      write_at(descriptor_, memory_ + offset + 8, bytes - 8, offset + 8)) {
    (void)write_at(descriptor_, &number, 8, offset);
  }
}

bool Statistics::allocate(std::uint64_t offset, std::uint64_t bytes) const {
  if (!can_publish()) {
    return true;
  }
  errno = posix_fallocate(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  return errno == 0;
}

std::uint64_t Statistics::engine_offset(std::uint32_t engine) const {
  return header().engines_offset + std::uint64_t{engine} * header().engine_bytes;
}

std::uint64_t Statistics::slot_offset(std::uint32_t engine, std::uint32_t slot) const {
  return header().slots_offset +
         (std::uint64_t{engine} * header().connections_max + slot) * header().slot_bytes;
}

EngineStatistics* Statistics::add_engine() {
  if (engines_added_ == kEnginesShownMax) {
    return nullptr;
  }
  EngineStatistics& engine = engines_[engines_added_];
  engine.of_ = this;
  engine.engine_ = engines_added_++;
  return &engine;
}

std::optional<EngineRecord> Statistics::engine(std::uint32_t engine) const {
  EngineRecord record{};
  if (!read_record(memory_ + engine_offset(engine), reinterpret_cast<std::byte*>(&record),
                   sizeof record) ||
      record.state == RecordState::kUnused) {
    return std::nullopt;
  }
  return record;
}

std::vector<ConnectionRecord> Statistics::connections(
    std::uint32_t engine, std::vector<std::vector<PathRecord>>* paths) const {
  std::vector<ConnectionRecord> records;
  std::vector<std::byte> slot(header().slot_bytes);
  const std::uint32_t touched = engines_[engine].touched_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < touched; ++i) {
    ConnectionRecord record{};
    if (!read_record(memory_ + slot_offset(engine, i), slot.data(), slot.size())) {
      continue;
    }
    std::memcpy(&record, slot.data(), sizeof record);
    if (record.state == RecordState::kUnused) {
      continue;
    }
    records.push_back(record);
    if (paths != nullptr) {
      std::vector<PathRecord>& of_it =
          paths->emplace_back(std::min(record.paths_shown, header_.paths_max));
      std::memcpy(of_it.data(), slot.data() + sizeof record, of_it.size() * sizeof(PathRecord));
    }
  }
  return records;
}

std::uint32_t EngineStatistics::take() {
  if (!of_->is_mine()) {
    return kNoSlot;
  }
  if (!free_.empty()) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (touched_ == of_->header().connections_max) {
    return kNoSlot;
  }
  const std::uint32_t slot = touched_;
  const std::uint64_t offset = of_->slot_offset(engine_, slot);
  const std::uint64_t begin = offset / kPageBytes * kPageBytes;
  if (!of_->allocate(begin, offset + of_->header().slot_bytes - begin)) {
    return kNoSlot;
  }
  touched_.store(slot + 1, std::memory_order_release);
  return slot;
}

void EngineStatistics::give_back(std::uint32_t slot) {
  if (slot != kNoSlot) {
    write(slot, ConnectionRecord{}, {});
    free_.push_back(slot);
  }
}

void EngineStatistics::write(std::uint32_t slot, const ConnectionRecord& connection,
                             std::span<const PathRecord> paths) {
  if (!of_->is_mine()) {
    return;
  }
  ConnectionRecord record = connection;
  paths = paths.first(std::min<std::size_t>(paths.size(), paths_max()));
  record.paths_shown = static_cast<std::uint32_t>(paths.size());
  const std::uint64_t offset = of_->slot_offset(engine_, slot);
  {
    std::byte* const to = of_->memory_ + offset;
    const Writing writing(to);
    write_words(to + 8, bytes_of(record) + 8, sizeof record - 8);
    write_words(to + sizeof record, reinterpret_cast<const std::byte*>(paths.data()),
                paths.size_bytes());
  }
  of_->publish(offset, sizeof record + paths.size_bytes());
}

void EngineStatistics::write(const EngineRecord& engine) {
  if (!of_->is_mine()) {
    return;
  }
  const std::uint64_t offset = of_->engine_offset(engine_);
  {
    std::byte* const to = of_->memory_ + offset;
    const Writing writing(to);
    write_words(to + 8, bytes_of(engine) + 8, sizeof engine - 8);
  }
  of_->publish(offset, sizeof engine);
}

const ConnectionRecord& EngineStatistics::last(std::uint32_t slot) const {
  return *reinterpret_cast<const ConnectionRecord*>(of_->memory_ + of_->slot_offset(engine_, slot));
}

std::uint32_t EngineStatistics::paths_max() const { return of_->header().paths_max; }

std::uint64_t EngineStatistics::interval_ns() const { return of_->header().interval_ns; }

std::uint64_t EngineStatistics::next_number() {
  return of_->next_number_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tutti::net
