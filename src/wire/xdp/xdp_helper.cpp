// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/xdp_helper.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::wire::xdp {
namespace {

constexpr std::uint32_t kMagic = 0x78647031;  ///< Also the version of what follows.
constexpr time_t kAnswerS = 5;
constexpr std::size_t kClientsMax = 1024;
constexpr int kRetryMs = 10;
/// SIOCGSKNS (Linux 4.10): the network namespace of a socket.
constexpr unsigned long kGetNamespace = 0x894C;

struct Request {
  std::uint32_t magic = kMagic;
  std::uint32_t mode = 0;
  std::uint32_t frame_bytes = 0;
  std::uint32_t receive_frames = 0;
  std::uint32_t send_frames = 0;
  std::array<char, IFNAMSIZ> interface {};
};

struct Answer {
  std::uint32_t magic = kMagic;
  std::uint32_t code = 0;  ///< An ErrorCode.
  std::uint32_t queue = 0;
  std::uint32_t mode = 0;
  std::uint32_t is_zero_copy = 0;
  std::array<char, 512> message{};
};

Status helper_failed(const std::string& what) {
  return Status(ErrorCode::kUnavailable, what + ": " + std::strerror(errno));
}

template <class T>
bool send_with(int socket, const T& value, std::span<const int> descriptors) {
  iovec part = {const_cast<T*>(&value), sizeof value};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
}

/// False: nothing, or not of this size. All descriptors that came are owned.
template <class T>
bool receive_with(int socket, int flags, T* value, std::vector<OwnedFd>* descriptors) {
  iovec part = {value, sizeof *value};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  for (cmsghdr* it = CMSG_FIRSTHDR(&message); got >= 0 && it != nullptr;
       it = CMSG_NXTHDR(&message, it)) {
    if (it->cmsg_level == SOL_SOCKET && it->cmsg_type == SCM_RIGHTS) {
      for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= it->cmsg_len; at += sizeof(int)) {
        int descriptor = -1;
        std::memcpy(&descriptor, reinterpret_cast<const char*>(it) + at, sizeof descriptor);
        descriptors->emplace_back(descriptor);
      }
    }
  }
  return got == static_cast<ssize_t>(sizeof *value) && value->magic == kMagic;
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status(ErrorCode::kInvalidArgument, "'" + path + "' is no path of a UNIX socket");
  }
  path.copy(address.sun_path, path.size());
  return address;
}

int option_of(int socket, int name) {
  int value = -1;
  socklen_t bytes = sizeof value;
  return getsockopt(socket, SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
}

/// In a namespace of its own anybody can have any address and port.
bool is_in_our_network(int socket) {
  const OwnedFd its(ioctl(socket, kGetNamespace));
  struct stat of_its {};
  struct stat of_ours {};
  return its.get() >= 0 && fstat(its.get(), &of_its) == 0 &&
         stat("/proc/thread-self/ns/net", &of_ours) == 0 && of_its.st_ino == of_ours.st_ino &&
         of_its.st_dev == of_ours.st_dev;
}

bool has_address(std::string_view interface, std::uint32_t address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return false;
  }
  bool found = false;
  for (const ifaddrs* it = all; it != nullptr; it = it->ifa_next) {
    found =
        found || (it->ifa_addr != nullptr && it->ifa_addr->sa_family == AF_INET &&
                  interface == it->ifa_name &&
                  reinterpret_cast<const sockaddr_in*>(it->ifa_addr)->sin_addr.s_addr == address);
  }
  freeifaddrs(all);
  return found;
}

/// What a client asks for, if it may: what comes to the UDP socket that it shows.
Result<XskOptions> options_of(const Request& request, int kernel_socket) {
  sockaddr_in bound{};
  socklen_t bytes = sizeof bound;
  if (option_of(kernel_socket, SO_DOMAIN) != AF_INET ||
      option_of(kernel_socket, SO_TYPE) != SOCK_DGRAM ||
      option_of(kernel_socket, SO_PROTOCOL) != IPPROTO_UDP ||
      getsockname(kernel_socket, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0 ||
      bound.sin_port == 0 || !is_in_our_network(kernel_socket)) {
    return Status(ErrorCode::kInvalidArgument,
                  "the client has no bound UDP socket of IPv4 in the helper's network namespace");
  }
  const std::string interface(request.interface.data(),
                              strnlen(request.interface.data(), request.interface.size()));
  if (!has_address(interface, bound.sin_addr.s_addr)) {
    return Status(ErrorCode::kInvalidArgument,
                  "the UDP socket is not bound to an address of interface '" + interface + "'");
  }
  if (request.mode > static_cast<std::uint32_t>(AttachMode::kGeneric)) {
    return Status(ErrorCode::kInvalidArgument, "there is no such mode");
  }
  XskOptions options;
  options.interface = static_cast<int>(if_nametoindex(interface.c_str()));
  options.end = {bound.sin_addr.s_addr, bound.sin_port};
  options.mode = static_cast<AttachMode>(request.mode);
  options.frame_bytes = request.frame_bytes;
  options.receive_frames = request.receive_frames;
  options.send_frames = request.send_frames;
  return options;
}

}  // namespace

