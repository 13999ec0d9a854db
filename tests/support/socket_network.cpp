// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "support/socket_network.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "net/network.hpp"

namespace tutti::net {

struct Request {
  /// A message's header and place.
  struct Part {
    transport::ReceivePart where;
    bool is_filled = false;
  };
  class SocketChannel* channel = nullptr;
  const std::byte* data = nullptr;  ///< Of a send.
  Bytes bytes = 0;
  transport::Tag tag = 0;
  std::vector<Part> parts;  ///< Of a receive.
  bool is_done = false;
  Completion completion;
};

namespace {

using test::socket_network;

struct MessageHead {
  std::uint64_t tag;
  std::uint64_t bytes;
};

/// Kind and version stand where those of src/net stand.
struct Address {
  std::uint32_t kind = 0x4b434f53;
  std::uint32_t version = 1;
  sockaddr_in socket{};
  std::uint64_t nonce = 0;
};
static_assert(sizeof(Address) <= Handle::kBytes);

bool has_bug(const char* name) {
  static const char* const planted = std::getenv("SOCKET_NETWORK_BUG");
  return planted != nullptr && std::strcmp(planted, name) == 0;
}

Status gone() { return {ErrorCode::kTimeout, "the peer is gone"}; }

}  // namespace

class SocketChannel : public Channel {
 public:
  SocketChannel(int fd, bool sends) : fd_(fd), sends_(sends) { ++socket_network().channels; }
  ~SocketChannel() override {
    close(fd_);
    if (has_bug("late") && !requests_.empty() && !sends_) {
      std::thread([last = requests_.back()->parts[0].where] {
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        last.data[last.capacity_bytes / 2] = std::byte{1};
      }).detach();
    }
    --socket_network().channels;
  }

  Result<Request*> send(transport::Tag tag, const void* data, Bytes bytes) override {
    if (socket_network().throws) {
      throw std::bad_alloc();
    }
    return add([&](Request& request) {
      request.data = static_cast<const std::byte*>(data);
      request.bytes = bytes;
      request.tag = tag;
    });
  }

  Result<Request*> receive(std::span<const transport::ReceivePart> parts) override {
    return add([&](Request& request) {
      for (const transport::ReceivePart& part : parts) {
        request.parts.push_back({part});
      }
    });
  }

  Status register_memory(std::span<std::byte> memory) override {
    TUTTI_RETURN_IF_ERROR(socket_network().call_error);
    socket_network().registered_bytes += memory.size();
    return {};
  }
  void deregister_memory(std::span<std::byte> memory) override {
    socket_network().registered_bytes -= memory.size();
  }

  std::string peer() const override { return "somebody"; }

  bool test(Request* request, Completion* completion) {
    progress();
    if (!request->is_done) {
      return false;
    }
    *completion = request->completion;
    std::erase_if(requests_, [&](const auto& one) { return one.get() == request; });
    return true;
  }

 private:
  template <class Fill>
  Result<Request*> add(Fill fill) {
    TUTTI_RETURN_IF_ERROR(socket_network().call_error);
    TUTTI_RETURN_IF_ERROR(failed_);
    if (requests_.size() >= socket_network().unfinished_max) {
      return nullptr;
    }
    requests_.push_back(std::make_unique<Request>());
    requests_.back()->channel = this;
    fill(*requests_.back());
    return requests_.back().get();
  }

  void fail(const Status& status) {
    failed_ = status;
    for (const auto& request : requests_) {
      if (!request->is_done) {
        request->is_done = true;
        request->completion.status = status;
      }
    }
  }

  /// True when `offset` has reached the end.
  bool move(void* data, std::size_t bytes, std::size_t* offset) {
    while (*offset < bytes) {
      auto* const at = static_cast<std::byte*>(data) + *offset;
      const ssize_t moved = sends_ ? ::send(fd_, at, bytes - *offset, MSG_DONTWAIT | MSG_NOSIGNAL)
                                   : ::recv(fd_, at, bytes - *offset, MSG_DONTWAIT);
      if (has_bug("deaf") && moved <= 0) {
        return false;
      }
      if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) {
        fail(gone());
      }
      if (moved <= 0) {
        return false;
      }
      *offset += static_cast<std::size_t>(moved);
    }
    return true;
  }

  void progress() {
    while (failed_.ok() && !has_bug("stuck") && (sends_ ? send_next() : receive_next())) {
      head_offset_ = data_offset_ = 0;
    }
  }

