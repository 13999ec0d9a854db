// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/plugin.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

namespace tutti::nccl_net {
namespace {

/// In NCCL's 128 bytes. The last two are the connecting side's scratch, 0 when listen() made it. Of
/// a handle that another version or another network made they are anything, and no attempt's.
struct HandleBytes {
  net::Handle handle;
  std::uint64_t process = 0;  ///< Whose number `attempt` is.
  std::uint64_t attempt = 0;
};
static_assert(sizeof(HandleBytes) <= abi::kHandleBytes);
static_assert(std::is_trivially_copyable_v<HandleBytes>);

HandleBytes read_handle(const void* buffer) {
  HandleBytes bytes;
  std::memcpy(&bytes, buffer, sizeof bytes);
  return bytes;
}

void write_handle(const HandleBytes& bytes, void* buffer) {
  std::memcpy(buffer, &bytes, sizeof bytes);
}

static_assert(abi::kUndefined == net::kDefaultClass, "a traffic class goes through as it is");

/// NCCL polls an attempt all the time, unless its communicator is no more.
constexpr auto kAbandonedAfter = std::chrono::seconds(10);

std::atomic<abi::Logger*> logger_of_nccl{nullptr};
std::atomic<bool> in_child{false};

/// Tells this process from those that a handle buffer may have passed through.
std::uint64_t process_token() {
  static const std::uint64_t token =
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
      static_cast<std::uint64_t>(getpid()) << 40;
  return token;
}

std::string describe(const net::NetDevice& device) {
  // Of a merged one without a PCI device NCCL has the speed of the first (get_properties()).
  const int told_mbps = speed_for_channels_mbps(device.speed_mbps);
  return device.name + " " + device.address + " (" + std::to_string(device.speed_mbps) + " Mb/s, " +
         (told_mbps == device.speed_mbps
              ? ""
              : "told to NCCL as " + std::to_string(told_mbps) + " for fewer channels, ") +
         "MTU " + std::to_string(device.mtu_bytes) + ")";
}

/// NCCL's sizes are int here; it sends no message that does not fit.
int to_int(Bytes bytes) {
  return static_cast<int>(std::min<Bytes>(bytes, std::numeric_limits<int>::max()));
}

abi::Result translate(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return abi::Result::kSuccess;
    case ErrorCode::kInvalidArgument:
      return abi::Result::kInvalidArgument;
    case ErrorCode::kTimeout:
      return abi::Result::kRemoteError;
    case ErrorCode::kInvalidConfig:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kUnsupported:
    case ErrorCode::kLibraryFailed:
    case ErrorCode::kMismatch:
    case ErrorCode::kFallback:
      return abi::Result::kSystemError;
    case ErrorCode::kMpiFailed:
      break;
  }
  return abi::Result::kInternalError;
}

}  // namespace

Comm::Comm(std::unique_ptr<net::Channel> open_channel) : channel(std::move(open_channel)) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    free[i] = static_cast<std::uint16_t>(kSlots - 1 - i);
    slots[i].comm = this;
  }
}

RequestSlot* Comm::take(net::Request* inner, bool is_receive) {
  RequestSlot* const slot = &slots[free[--free_count]];
  slot->inner = inner;
  slot->is_receive = is_receive;
  return slot;
}

void Comm::give_back(RequestSlot* slot) {
  slot->inner = nullptr;
  free[free_count++] = static_cast<std::uint16_t>(slot - slots.data());
}

int speed_for_channels_mbps(int speed_mbps) {
  constexpr int kOneOfTheSlower = 1'920;
  constexpr int kOneOfTheFaster = 10'000;
  return speed_mbps < 2 * kOneOfTheSlower ? speed_mbps : std::max(speed_mbps, kOneOfTheFaster);
}

Plugin& Plugin::instance() {
  static Plugin* const plugin = new Plugin;
  return *plugin;
}

