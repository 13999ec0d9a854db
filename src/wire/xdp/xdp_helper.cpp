// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/xdp_helper.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace tutti::wire::xdp {

inline constexpr std::uint32_t kHelperMagic = 0x78647033;  ///< Also the version of what follows.

struct HelperRequest {
  std::uint32_t magic = kHelperMagic;
  std::uint32_t mode = 0;
  std::uint32_t frame_bytes = 0;
  std::uint32_t receive_frames = 0;
  std::uint32_t send_frames = 0;
  std::array<char, IFNAMSIZ> interface {};
};

/// A client's request, and what came with it. A thread of its own looks at it: another process can
/// hold the lock of its socket for as long as it likes.
struct HelperCheck {
  HelperRequest request;
  std::vector<Descriptor> descriptors;
  Result<XskOptions> options = Status(ErrorCode::kInvalidArgument, "a client has one socket");
  std::atomic<bool> is_done = false;

  ~HelperCheck() {
    // close() would wait until a peer has taken what was sent.
    const linger none{};
    for (const Descriptor& it : descriptors) {
      (void)setsockopt(it.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    }
  }
};

namespace {

constexpr time_t kAnswerS = 5;
constexpr std::size_t kClientsMax = 1024;
constexpr std::size_t kClientsOfUserMax = 64;
constexpr std::size_t kClosersMax = 1024;
constexpr std::uint64_t kUnservedNs = 2'000'000'000;  ///< Then a client that has no socket leaves.
constexpr int kLookMs = 500;                          ///< Between looks at clients that are silent.
constexpr int kRetryMs = 10;
constexpr unsigned kAskAgainUs = 10'000;
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
/// SIOCGSKNS (Linux 4.10): the network namespace of a socket.
constexpr unsigned long kGetNamespace = 0x894C;

struct Answer {
  std::uint32_t magic = kHelperMagic;
  std::uint32_t code = 0;  ///< An ErrorCode.
  std::uint32_t queue = 0;
  std::uint32_t mode = 0;
  std::uint32_t is_zero_copy = 0;
  std::uint32_t native_error = 0;
  std::array<char, 512> message{};
};

Status helper_failed(const std::string& what) {
  return Status(ErrorCode::kUnavailable, what + ": " + std::strerror(errno));
}

template <class T>
bool send_with(int socket, const T& value, std::span<const int> descriptors) {
  return send_with_descriptors(socket, std::as_bytes(std::span(&value, 1)), descriptors);
}

template <class T>
bool receive_with(int socket, int flags, T* value, std::vector<Descriptor>* descriptors) {
  return receive_with_descriptors(socket, flags, std::as_writable_bytes(std::span(value, 1)),
                                  descriptors) &&
         value->magic == kHelperMagic;
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
  const Descriptor its(ioctl(socket, kGetNamespace));
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

bool is_ethernet(const std::string& interface) {
  const Descriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return interface.size() < IFNAMSIZ && ioctl(any.get(), SIOCGIFHWADDR, &request) == 0 &&
         request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
}

/// The UDP sockets of the network namespace. `with_any_of_v6`: also those bound to [::]. They share
/// a port with IPv4 or do not (IPV6_V6ONLY), which the kernel does not tell here.
class BoundPorts {
 public:
  explicit BoundPorts(bool with_any_of_v6) {
    is_complete_ = read("/proc/thread-self/net/udp", [this](const char* line) {
      std::uint32_t address = 0;
      unsigned port = 0;
      if (std::sscanf(line, "%*u: %8x:%4x", &address, &port) == 2) {
        ends_.push_back({address, htons(static_cast<std::uint16_t>(port))});
      }
    });
    const auto take_v6 = [this, with_any_of_v6](const char* line) {
      std::uint32_t words[4] = {};
      unsigned port = 0;
      // Addresses of IPv4 begin with 0:0:ffff.
      if (std::sscanf(line, "%*u: %8x%8x%8x%8x:%4x", &words[0], &words[1], &words[2], &words[3],
                      &port) == 5 &&
          words[0] == 0 && words[1] == 0 &&
          (words[2] == htonl(0xffff) || (with_any_of_v6 && words[2] == 0 && words[3] == 0))) {
        ends_.push_back({words[3], htons(static_cast<std::uint16_t>(port))});
      }
    };
    // A kernel without IPv6 has no such table.
    is_complete_ = (read("/proc/thread-self/net/udp6", take_v6) || errno == ENOENT) && is_complete_;
  }

  /// False: a table could not be read; nothing is known of any port.
  bool is_complete() const { return is_complete_; }

  /// Whether one socket has it, and no more. Several can if they allowed it, or were bound to
  /// different interfaces, at the time of bind().
  bool is_of_one(const UdpEnd& end) const {
    return std::count_if(ends_.begin(), ends_.end(), [&](const UdpEnd& it) {
             return it.port == end.port && (it.address == end.address || it.address == 0);
           }) == 1;
  }

 private:
  template <class Take>
  static bool read(const char* path, Take&& take) {
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) {
      return false;
    }
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      take(line);
    }
    const bool is_whole = std::ferror(file) == 0;
    std::fclose(file);
    return is_whole;
  }