  bool send_next() {
    const auto found = std::find_if(requests_.begin(), requests_.end(),
                                    [](const auto& request) { return !request->is_done; });
    if (found == requests_.end()) {
      return false;
    }
    Request& request = **found;
    head_ = {request.tag, request.bytes};
    if (!move(&head_, sizeof head_, &head_offset_) ||
        !move(const_cast<std::byte*>(request.data), request.bytes, &data_offset_)) {
      return false;
    }
    request.is_done = true;
    request.completion.parts = 1;
    request.completion.bytes[0] = request.bytes;
    return true;
  }

  bool receive_next() {
    if (!move(&head_, sizeof head_, &head_offset_)) {
      return false;
    }
    for (const auto& request : requests_) {
      for (std::size_t i = 0; i < request->parts.size(); ++i) {
        Request::Part& part = request->parts[i];
        if (request->is_done || part.is_filled || part.where.tag != head_.tag) {
          continue;
        }
        if (head_.bytes > part.where.capacity_bytes) {
          fail({ErrorCode::kInvalidArgument, "too long a message"});
          return false;
        }
        if (!move(part.where.data, head_.bytes, &data_offset_)) {
          return false;
        }
        part.is_filled = true;
        request->completion.bytes[i] = head_.bytes + (has_bug("size") ? 1 : 0);
        if (has_bug("corrupt") && head_.bytes > 100) {
          part.where.data[head_.bytes - 1] ^= std::byte{1};
        }
        if (has_bug("overrun") && head_.bytes < part.where.capacity_bytes) {
          part.where.data[head_.bytes] = std::byte{1};
        }
        request->completion.parts = static_cast<std::uint8_t>(request->parts.size());
        request->is_done = std::all_of(request->parts.begin(), request->parts.end(),
                                       [](const Request::Part& one) { return one.is_filled; });
        return true;
      }
    }
    return false;  // Its receive is not posted yet.
  }

  int fd_;
  bool sends_;
  Status failed_;
  std::deque<std::unique_ptr<Request>> requests_;
  MessageHead head_{};
  std::size_t head_offset_ = 0;
  std::size_t data_offset_ = 0;
};

bool test(Request* request, Completion* completion) {
  return request->channel->test(request, completion);
}

namespace {

class SocketListener : public Listener {
 public:
  SocketListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    Address address{};
    address.socket.sin_family = AF_INET;
    address.socket.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.nonce = nonce_ = reinterpret_cast<std::uintptr_t>(this) ^ 0x5555;
    socklen_t bytes = sizeof address.socket;
    auto* const name = reinterpret_cast<sockaddr*>(&address.socket);
    bind(fd_, name, bytes);
    listen(fd_, 64);
    getsockname(fd_, name, &bytes);
    std::memcpy(handle_.bytes.data(), &address, sizeof address);
  }
  ~SocketListener() override { close(fd_); }

  const Handle& handle() const override { return handle_; }

  Result<std::unique_ptr<Channel>> accept() override {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      return std::unique_ptr<Channel>();
    }
    std::uint64_t nonce = 0;
    if (recv(fd, &nonce, sizeof nonce, MSG_WAITALL) != sizeof nonce || nonce != nonce_) {
      close(fd);
      return Status(ErrorCode::kUnsupported, "a stranger came");
    }
    return std::unique_ptr<Channel>(std::make_unique<SocketChannel>(fd, false));
  }

 private:
  int fd_;
  std::uint64_t nonce_;
  Handle handle_;
};

/// Ready at the third poll(), for the callers must live with "not yet".
class SocketConnector : public Connector {
 public:
  explicit SocketConnector(const Handle& handle) {
    std::memcpy(&address_, handle.bytes.data(), sizeof address_);
  }

  Result<std::unique_ptr<Channel>> poll() override {
    if (++polls_ < 3) {
      return std::unique_ptr<Channel>();
    }
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address_.socket), sizeof(sockaddr_in)) !=
            0 ||
        ::send(fd, &address_.nonce, sizeof address_.nonce, MSG_NOSIGNAL) < 0) {
      close(fd);
      return Status(ErrorCode::kTimeout, "nobody is there");
    }
    return std::unique_ptr<Channel>(std::make_unique<SocketChannel>(fd, true));
  }

 private:
  Address address_{};
  int polls_ = 0;
};

