// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The rival to measure against: a network plugin (version 11) over TCP that does what NCCL's own
// socket transport does, in our own code, so that plugins are compared under the same driver. Not
// installed. What it takes over from NCCL 2.30 (src/transport/net_socket.cc):
//
//   TCP_NET_THREADS=0 (NCCL's default): one connection per comm. test() alone moves data, message
//     after message: 4 bytes of size, then the data.
//   TCP_NET_THREADS=1..16, TCP_NET_STREAMS=1..64 (per comm, at least one per thread): sizes go over
//     the control connection in test(). The data are cut into tasks of max(64 KiB, size / streams),
//     dealt in turn to the streams, and each thread moves the tasks of its own streams. A thread
//     without tasks sleeps, one with tasks polls its sockets and yields.
//
// One device: the first interface that NCCL_SOCKET_IFNAME allows, without it the first that is up
// and not the loopback, else the loopback. IPv4. TCP_NET_SPEED_MBPS is what it says of its speed.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl_net/abi.hpp"

namespace {

using namespace tutti::nccl_net::abi;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kTaskBytesMin = 64 * 1024;
constexpr int kThreadsMax = 16;
constexpr int kStreamsMax = 64;

struct Settings {
  int threads = 0;
  int streams = 0;  ///< Beside the control connection; 0: the data go over that one.
  int speed_mbps = 10000;
  std::string interface;
  in_addr address{};
};

Settings settings;
std::atomic<Logger*> logger{nullptr};

Result fail(Result result, const std::string& text) {
  if (Logger* const log = logger.load()) {
    log(LogLevel::kWarn, kLogAll, "tcp_net", 0, "NET/TcpBaseline : %s", text.c_str());
  }
  return result;
}

Result fail_errno(const char* what) {
  const int error = errno;
  const bool is_peer = error == ECONNRESET || error == EPIPE || error == ECONNREFUSED ||
                       error == ETIMEDOUT || error == ENOTCONN;
  return fail(is_peer ? Result::kRemoteError : Result::kSystemError,
              std::string(what) + ": " + std::strerror(error));
}

/// An open socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

/// Sends or receives what it can without waiting and moves `offset` on.
Result move_bytes(int fd, bool sends, void* data, std::size_t bytes, std::size_t* offset) {
  while (*offset < bytes) {
    char* const at = static_cast<char*>(data) + *offset;
    const ssize_t moved = sends ? send(fd, at, bytes - *offset, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : recv(fd, at, bytes - *offset, MSG_DONTWAIT);
    if (moved == 0) {
      return fail(Result::kRemoteError, "the peer has closed its connection");
    }
    if (moved < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno == EAGAIN ? Result::kSuccess : fail_errno(sends ? "send" : "recv");
    }
    *offset += static_cast<std::size_t>(moved);
  }
  return Result::kSuccess;
}

struct Request;
struct Comm;

/// A piece of a message on one stream.
struct Task {
  Request* request;
  std::byte* data;
  std::size_t bytes;
  std::size_t offset = 0;
};

struct Request {
  Comm* comm = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;  ///< Of a receive: the buffer's, then the message's.
  std::uint32_t size_field = 0;
  std::size_t size_offset = 0;  ///< Of size_field.
  std::size_t offset = 0;       ///< Of the data, without streams.
  bool is_dealt = false;        ///< To the streams.
  std::atomic<int> tasks_left{0};
  std::atomic<Result> result{Result::kSuccess};
  bool in_use = false;
};

/// One thread's streams with their tasks.
struct Worker {
  struct Stream {
    Socket socket;
    std::deque<Task> tasks;
  };
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Stream> streams;
  bool stop = false;
  std::thread thread;
};

struct Comm {
  bool sends = false;
  Socket control;
  std::vector<std::unique_ptr<Worker>> workers;
  int next_stream = 0;
  std::array<Request, kRequestsMax> requests;
  std::deque<Request*> queue;  ///< Not yet over (without streams) or not yet dealt.

  Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() {
    for (const auto& worker : workers) {
      {
        const std::scoped_lock lock(worker->mutex);
        worker->stop = true;
      }
      worker->wake.notify_one();
      worker->thread.join();
    }
  }
};

void work(Worker* worker, bool sends) {
  std::unique_lock lock(worker->mutex);
  while (true) {
    bool has_tasks = false;
    bool has_moved = false;
    for (Worker::Stream& stream : worker->streams) {
      if (stream.tasks.empty()) {
        continue;
      }
      has_tasks = true;
      // Only this thread takes from the queue, and a deque's elements stay while others are added.
      Task& task = stream.tasks.front();
      lock.unlock();
      const std::size_t before = task.offset;
      const Result result =
          move_bytes(stream.socket.fd(), sends, task.data, task.bytes, &task.offset);
      const bool is_over = result != Result::kSuccess || task.offset == task.bytes;
      has_moved |= task.offset != before;
      lock.lock();
      if (is_over) {
        if (result != Result::kSuccess) {
          task.request->result.store(result);
        }
        task.request->tasks_left.fetch_sub(1, std::memory_order_release);
        stream.tasks.pop_front();
      }
    }
    if (worker->stop) {
      return;
    }
    if (!has_tasks) {
      worker->wake.wait(lock);
    } else if (!has_moved) {
      lock.unlock();
      sched_yield();
      lock.lock();
    }
  }
}

/// Cuts a message whose size both sides know.
void deal(Comm* comm, Request* request) {
  const auto streams = static_cast<std::size_t>(settings.streams);
  const std::size_t task_bytes = std::max(kTaskBytesMin, (request->bytes + streams - 1) / streams);
  const std::size_t tasks = (request->bytes + task_bytes - 1) / task_bytes;
  request->tasks_left.store(static_cast<int>(tasks), std::memory_order_relaxed);
  request->is_dealt = true;
  for (std::size_t i = 0; i < tasks; ++i) {
    const std::size_t begin = i * task_bytes;
    const auto stream = static_cast<std::size_t>(comm->next_stream);
    comm->next_stream = (comm->next_stream + 1) % settings.streams;
    Worker& worker = *comm->workers[stream % comm->workers.size()];
    {
      const std::scoped_lock lock(worker.mutex);
      worker.streams[stream / comm->workers.size()].tasks.push_back(
          {request, request->data + begin, std::min(task_bytes, request->bytes - begin)});
    }
    worker.wake.notify_one();
  }
}

/// Moves what test() has to move: sizes, and the data where there are no streams.
Result pump(Comm* comm) {
  while (!comm->queue.empty()) {
    Request* const request = comm->queue.front();
    const int fd = comm->control.fd();
    if (request->size_offset < sizeof request->size_field) {
      const Result result = move_bytes(fd, comm->sends, &request->size_field,
                                       sizeof request->size_field, &request->size_offset);
      if (result != Result::kSuccess || request->size_offset < sizeof request->size_field) {
        return result;
      }
      if (request->size_field > request->bytes) {
        return fail(Result::kInvalidUsage, "a message of " + std::to_string(request->size_field) +
                                               " bytes for a buffer of " +
                                               std::to_string(request->bytes));
      }
      request->bytes = request->size_field;
    }
    if (settings.streams > 0) {
      deal(comm, request);
    } else {
      const Result result =
          move_bytes(fd, comm->sends, request->data, request->bytes, &request->offset);
      if (result != Result::kSuccess || request->offset < request->bytes) {
        return result;
      }
      request->is_dealt = true;
    }
    comm->queue.pop_front();
  }
  return Result::kSuccess;
}

Result post(Comm* comm, void* data, std::size_t bytes, void** request) {
  *request = nullptr;
  if (bytes > UINT32_MAX) {
    return fail(Result::kInvalidUsage, "messages of 4 GiB and more are not possible");
  }
  const auto found = std::find_if(comm->requests.begin(), comm->requests.end(),
                                  [](const Request& other) { return !other.in_use; });
  if (found == comm->requests.end()) {
    return Result::kSuccess;
  }
  found->comm = comm;
  found->data = static_cast<std::byte*>(data);
  found->bytes = bytes;
  found->size_field = static_cast<std::uint32_t>(bytes);
  found->size_offset = found->offset = 0;
  found->is_dealt = false;
  found->tasks_left.store(0, std::memory_order_relaxed);
  found->result.store(Result::kSuccess, std::memory_order_relaxed);
  found->in_use = true;
  comm->queue.push_back(&*found);
  *request = &*found;
  return Result::kSuccess;
}

// Connecting. Every connection begins with a Hello; the accepting side collects those of one comm.

struct Hello {
  std::uint64_t magic;
  std::uint64_t comm;   ///< Same for the connections of one comm.
  std::uint32_t index;  ///< 0: control; i + 1: stream i.
  std::uint32_t streams;
};

struct ConnectState {
  std::uint64_t comm = 0;
  std::vector<Socket> sockets;
};

struct Handle {
  sockaddr_in address;
  std::uint64_t magic;
  ConnectState* state;  ///< Of the connecting side.
};
static_assert(sizeof(Handle) <= kHandleBytes);

struct ListenComm {
  Socket socket;
  std::uint64_t magic = 0;
  struct Newcomer {
    Socket socket;
    Hello hello{};
    std::size_t offset = 0;
  };
  std::vector<Newcomer> newcomers;
  std::map<std::uint64_t, std::vector<Socket>> groups;  ///< By comm; sockets by their index.
};

std::uint64_t unique_number() {
  static std::atomic<std::uint64_t> count{0};
  const auto now =
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return (now << 16) ^ (static_cast<std::uint64_t>(getpid()) << 40) ^ ++count;
}

void tune(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

std::unique_ptr<Comm> make_comm(bool sends, std::vector<Socket> sockets) {
  auto comm = std::make_unique<Comm>();
  comm->sends = sends;
  comm->control = std::move(sockets[0]);
  const auto threads = static_cast<std::size_t>(settings.threads);
  for (std::size_t t = 0; t < threads; ++t) {
    auto worker = std::make_unique<Worker>();
    for (std::size_t i = t + 1; i < sockets.size(); i += threads) {
      worker->streams.emplace_back().socket = std::move(sockets[i]);
    }
    worker->thread = std::thread(work, worker.get(), sends);
    comm->workers.push_back(std::move(worker));
  }
  return comm;
}

int environment_number(const char* name, int low, int high, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::clamp(std::atoi(text), low, high);
}

/// True when NCCL_SOCKET_IFNAME allows the name: a list of prefixes, "=": exact, "^": all others.
bool is_allowed(const std::string& name, std::string list) {
  const bool negated = list.starts_with('^');
  list.erase(0, negated ? 1 : 0);
  const bool exact = list.starts_with('=');
  list.erase(0, exact ? 1 : 0);
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    if (exact ? name == item : !item.empty() && name.starts_with(item)) {
      return !negated;
    }
    begin = end + 1;
  }
  return negated;
}

bool find_interface() {
  const char* const wanted = std::getenv("NCCL_SOCKET_IFNAME");
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return false;
  }
  int best = 0;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET ||
        (at->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    const bool is_loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    int rank = is_loopback ? 1 : 2;
    if (wanted != nullptr && *wanted != '\0') {
      rank = is_allowed(at->ifa_name, wanted) ? 3 : 0;
    }
    if (rank > best) {
      best = rank;
      settings.interface = at->ifa_name;
      sockaddr_in address{};
      std::memcpy(&address, at->ifa_addr, sizeof address);
      settings.address = address.sin_addr;
    }
  }
  freeifaddrs(list);
  return best > 0;
}

// The table's functions.

Result tcp_init(void** context, std::uint64_t /*comm_id*/, CommConfig* /*config*/, Logger* log,
                Profiler* /*profiler*/) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  logger.store(log);
  settings.threads = environment_number("TCP_NET_THREADS", 0, kThreadsMax, 0);
  settings.streams = 0;
  if (settings.threads > 0) {
    settings.streams =
        environment_number("TCP_NET_STREAMS", settings.threads, kStreamsMax, settings.threads);
  }
  settings.speed_mbps = environment_number("TCP_NET_SPEED_MBPS", 1, 1'000'000, 10'000);
  if (!find_interface()) {
    return fail(Result::kSystemError, "no interface fits NCCL_SOCKET_IFNAME");
  }
  *context = new int(0);
  return Result::kSuccess;
}

Result tcp_finalize(void* context) {
  delete static_cast<int*>(context);
  return Result::kSuccess;
}

Result tcp_devices(int* count) {
  *count = 1;
  return Result::kSuccess;
}

Result tcp_properties(int device, Properties<11>* properties) {
  *properties = {};
  properties->name = settings.interface.data();
  properties->guid = 1;
  properties->pointer_support = kPointerHost;
  properties->speed_mbps = settings.speed_mbps;
  properties->comms_max = 65536;
  properties->receives_max = 1;
  properties->virtual_device = {.count = 1, .devices = {device}};
  properties->p2p_bytes_max = properties->collective_bytes_max = kMessageBytesMax;
  properties->multi_request_max = 1;
  return Result::kSuccess;
}

Result tcp_listen(void* /*context*/, int /*device*/, void* handle, void** listen_comm) {
  *listen_comm = nullptr;
  auto comm = std::make_unique<ListenComm>();
  comm->socket = Socket(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  Handle made{};
  made.address.sin_family = AF_INET;
  made.address.sin_addr = settings.address;
  socklen_t bytes = sizeof made.address;
  auto* const address = reinterpret_cast<sockaddr*>(&made.address);
  if (comm->socket.fd() < 0 || bind(comm->socket.fd(), address, bytes) != 0 ||
      listen(comm->socket.fd(), 1024) != 0 ||
      getsockname(comm->socket.fd(), address, &bytes) != 0) {
    return fail_errno("listen");
  }
  comm->magic = made.magic = unique_number();
  std::memset(handle, 0, kHandleBytes);
  std::memcpy(handle, &made, sizeof made);
  *listen_comm = comm.release();
  return Result::kSuccess;
}

/// Opens the connections one after the other; each is up when its Hello has gone out.
Result tcp_connect(void* /*context*/, int /*device*/, void* handle, void** send_comm,
                   DeviceHandle** /*device_handle*/) {
  *send_comm = nullptr;
  Handle known;
  std::memcpy(&known, handle, sizeof known);
  if (known.state == nullptr) {
    known.state = new ConnectState{.comm = unique_number(), .sockets = {}};
    std::memcpy(handle, &known, sizeof known);
  }
  std::unique_ptr<ConnectState> state(known.state);
  const auto wanted = static_cast<std::size_t>(settings.streams) + 1;
  const auto give_up = [&](const char* what) {
    known.state = nullptr;
    std::memcpy(handle, &known, sizeof known);
    return fail_errno(what);
  };
  while (state->sockets.size() < wanted) {
    Socket made(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (made.fd() < 0) {
      return give_up("socket");
    }
    const int status = ::connect(made.fd(), reinterpret_cast<const sockaddr*>(&known.address),
                                 sizeof known.address);
    if (status != 0 && errno != EINPROGRESS) {
      return give_up("connect");
    }
    state->sockets.push_back(std::move(made));
  }
  std::vector<pollfd> polled;
  for (const Socket& socket : state->sockets) {
    polled.push_back({.fd = socket.fd(), .events = POLLOUT, .revents = 0});
  }
  const int ready = poll(polled.data(), polled.size(), 0);
  if (ready < static_cast<int>(wanted)) {
    state.release();  // NOLINT(bugprone-unused-return-value): lives on in the handle.
    return Result::kSuccess;
  }
  for (std::size_t i = 0; i < wanted; ++i) {
    int error = 0;
    socklen_t bytes = sizeof error;
    const int fd = state->sockets[i].fd();
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    tune(fd);
    const Hello hello{known.magic, state->comm, static_cast<std::uint32_t>(i),
                      static_cast<std::uint32_t>(settings.streams)};
    // A new connection has room for these bytes.
    if (error == 0 && send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
      error = errno;
    }
    if (error != 0) {
      errno = error;
      return give_up("connect");
    }
  }
  known.state = nullptr;
  std::memcpy(handle, &known, sizeof known);
  *send_comm = make_comm(true, std::move(state->sockets)).release();
  return Result::kSuccess;
}

Result tcp_accept(void* listen_comm, void** recv_comm, DeviceHandle** /*device_handle*/) {
  *recv_comm = nullptr;
  auto* const comm = static_cast<ListenComm*>(listen_comm);
  while (true) {
    Socket made(accept4(comm->socket.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (made.fd() < 0) {
      if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) {
        break;
      }
      return fail_errno("accept");
    }
    comm->newcomers.emplace_back().socket = std::move(made);
  }
  for (auto at = comm->newcomers.begin(); at != comm->newcomers.end();) {
    const Result result =
        move_bytes(at->socket.fd(), false, &at->hello, sizeof at->hello, &at->offset);
    if (result == Result::kSuccess && at->offset < sizeof at->hello) {
      ++at;
      continue;
    }
    const Hello& hello = at->hello;
    if (result == Result::kSuccess && hello.magic == comm->magic) {
      if (hello.streams != static_cast<std::uint32_t>(settings.streams) ||
          hello.index > hello.streams) {
        return fail(Result::kInvalidUsage, "the peer has other TCP_NET_STREAMS or TCP_NET_THREADS");
      }
      tune(at->socket.fd());
      auto& group = comm->groups[hello.comm];
      group.resize(hello.streams + 1);
      group[hello.index] = std::move(at->socket);
    }
    at = comm->newcomers.erase(at);
  }
  for (auto& [id, group] : comm->groups) {
    if (std::all_of(group.begin(), group.end(), [](const Socket& one) { return one.fd() >= 0; })) {
      *recv_comm = make_comm(false, std::move(group)).release();
      comm->groups.erase(id);
      break;
    }
  }
  return Result::kSuccess;
}

Result tcp_reg_mr(void* comm, void* /*data*/, std::size_t /*bytes*/, int type, void** mhandle) {
  *mhandle = comm;
  return type == kPointerHost ? Result::kSuccess
                              : fail(Result::kInternalError, "only host memory can be registered");
}

Result tcp_dereg_mr(void* /*comm*/, void* /*mhandle*/) { return Result::kSuccess; }

Result tcp_isend(void* send_comm, void* data, std::size_t bytes, int /*tag*/, void* /*mhandle*/,
                 void* /*profiler_handle*/, void** request) {
  return post(static_cast<Comm*>(send_comm), data, bytes, request);
}

Result tcp_irecv(void* recv_comm, int parts, void** data, std::size_t* bytes, int* /*tags*/,
                 void** /*mhandles*/, void** /*profiler_handles*/, void** request) {
  *request = nullptr;
  if (parts != 1) {
    return fail(Result::kInvalidArgument, "grouped receives are not possible");
  }
  return post(static_cast<Comm*>(recv_comm), data[0], bytes[0], request);
}

Result tcp_iflush(void* /*recv_comm*/, int /*parts*/, void** /*data*/, int* /*bytes*/,
                  void** /*mhandles*/, void** request) {
  *request = nullptr;
  return Result::kSuccess;
}

Result tcp_test(void* opaque, int* done, int* bytes) {
  *done = 0;
  auto* const request = static_cast<Request*>(opaque);
  const Result pumped = pump(request->comm);
  if (pumped != Result::kSuccess) {
    return pumped;
  }
  if (const Result result = request->result.load(); result != Result::kSuccess) {
    return result;
  }
  if (request->is_dealt && request->tasks_left.load(std::memory_order_acquire) == 0) {
    *done = 1;
    if (bytes != nullptr) {
      *bytes = static_cast<int>(request->bytes);
    }
    request->in_use = false;
  }
  return Result::kSuccess;
}

Result tcp_close(void* comm) {
  delete static_cast<Comm*>(comm);
  return Result::kSuccess;
}

Result tcp_close_listen(void* comm) {
  delete static_cast<ListenComm*>(comm);
  return Result::kSuccess;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name that NCCL looks for.
extern "C" [[gnu::visibility("default")]] const Net<11> ncclNetPlugin_v11;
// NOLINTNEXTLINE(readability-identifier-naming)
constinit const Net<11> ncclNetPlugin_v11 = {.calls = {.name = "TcpBaseline",
                                                       .init = tcp_init,
                                                       .devices = tcp_devices,
                                                       .get_properties = tcp_properties,
                                                       .listen = tcp_listen,
                                                       .connect = tcp_connect,
                                                       .accept = tcp_accept,
                                                       .reg_mr = tcp_reg_mr,
                                                       .reg_mr_dma_buf = nullptr,
                                                       .dereg_mr = tcp_dereg_mr,
                                                       .isend = tcp_isend,
                                                       .irecv = tcp_irecv,
                                                       .iflush = tcp_iflush,
                                                       .test = tcp_test,
                                                       .close_send = tcp_close,
                                                       .close_recv = tcp_close,
                                                       .close_listen = tcp_close_listen},
                                             .get_device_mr = nullptr,
                                             .irecv_consumed = nullptr,
                                             .make_virtual_device = nullptr,
                                             .finalize = tcp_finalize,
                                             .set_attributes = nullptr};