  std::vector<UdpEnd> ends_;
  bool is_complete_ = false;
};

/// Whether its options forbid that others are bound to the same address and port.
bool is_exclusive(int kernel_socket) {
  return option_of(kernel_socket, SO_REUSEADDR) == 0 &&
         option_of(kernel_socket, SO_REUSEPORT) == 0 &&
         option_of(kernel_socket, SO_BINDTOIFINDEX) == 0;
}

/// Makes the socket keep its port as long as it is open. One that bind() chose (port 0) can be
/// given up by connect(AF_UNSPEC), also through another descriptor of the same socket; one that
/// bind() was told cannot. False: the port has been somebody else's for a moment, or still is.
bool pin_port(int kernel_socket, const sockaddr_in& bound) {
  const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
  const auto disconnect = [&] { return connect(kernel_socket, &none, sizeof none) == 0; };
  // EINVAL: it keeps its port already.
  if (!disconnect() ||
      (bind(kernel_socket, reinterpret_cast<const sockaddr*>(&bound), sizeof bound) != 0 &&
       errno != EINVAL) ||
      !disconnect()) {
    return false;
  }
  sockaddr_in now{};
  socklen_t bytes = sizeof now;
  return getsockname(kernel_socket, reinterpret_cast<sockaddr*>(&now), &bytes) == 0 &&
         now.sin_addr.s_addr == bound.sin_addr.s_addr && now.sin_port == bound.sin_port;
}

/// What a client asks for, if it may: what comes to the UDP socket that it shows.
Result<XskOptions> options_of(const HelperOptions& allowed, uid_t user,
                              const HelperRequest& request, int kernel_socket) {
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
  if (std::find(allowed.interfaces.begin(), allowed.interfaces.end(), interface) ==
          allowed.interfaces.end() ||
      !is_ethernet(interface)) {
    return Status(ErrorCode::kInvalidArgument, "it does not serve interface '" + interface +
                                                   "' (tutti-xdp-helper --interface NAME)");
  }
  if (!has_address(interface, bound.sin_addr.s_addr)) {
    return Status(ErrorCode::kInvalidArgument,
                  "the UDP socket is not bound to an address of interface '" + interface + "'");
  }
  const bool is_pinned =
      is_exclusive(kernel_socket) && pin_port(kernel_socket, bound) && is_exclusive(kernel_socket);
  const BoundPorts ports(true);
  if (!ports.is_complete()) {
    return helper_failed("the helper cannot read /proc/net/udp");
  }
  if (!is_pinned || !ports.is_of_one({bound.sin_addr.s_addr, bound.sin_port})) {
    return Status(ErrorCode::kInvalidArgument,
                  "the UDP socket's port may be another socket's, too (SO_REUSEADDR, SO_REUSEPORT, "
                  "SO_BINDTODEVICE, or bound by another process)");
  }
  if (request.mode > static_cast<std::uint32_t>(AttachMode::kGeneric)) {
    return Status(ErrorCode::kInvalidArgument, "there is no such mode");
  }
  XskOptions options;
  options.interface = static_cast<int>(if_nametoindex(interface.c_str()));
  options.end = {bound.sin_addr.s_addr, bound.sin_port};
  // The mode is one for all users of the interface.
  options.mode = user == 0 ? static_cast<AttachMode>(request.mode) : AttachMode::kAny;
  options.frame_bytes = request.frame_bytes;
  options.receive_frames = request.receive_frames;
  options.send_frames = request.send_frames;
  options.allows_zero_copy = allowed.allows_zero_copy;
  options.queue_wait_ns = 0;  // The client asks again.
  return options;
}

/// kTimeout: no queue is free now.
Result<HelpedSocket> ask_once(const std::string& path, const XskOptions& options,
                              int kernel_socket) {
  TUTTI_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  HelpedSocket it;
  it.connection.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  // connect() waits while the helper's queue of connections is full.
  const timeval timeout{.tv_sec = kAnswerS, .tv_usec = 0};
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    (void)setsockopt(it.connection.get(), SOL_SOCKET, option, &timeout, sizeof timeout);
  }
  if (it.connection.get() < 0 ||
      connect(it.connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0) {
    return helper_failed("nobody listens at " + path);
  }
  HelperRequest request;
  request.mode = static_cast<std::uint32_t>(options.mode);
  request.frame_bytes = options.frame_bytes;
  request.receive_frames = options.receive_frames;
  request.send_frames = options.send_frames;
  if (if_indextoname(static_cast<unsigned>(options.interface), request.interface.data()) ==
      nullptr) {
    return helper_failed("interface " + std::to_string(options.interface));
  }
  if (!send_with(it.connection.get(), request, std::span(&kernel_socket, 1))) {
    return helper_failed("the request cannot be sent");
  }
  Answer answer;
  std::vector<Descriptor> descriptors;
  errno = 0;
  if (!receive_with(it.connection.get(), 0, &answer, &descriptors)) {
    return Status(ErrorCode::kUnavailable,
                  errno == EAGAIN
                      ? "no answer within " + std::to_string(kAnswerS) + " s"
                      : "it closed the connection (a user has at most " +
                            std::to_string(kClientsOfUserMax) +
                            "), or is of another version of Tutti; update it and restart it");
  }
  if (answer.code != 0 || descriptors.size() != 2) {
    answer.message.back() = '\0';
    return Status(answer.code == static_cast<std::uint32_t>(ErrorCode::kTimeout)
                      ? ErrorCode::kTimeout
                      : ErrorCode::kUnavailable,
                  answer.message.data());
  }
  it.parts.socket = std::move(descriptors[0]);
  it.parts.memory = std::move(descriptors[1]);
  it.parts.queue = answer.queue;
  it.parts.mode = static_cast<AttachMode>(answer.mode);
  it.parts.is_zero_copy = answer.is_zero_copy != 0;
  it.parts.native_error = static_cast<int>(answer.native_error);
  return it;
}

/// Runs it in a thread that nobody waits for. False: there is none to be had, and it did not run.
bool run_elsewhere(const std::shared_ptr<std::function<void()>>& body) {
  try {
    std::thread([body] { (*body)(); }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace

Result<HelpedSocket> ask_helper(const std::string& path, const XskOptions& options,
                                int kernel_socket) {
  const std::uint64_t until_ns = monotonic_ns() + options.queue_wait_ns;
  for (;;) {
    auto asked = ask_once(path, options, kernel_socket);
    if (asked.ok() || asked.status().code() != ErrorCode::kTimeout) {
      return asked;
    }
    if (monotonic_ns() >= until_ns) {
      return Status(ErrorCode::kUnavailable, asked.status().message());
    }
    usleep(kAskAgainUs);
  }
}

struct HelperServer::State {
  struct Client {
    Descriptor connection;
    uid_t user = 0;
    std::shared_ptr<void> seat;  ///< Of its user's kClientsOfUserMax.
    std::uint64_t until_ns = 0;  ///< It must be served by then.
    std::shared_ptr<HelperCheck> check;

    // Since it is served:
    Descriptor kernel_socket;  ///< Keeps the port: it is nobody else's.
    XdpProgram program;
    std::optional<std::uint32_t> queue;
    UdpEnd end;

    Client() = default;
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() { leave(); }

    /// The port may be somebody else's afterwards. The client can keep its AF_XDP socket, and other
    /// connections the program: so nothing may lead there any more.
    void leave() {
      if (queue) {
        program.remove(*std::exchange(queue, std::nullopt), end);
      }
      program = XdpProgram();
      kernel_socket.reset();
    }
  };

  HelperOptions options;
  Descriptor lock;
  Descriptor listener;
  struct stat bound {};  ///< The socket's file.
  std::vector<std::unique_ptr<Client>> clients;
  std::map<uid_t, std::shared_ptr<std::atomic<std::size_t>>> seats;
  std::uint64_t look_ns = 0;  ///< When the clients' ports are looked at.
  // Threads may outlive the server.
  std::shared_ptr<Descriptor> wake_event = std::make_shared<Descriptor>();
  std::shared_ptr<std::atomic<std::size_t>> closers = std::make_shared<std::atomic<std::size_t>>(0);

  ~State() {
    clients.clear();
    struct stat there {};
    if (lstat(options.path.c_str(), &there) == 0 && bound.st_ino != 0 &&
        there.st_ino == bound.st_ino && there.st_dev == bound.st_dev) {
      (void)unlink(options.path.c_str());
    }
  }

  /// Closes what came from a client.
  void dispose(std::unique_ptr<Client> client) const {
    client->leave();
    ++*closers;
    const auto close = std::make_shared<std::function<void()>>(
        [client = std::shared_ptr<Client>(std::move(client)), count = closers]() mutable {
          client.reset();
          --*count;
        });
    if (!run_elsewhere(close)) {
      (*close)();
    }
  }

  void accept_client() {
    Descriptor connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() < 0) {
      (void)poll(nullptr, 0, kRetryMs);  // No descriptor is free, or the client has gone.
      return;
    }
    ucred who{};
    socklen_t bytes = sizeof who;
    const bool is_known = getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0;
    auto client = std::make_unique<Client>();
    client->connection = std::move(connection);
    client->user = who.uid;
    client->until_ns = monotonic_ns() + kUnservedNs;
    auto& taken = seats[who.uid];
    if (taken == nullptr) {
      taken = std::make_shared<std::atomic<std::size_t>>(0);
    }
    client->seat = std::shared_ptr<void>(nullptr, [taken](void*) { --*taken; });
    if (!is_known || (++*taken > kClientsOfUserMax && who.uid != 0)) {
      dispose(std::move(client));
      return;
    }
    clients.push_back(std::move(client));
  }

  /// False: the client has gone, or sends what is no request.
  bool take_request(Client& client) const {
    auto check = std::make_shared<HelperCheck>();
    // Also what follows a request: there is one for each connection.
    if (client.queue || client.check != nullptr ||
        !receive_with(client.connection.get(), MSG_DONTWAIT, &check->request,
                      &check->descriptors)) {
      client.check = client.check != nullptr ? client.check : check;
      return false;
    }
    client.check = check;
    const auto look = std::make_shared<std::function<void()>>(
        [check, allowed = options, user = client.user, seat = client.seat, wake = wake_event] {
          if (check->descriptors.size() == 1) {
            check->options = options_of(allowed, user, check->request, check->descriptors[0].get());
          }
          check->is_done = true;
          (void)eventfd_write(wake->get(), 1);
        });
    if (!run_elsewhere(look)) {
      check->options = Status(ErrorCode::kUnavailable, "the helper cannot start a thread");
      check->is_done = true;
    }
    return true;
  }

  /// Answers a request that was looked at. False: the client does not get it.
  static bool answer(Client& client) {
    Answer answer;
    const std::shared_ptr<HelperCheck>& check = client.check;
    Result<XskParts> parts =
        check->options.ok() ? open_xsk(*check->options, &client.program) : check->options.status();
    if (!parts.ok()) {
      answer.code = static_cast<std::uint32_t>(parts.status().code());
      parts.status().message().copy(answer.message.data(), answer.message.size() - 1);
      (void)send_with(client.connection.get(), answer, {});
      return false;
    }
    answer.queue = parts->queue;
    answer.mode = static_cast<std::uint32_t>(parts->mode);
    answer.is_zero_copy = parts->is_zero_copy ? 1 : 0;
    answer.native_error = static_cast<std::uint32_t>(parts->native_error);
    client.queue = parts->queue;
    client.end = check->options->end;
    client.kernel_socket = std::move(check->descriptors[0]);
    client.check.reset();
    const int passed[] = {parts->socket.get(), parts->memory.get()};
    return send_with(client.connection.get(), answer, passed);
  }

  /// False: it leaves. `ports`: null between looks.
  bool serve(Client& client, bool has_sent, std::uint64_t now, const BoundPorts* ports) const {
    if (has_sent && !take_request(client)) {
      return false;
    }
    if (client.check != nullptr && client.check->is_done && !answer(client)) {
      return false;
    }
    if (!client.queue) {
      return now < client.until_ns;
    }
    // The options of its socket can change after it was looked at, and let others to the port.
    if (ports == nullptr ||
        (is_exclusive(client.kernel_socket.get()) && ports->is_of_one(client.end))) {
      return true;
    }
    if (options.on_refusal) {
      options.on_refusal("user " + std::to_string(client.user) + " is served no more on queue " +
                         std::to_string(*client.queue) + ": another socket may have its UDP port " +
                         std::to_string(ntohs(client.end.port)));
    }
    return false;
  }
};

HelperServer::HelperServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
HelperServer::HelperServer(HelperServer&&) noexcept = default;
HelperServer& HelperServer::operator=(HelperServer&&) noexcept = default;
HelperServer::~HelperServer() = default;

Result<HelperServer> HelperServer::open(HelperOptions options) {
  const std::string path = options.path;
  TUTTI_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  for (const std::string& interface : options.interfaces) {
    if (!is_ethernet(interface)) {
      return Status(ErrorCode::kInvalidArgument,
                    "there is no Ethernet interface '" + interface + "'");
    }
  }
  auto state = std::make_unique<State>();
  const std::string lock_path = path + ".lock";
  state->lock.reset(
      ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (state->lock.get() < 0) {
    return helper_failed(lock_path);
  }
  if (flock(state->lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK
               ? Status(ErrorCode::kUnavailable, "another helper listens at " + path)
               : helper_failed(lock_path);
  }
  // Of one that was killed. What is no socket is somebody else's.
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      return Status(ErrorCode::kInvalidArgument, path + " is there already, and is no socket");
    }
    if (unlink(path.c_str()) != 0) {
      return helper_failed(path);
    }
  }
  state->wake_event->reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  state->listener.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const mode_t before = umask(0177);
  const bool is_bound =
      bind(state->listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  umask(before);
  if (!is_bound || state->wake_event->get() < 0) {
    return helper_failed(path);
  }
  state->options = std::move(options);
  if (lstat(path.c_str(), &state->bound) != 0 || chmod(path.c_str(), state->options.mode) != 0 ||
      listen(state->listener.get(), 16) != 0) {
    return helper_failed(path);
  }
  return HelperServer(std::move(state));
}

std::size_t HelperServer::clients() const { return state_->clients.size(); }

void HelperServer::serve(int timeout_ms) {
  auto& clients = state_->clients;
  std::vector<pollfd> waiting;
  // One more than it can have waits in the queue.
  const bool takes_more = clients.size() < kClientsMax && *state_->closers < kClosersMax;
  waiting.push_back({takes_more ? state_->listener.get() : -1, POLLIN, 0});
  waiting.push_back({state_->wake_event->get(), POLLIN, 0});
  const std::size_t first = waiting.size();
  for (const auto& client : clients) {
    waiting.push_back({client->connection.get(), POLLIN, 0});
  }
  if (poll(waiting.data(), waiting.size(),
           timeout_ms < 0 ? kLookMs : std::min(timeout_ms, kLookMs)) < 0) {
    return;
  }
  eventfd_t count = 0;
  (void)eventfd_read(state_->wake_event->get(), &count);
  const std::uint64_t now = monotonic_ns();
  std::optional<BoundPorts> ports;
  if (now >= state_->look_ns && !clients.empty()) {
    ports.emplace(false);  // Anybody can bind [::] alone, which must not end a job's service.
    if (!ports->is_complete()) {
      ports.reset();  // No descriptor is free, for example. That must not end it either.
    }
    state_->look_ns = now + std::uint64_t{kLookMs} * 1'000'000;
  }
  for (std::size_t i = clients.size(); i-- > 0;) {
    if (!state_->serve(*clients[i], waiting[first + i].revents != 0, now,
                       ports ? &*ports : nullptr)) {
      state_->dispose(std::move(clients[i]));
      clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (waiting[0].revents != 0) {
    state_->accept_client();
  }
}

}  // namespace tutti::wire::xdp