bool Plugin::is_forked() { return in_child.load(std::memory_order_relaxed); }

Status Plugin::set_up(abi::Logger* logger) {
  if (logger != nullptr) {
    logger_of_nccl.store(logger);
  }
  if (is_ready_) {
    drop_abandoned_attempts();
    if (!is_used()) {
      known_ = interfaces();
    }
    return {};
  }
  static const int fork_handler =
      pthread_atfork(nullptr, nullptr, [] { in_child.store(true, std::memory_order_relaxed); });
  if (fork_handler != 0) {
    return {ErrorCode::kOutOfMemory, "no memory for a fork handler"};
  }
  TUTTI_RETURN_IF_ERROR(open_network());
  const std::vector<net::NetDevice> found = network_->devices();
  if (found.empty()) {
    network_.reset();
    return {ErrorCode::kUnavailable,
            "no network device; remedy: let NCCL_SOCKET_IFNAME name an interface that is up"};
  }
  devices_.assign(found.begin(), found.end());
  std::string text = "Tutti " TUTTI_VERSION;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    text += (i == 0 ? " : " : ", ") + describe(devices_[i]);
  }
  log(net::LogKind::kInfo, text);
  // Destroyed after what is constructed later; the network's own lasting things are never
  // destroyed.
  static const struct Unloader {
    ~Unloader() { Plugin::instance().unload(); }
  } unloader;
  known_ = interfaces();
  is_ready_ = true;
  return {};
}

std::size_t Plugin::interfaces() const {
  return static_cast<std::size_t>(std::count_if(
      devices_.begin(), devices_.end(), [](const auto& device) { return device.rails.empty(); }));
}

Status Plugin::init(abi::Logger* logger) {
  const std::scoped_lock lock(mutex_);
  return set_up(logger);
}

Status Plugin::init_context(abi::Logger* logger, int traffic_class, void** context) {
  const std::scoped_lock lock(mutex_);
  TUTTI_RETURN_IF_ERROR(set_up(logger));
  *context = new Context{traffic_class};
  ++contexts_;
  return {};
}

Status Plugin::finalize(void* context) {
  std::shared_ptr<net::Network> ended;
  const std::scoped_lock lock(mutex_);
  std::erase_if(attempts_, [&](const auto& item) { return item.second.context == context; });
  delete static_cast<Context*>(context);
  --contexts_;
  ended = take_network_if_unused();
  return {};
}

Status Plugin::open_network() {
  if (network_ == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(
        network_, net::open_gpu_network([](net::LogKind kind,
                                           const std::string& text) { instance().log(kind, text); },
                                        {devices_.begin(), devices_.end()}));
  }
  return {};
}

void Plugin::drop_abandoned_attempts() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(attempts_, [&](const auto& item) {
    return item.second.context == nullptr && now > item.second.polled_at + kAbandonedAfter;
  });
}

std::shared_ptr<net::Network> Plugin::take_network_if_unused() {
  drop_abandoned_attempts();
  return is_used() ? nullptr : std::exchange(network_, nullptr);
}

Status Plugin::check_device(int device) const {
  if (device >= 0 && static_cast<std::size_t>(device) < devices_.size()) {
    return {};
  }
  return {ErrorCode::kInvalidArgument, "device " + std::to_string(device) + " of " +
                                           std::to_string(devices_.size()) +
                                           "; remedy: call init and devices first"};
}

int Plugin::device_count() {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(known_);
}

Result<net::NetDevice*> Plugin::device(int number) {
  const std::scoped_lock lock(mutex_);
  TUTTI_RETURN_IF_ERROR(check_device(number));
  return &devices_[static_cast<std::size_t>(number)];
}