Result<HelpedSocket> ask_helper(const std::string& path, const XskOptions& options,
                                int kernel_socket) {
  TUTTI_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  HelpedSocket it;
  it.connection.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (it.connection.get() < 0 ||
      connect(it.connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0) {
    return helper_failed("nobody listens at " + path);
  }
  const timeval timeout{.tv_sec = kAnswerS, .tv_usec = 0};
  (void)setsockopt(it.connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  Request request;
  request.mode = static_cast<std::uint32_t>(options.mode);
  request.frame_bytes = options.frame_bytes;
  request.receive_frames = options.receive_frames;
  request.send_frames = options.send_frames;
  if (if_indextoname(static_cast<unsigned>(options.interface), request.interface.data()) ==
      nullptr) {
    return helper_failed("interface " + std::to_string(options.interface));
  }
  if (!send_with(it.connection.get(), request, std::span(&kernel_socket, 1))) {
    return helper_failed("it takes no request");
  }
  Answer answer;
  std::vector<OwnedFd> descriptors;
  if (!receive_with(it.connection.get(), 0, &answer, &descriptors)) {
    return Status(ErrorCode::kUnavailable, "no answer, or one of another version");
  }
  if (answer.code != 0 || descriptors.size() != 2) {
    answer.message.back() = '\0';
    return Status(ErrorCode::kUnavailable, answer.message.data());
  }
  it.parts.socket = std::move(descriptors[0]);
  it.parts.memory = std::move(descriptors[1]);
  it.parts.queue = answer.queue;
  it.parts.mode = static_cast<AttachMode>(answer.mode);
  it.parts.is_zero_copy = answer.is_zero_copy != 0;
  return it;
}

struct HelperServer::State {
  struct Client {
    OwnedFd connection;
    OwnedFd kernel_socket;  ///< Keeps the port: it is nobody else's while it is served.
    XdpProgram program;
    bool is_served = false;
  };

  std::string path;
  OwnedFd listener;
  std::vector<Client> clients;

  /// False: the client has gone, or has asked for what it does not get.
  static bool serve(Client& client) {
    Request request;
    std::vector<OwnedFd> descriptors;
    if (!receive_with(client.connection.get(), MSG_DONTWAIT, &request, &descriptors)) {
      return false;
    }
    Answer answer;
    Result<XskParts> parts = Status(ErrorCode::kInvalidArgument, "a client has one socket");
    if (!client.is_served && descriptors.size() == 1) {
      const auto options = options_of(request, descriptors[0].get());
      parts = options.ok() ? open_xsk(*options, &client.program) : options.status();
    }
    if (!parts.ok()) {
      answer.code = static_cast<std::uint32_t>(parts.status().code());
      parts.status().message().copy(answer.message.data(), answer.message.size() - 1);
      (void)send_with(client.connection.get(), answer, {});
      return false;
    }
    answer.queue = parts->queue;
    answer.mode = static_cast<std::uint32_t>(parts->mode);
    answer.is_zero_copy = parts->is_zero_copy ? 1 : 0;
    client.kernel_socket = std::move(descriptors[0]);
    client.is_served = true;
    const int passed[] = {parts->socket.get(), parts->memory.get()};
    return send_with(client.connection.get(), answer, passed);
  }
};

HelperServer::HelperServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
HelperServer::HelperServer(HelperServer&&) noexcept = default;
HelperServer& HelperServer::operator=(HelperServer&&) noexcept = default;
HelperServer::~HelperServer() {
  if (state_ != nullptr) {
    (void)unlink(state_->path.c_str());
  }
}

Result<HelperServer> HelperServer::open(const std::string& path, unsigned mode) {
  TUTTI_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  auto state = std::make_unique<State>();
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  state->listener.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const OwnedFd other(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(other.get(), at, sizeof address) == 0) {
    return Status(ErrorCode::kUnavailable, "another helper listens at " + path);
  }
  if (errno == ECONNREFUSED) {
    (void)unlink(path.c_str());  // Of one that was killed.
  }
  const mode_t before = umask(0177);
  const bool is_bound = bind(state->listener.get(), at, sizeof address) == 0;
  umask(before);
  if (!is_bound || chmod(path.c_str(), mode) != 0 || listen(state->listener.get(), 16) != 0) {
    return helper_failed(path);
  }
  state->path = path;
  return HelperServer(std::move(state));
}

std::size_t HelperServer::clients() const { return state_->clients.size(); }

void HelperServer::serve(int timeout_ms) {
  std::vector<State::Client>& clients = state_->clients;
  std::vector<pollfd> waiting;
  // One more than it can have waits in the queue.
  const bool takes_more = clients.size() < kClientsMax;
  waiting.push_back({takes_more ? state_->listener.get() : -1, POLLIN, 0});
  for (const State::Client& client : clients) {
    waiting.push_back({client.connection.get(), POLLIN, 0});
  }
  if (poll(waiting.data(), waiting.size(), timeout_ms) <= 0) {
    return;
  }
  for (std::size_t i = clients.size(); i-- > 0;) {
    if (waiting[i + 1].revents != 0 && !State::serve(clients[i])) {
      clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (waiting[0].revents != 0) {
    OwnedFd connection(
        accept4(state_->listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() >= 0) {
      clients.emplace_back();
      clients.back().connection = std::move(connection);
    } else {
      (void)poll(nullptr, 0, kRetryMs);  // No descriptor is free, or the client has gone.
    }
  }
}

}  // namespace tutti::wire::xdp