/// The process's end removes it.
void leave_shared_file() {
  static const struct File {
    std::string name = "/socket-network-" + std::to_string(getpid());
    ~File() { shm_unlink(name.c_str()); }
  } file;
  close(shm_open(file.name.c_str(), O_CREAT | O_RDWR, S_IRUSR | S_IWUSR));
}

class SocketNetwork : public Network {
 public:
  explicit SocketNetwork(std::vector<NetDevice> devices) : devices_(std::move(devices)) {
    ++socket_network().opened;
    ++socket_network().networks;
    if (!devices_.empty()) {
      return;
    }
    devices_.push_back({.name = "lo",
                        .address = "127.0.0.1",
                        .pci_path = "",
                        .guid = 11,
                        .speed_mbps = 8000,
                        .mtu_bytes = 65536,
                        .near_processors = {},
                        .latency_us = 7.5});
    devices_.push_back({.name = "lo2",
                        .address = "127.0.0.2",
                        .pci_path = "/sys/devices/pci0000:00/0000:00:01.0",
                        .guid = 12,
                        .speed_mbps = 100000,
                        .mtu_bytes = 9000,
                        .near_processors = {},
                        .latency_us = 5});
  }
  ~SocketNetwork() override {
    std::this_thread::sleep_for(std::chrono::milliseconds(socket_network().end_ms));
    if (thread_.joinable()) {
      if (has_bug("thread")) {
        thread_.detach();
      } else {
        {
          const std::scoped_lock lock(pause_->mutex);
          pause_->is_over = true;
        }
        pause_->over.notify_one();
        thread_.join();
      }
    }
    if (has_bug("descriptor")) {
      static_cast<void>(dup(STDERR_FILENO));
    }
    if (has_bug("shared_file")) {
      leave_shared_file();
    }
    --socket_network().networks;
  }

  std::vector<NetDevice> devices() const override { return devices_; }

  Result<int> merge(std::span<const int> devices) override {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (std::ranges::equal(devices_[i].rails, devices)) {
        return static_cast<int>(i);
      }
    }
    NetDevice merged;
    for (const int number : devices) {
      const NetDevice& part = devices_[static_cast<std::size_t>(number)];
      merged.name += (merged.name.empty() ? "" : "+") + part.name;
      merged.speed_mbps += part.speed_mbps;
    }
    merged.rails.assign(devices.begin(), devices.end());
    devices_.push_back(merged);
    return static_cast<int>(devices_.size()) - 1;
  }

  Result<std::unique_ptr<Listener>> listen(int device) override {
    socket_network().listen_device = device;
    TUTTI_RETURN_IF_ERROR(socket_network().listen_error);
    if (socket_network().throws) {
      throw std::bad_alloc();
    }
    start();
    return std::unique_ptr<Listener>(std::make_unique<SocketListener>());
  }

  Result<std::unique_ptr<Connector>> connect(int device, const Handle& handle,
                                             int traffic_class) override {
    socket_network().connect_device = device;
    socket_network().traffic_class = traffic_class;
    Address address;
    const Address known;
    std::memcpy(&address, handle.bytes.data(), sizeof address);
    if (address.kind != known.kind) {
      return Status(ErrorCode::kUnsupported, "the handle is not of NCCL_NET=Tutti");
    }
    if (address.version != known.version) {
      return Status(ErrorCode::kUnsupported,
                    "the handle is of protocol " + std::to_string(address.version));
    }
    start();
    return std::unique_ptr<Connector>(std::make_unique<SocketConnector>(handle));
  }

 private:
  void start() {
    if (has_bug("crash")) {
      std::abort();
    }
    if (!thread_.joinable()) {
      thread_ = std::thread([pause = pause_] {
        std::unique_lock lock(pause->mutex);
        pause->over.wait(lock, [&] { return pause->is_over; });
      });
    }
  }

  std::vector<NetDevice> devices_;
  struct Pause {
    std::mutex mutex;
    std::condition_variable over;
    bool is_over = false;
  };
  std::shared_ptr<Pause> pause_ = std::make_shared<Pause>();
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Network>> open_gpu_network(Log log, std::vector<NetDevice> devices) {
  TUTTI_RETURN_IF_ERROR(socket_network().open_error);
  log(LogKind::kInfo, "a network of sockets");
  return std::unique_ptr<Network>(std::make_unique<SocketNetwork>(std::move(devices)));
}

}  // namespace tutti::net

namespace tutti::test {

SocketNetworkState& socket_network() {
  static SocketNetworkState state;
  return state;
}

}  // namespace tutti::test