Result<int> Plugin::merge(std::span<const int> members) {
  std::shared_ptr<net::Network> ended;
  const std::scoped_lock lock(mutex_);
  for (const int member : members) {
    TUTTI_RETURN_IF_ERROR(check_device(member));
  }
  const bool was_open = network_ != nullptr;
  TUTTI_RETURN_IF_ERROR(open_network());
  Result<int> merged = network_->merge(members);
  if (merged.ok() && static_cast<std::size_t>(*merged) == devices_.size()) {
    devices_.push_back(network_->devices().back());
    log(net::LogKind::kInfo,
        "device " + std::to_string(*merged) + ": " + describe(devices_.back()));
  }
  if (merged.ok()) {
    known_ = std::max(known_, static_cast<std::size_t>(*merged) + 1);
  }
  if (!was_open) {  // In versions without contexts, init() has opened it for what comes next.
    ended = take_network_if_unused();
  }
  return merged;
}

Status Plugin::listen(int device, void* handle, void** listen_comm) {
  std::shared_ptr<net::Network> ended;
  const std::scoped_lock lock(mutex_);
  TUTTI_RETURN_IF_ERROR(check_device(device));
  drop_abandoned_attempts();
  TUTTI_RETURN_IF_ERROR(open_network());
  auto listener = network_->listen(device);
  if (!listener.ok()) {
    ended = take_network_if_unused();
    return listener.status();
  }
  auto comm = std::make_unique<ListenComm>(ListenComm{std::move(*listener)});
  std::memset(handle, 0, abi::kHandleBytes);
  write_handle({.handle = comm->listener->handle()}, handle);
  *listen_comm = comm.release();
  ++comms_;
  return {};
}

Status Plugin::connect(void* context, int traffic_class, int device, void* handle,
                       void** send_comm) {
  std::shared_ptr<net::Network> ended;
  const std::scoped_lock lock(mutex_);
  TUTTI_RETURN_IF_ERROR(check_device(device));
  HandleBytes bytes = read_handle(handle);
  const std::uint64_t process = process_token();
  auto found = bytes.process == process ? attempts_.find(bytes.attempt) : attempts_.end();
  if (found == attempts_.end()) {
    drop_abandoned_attempts();
    TUTTI_RETURN_IF_ERROR(open_network());
    auto connector = network_->connect(device, bytes.handle, traffic_class);
    if (!connector.ok()) {
      ended = take_network_if_unused();
      return connector.status();
    }
    found = attempts_.emplace(next_attempt_++, Attempt{std::move(*connector), context, {}}).first;
    bytes.process = process;
    bytes.attempt = found->first;
    write_handle(bytes, handle);
  }
  found->second.polled_at = std::chrono::steady_clock::now();
  auto channel = found->second.connector->poll();
  if (channel.ok() && *channel == nullptr) {
    return {};
  }
  // The attempt is over, and a call with this buffer or a copy of it begins another.
  attempts_.erase(found);
  bytes.process = bytes.attempt = 0;
  write_handle(bytes, handle);
  if (!channel.ok()) {
    ended = take_network_if_unused();
    return channel.status();
  }
  *send_comm = new Comm(std::move(*channel));
  ++comms_;
  return {};
}

Status Plugin::accept(void* listen_comm, void** recv_comm) {
  const std::scoped_lock lock(mutex_);
  auto channel = static_cast<ListenComm*>(listen_comm)->listener->accept();
  TUTTI_RETURN_IF_ERROR(channel.status());
  if (*channel != nullptr) {
    *recv_comm = new Comm(std::move(*channel));
    ++comms_;
  }
  return {};
}

Status Plugin::close(Comm* comm) {
  delete comm;  // Outside the lock: ending what is unfinished takes the engines' answer.
  std::shared_ptr<net::Network> ended;
  const std::scoped_lock lock(mutex_);
  --comms_;
  ended = take_network_if_unused();
  return {};
}

Status Plugin::close(ListenComm* comm) {
  delete comm;
  std::shared_ptr<net::Network> ended;
  const std::scoped_lock lock(mutex_);
  --comms_;
  ended = take_network_if_unused();
  return {};
}

Status Plugin::isend(Comm* comm, const void* data, Bytes bytes, int tag, void** request) {
  if (comm->free_count == 0) {
    return comm->failure;
  }
  TUTTI_ASSIGN_OR_RETURN(net::Request* const posted,
                         comm->channel->send(static_cast<transport::Tag>(tag), data, bytes));
  if (posted != nullptr) {
    *request = comm->take(posted, false);
  }
  return {};
}

Status Plugin::irecv(Comm* comm, std::span<const transport::ReceivePart> parts, void** request) {
  if (comm->free_count == 0) {
    return comm->failure;
  }
  TUTTI_ASSIGN_OR_RETURN(net::Request* const posted, comm->channel->receive(parts));
  if (posted != nullptr) {
    *request = comm->take(posted, true);
  }
  return {};
}

Status Plugin::iflush(Comm* comm, std::span<const std::byte> memory, void** request) {
  TUTTI_RETURN_IF_ERROR(comm->failure);
  net::Request* posted = nullptr;
  if (comm->free_count > 0) {
    TUTTI_ASSIGN_OR_RETURN(posted, comm->channel->flush(memory));
  }
  if (posted == nullptr) {  // To NCCL, no request would be one that is done.
    return {ErrorCode::kUnavailable, "more flushes than requests"};
  }
  *request = comm->take(posted, true);
  return {};
}

Status Plugin::test(RequestSlot* slot, int* done, int* bytes) {
  TUTTI_RETURN_IF_ERROR(slot->failure);
  net::Completion completion;
  if (!net::test(slot->inner, &completion)) {
    return {};
  }
  if (!completion.status.ok()) {
    slot->inner = nullptr;
    slot->failure = completion.status;
    if (slot->comm->failure.ok()) {
      slot->comm->failure = slot->failure;
    }
    return slot->failure;
  }
  const bool is_receive = slot->is_receive;
  slot->comm->give_back(slot);
  if (bytes != nullptr) {
    const std::size_t parts = is_receive ? completion.parts : 1;
    std::transform(completion.bytes.begin(), completion.bytes.begin() + parts, bytes, to_int);
  }
  *done = 1;
  return {};
}

void Plugin::log(net::LogKind kind, const std::string& text) const {
  abi::Logger* const logger = logger_of_nccl.load();
  if (logger == nullptr || is_forked()) {
    return;
  }
  switch (kind) {
    case net::LogKind::kWarning:
      return logger(abi::LogLevel::kWarn, abi::kLogAll, "tutti", 0, "NET/Tutti : %s", text.c_str());
    case net::LogKind::kInfo:
      return logger(abi::LogLevel::kInfo, abi::kLogInit | abi::kLogNet, "tutti", 0,
                    "NET/Tutti : %s", text.c_str());
    case net::LogKind::kTrace:
      return logger(abi::LogLevel::kTrace, abi::kLogNet, "tutti", 0, "NET/Tutti : %s",
                    text.c_str());
  }
}

abi::Result Plugin::answer(const Status& status, const char* call, bool* has_failed) const {
  if (status.ok()) {
    return abi::Result::kSuccess;
  }
  if (has_failed == nullptr || !std::exchange(*has_failed, true)) {
    log(net::LogKind::kWarning, std::string(call) + ": " + status.message());
  }
  return translate(status.code());
}

void Plugin::unload() {
  if (is_forked()) {
    return;
  }
  std::shared_ptr<net::Network> network;
  bool is_in_use = false;
  {
    const std::scoped_lock lock(mutex_);
    is_in_use = comms_ > 0;
    if (!is_in_use) {
      attempts_.clear();
    }
    network = is_in_use ? network_ : std::exchange(network_, nullptr);
  }
  if (is_in_use && network != nullptr) {
    network->finish_watch();
  }
}

}  // namespace tutti::nccl_net
