// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Fake of libibverbs.so.1, never installed: two InfiniBand devices, fake_0 and fake_1, whose queue
// pairs reach each other within this process. RC, UC and UD with immediate data, shared receive
// queues. The fake NIC works when somebody polls. Strict: it aborts on a payload that was touched
// before its send completed, on memory that is not registered, on a state, depth or size that a
// NIC would refuse, and when something is destroyed that is still in use.
#include "support/fake_verbs.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "wire/verbs/driver_verbs.hpp"

namespace verbs = tutti::wire::verbs;

struct tutti::wire::verbs::Device {
  std::string name;
  std::uint8_t number = 0;
};

namespace {

using tutti::testing::FakeVerbsControl;

constexpr int kNotReady = 13;  // IBV_WC_RNR_RETRY_EXC_ERR
constexpr int kGaveUp = 12;    // IBV_WC_RETRY_EXC_ERR
constexpr int kAccess = 10;    // IBV_WC_REM_ACCESS_ERR
constexpr int kBind = 1000;    // No opcode of the library's.
constexpr int kLatePolls = 40;

void require(bool is_so, const char* what) {
  if (!is_so) {
    std::fprintf(stderr, "fake_verbs: %s\n", what);
    std::abort();
  }
}

struct FakeContext : verbs::ExtendedContext {
  std::deque<verbs::AsyncEvent> events;
};

/// Each event of a completion queue's is one of its descriptor's, an eventfd.
struct FakeChannel : verbs::CompletionChannel {
  std::deque<verbs::Cq*> told;
};

struct FakeCq : verbs::ExtendedCq {
  struct Done {
    verbs::Completion it;
    std::uint64_t ticks;  ///< Of the NIC's clock.
  };
  std::deque<Done> done;
  Done current = {};  ///< Between start_poll() and end_poll().
  bool is_stamped = false;
  bool is_polled = false;
  int users = 0;
  bool is_armed = false;
  unsigned events = 0;  ///< Told and not acknowledged.
};

FakeContext& fake_of(verbs::Context* context) {
  return static_cast<FakeContext&>(*reinterpret_cast<verbs::ExtendedContext*>(
      reinterpret_cast<std::byte*>(context) - offsetof(verbs::ExtendedContext, context)));
}

FakeCq& fake_of(verbs::Cq* cq) {
  return static_cast<FakeCq&>(*reinterpret_cast<verbs::ExtendedCq*>(cq));
}

struct FakeSrq : verbs::Srq {
  struct Buffer {
    std::uint64_t id = 0;
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
  };
  std::deque<Buffer> buffers;
  std::size_t buffers_max = 0;
  int users = 0;
};

struct FakeMr : verbs::Mr {
  std::uint64_t begin = 0;  ///< `address`, but of a dma-buf.
  int access = 0;
  bool is_dma_buf = false;
};

struct Send {
  std::uint64_t id = 0;
  std::vector<verbs::Segment> segments;  ///< Empty: inline.
  std::vector<std::byte> content;        ///< As it was when it was posted.
  std::uint32_t immediate = 0;
  bool is_signaled = false;
  std::uint32_t to_qp = 0;
  std::uint32_t qkey = 0;
  int opcode = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  verbs::Bind bind = {};      ///< With kBind.
  std::uint32_t old_key = 0;  ///< Same, of its window.
};

struct Late {
  Send send;
  int status = 0;
  std::uint64_t due = 0;
};

/// What the network has copied.
struct Ghost {
  Send send;
  std::uint32_t from = 0;
  std::uint64_t due = 0;
};

struct FakeQp : verbs::Qp {
  std::deque<Send> queue;  ///< Not yet on its way.
  std::deque<Late> late;   ///< Arrived, not yet completed. In order.
  std::uint32_t depth = 0;
  std::uint32_t inline_bytes = 0;
  std::uint32_t remote = 0;
  std::uint32_t qkey = 0;
  int remote_mtu = 0;
  int reads = 0;  ///< It may have under way.
};

std::mutex mutex;  // Of all below.
std::deque<Ghost> ghosts;
FakeVerbsControl control;
tutti::Random draws(1);

bool happens(double chance) {
  return chance > 0 && draws.next() % 1'000'000 < static_cast<std::uint64_t>(chance * 1e6);
}

verbs::Device devices[2] = {{"fake_0", 0}, {"fake_1", 1}};
std::map<std::uint32_t, FakeQp*> qps;
std::map<std::uint32_t, FakeMr*> regions;  // By local key.
struct Opened {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  const verbs::Mr* mr = nullptr;
};
std::map<std::uint32_t, Opened> opened;  // Memory windows that are, by key.
std::uint32_t next_number = 0x100;
std::uint32_t next_key = 0x1000;
std::uint64_t polls = 0;

void check_segment(const verbs::Segment& segment) {
  const auto found = regions.find(segment.local_key);
  require(found != regions.end(), "a key of no registered memory");
  const std::uint64_t begin = found->second->begin;
  require(
      segment.address >= begin && segment.address + segment.bytes <= begin + found->second->bytes,
      "a segment outside its registered memory");
}

bool is_device(const void* memory) {
  return control.is_device_memory != nullptr && control.is_device_memory(memory);
}

/// As a NIC: also from and to memory of GPUs.
void transfer(void* to, const void* from, std::size_t bytes) {
  if (control.copy != nullptr && bytes > 0 && (is_device(to) || is_device(from))) {
    control.copy(to, from, bytes);
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

std::vector<std::byte> gather(const std::vector<verbs::Segment>& segments) {
  std::vector<std::byte> content;
  for (const verbs::Segment& it : segments) {
    const std::size_t before = content.size();
    content.resize(before + it.bytes);
    transfer(content.data() + before, reinterpret_cast<const void*>(it.address), it.bytes);
  }
  return content;
}

void add(verbs::Cq* cq, const verbs::Completion& it) {
  FakeCq& fake = fake_of(cq);
  require(static_cast<int>(fake.done.size()) < cq->entries, "a completion queue overflows");
  fake.done.push_back(
      {it, (control.clock.now() + control.clock.stamps_ahead) & control.clock.mask});
  if (fake.is_armed) {
    fake.is_armed = false;
    auto& channel = static_cast<FakeChannel&>(*cq->channel);
    channel.told.push_back(cq);
    eventfd_write(channel.descriptor, 1);
  }
}

void complete(FakeQp& qp, const Send& send, int status) {
  require(send.segments.empty() || send.opcode == verbs::kRead || status == verbs::kFlushed ||
              gather(send.segments) == send.content,
          "a payload was touched before its send completed");
  if (!send.is_signaled && status == verbs::kSuccess) {
    return;
  }
  verbs::Completion it{};
  it.id = send.id;
  it.status = status;
  it.qp_number = qp.number;
  add(qp.send_cq, it);
}

void flush(FakeQp& qp) {
  for (const Late& it : qp.late) {
    complete(qp, it.send, verbs::kFlushed);
  }
  for (const Send& it : qp.queue) {
    complete(qp, it, verbs::kFlushed);
  }
  qp.late.clear();
  qp.queue.clear();
}

void tell(FakeContext& context, int type, verbs::Qp* qp) {
  verbs::AsyncEvent event{};
  event.about.qp = qp;
  event.type = type;
  context.events.push_back(event);
  const std::uint64_t one = 1;
  require(write(context.context.async_descriptor, &one, sizeof one) == sizeof one, "eventfd");
}

/// As the first send of the queue pair.
void break_down(FakeQp& qp, int status) {
  complete(qp, qp.queue.front(), status);
  qp.queue.pop_front();
  qp.state = verbs::kStateError;
  flush(qp);
}

enum class Fate { kArrived, kLost, kWaits, kGivesUp, kRefused };

Fate bind_window(const Send& send) {
  opened.erase(send.old_key);
  if (send.bind.bytes > 0) {
    opened[send.remote_key] = {send.bind.address, send.bind.bytes, send.bind.mr};
  }
  return Fate::kArrived;
}

/// RC, connected to itself: what the tests' wires read.
Fate read(const FakeQp& qp, const Send& send) {
  if (control.reads_wait) {
    return Fate::kWaits;
  }
  const auto found = std::find_if(regions.begin(), regions.end(), [&](const auto& it) {
    return it.second->remote_key == send.remote_key;
  });
  const verbs::Segment& to = send.segments[0];
  require(qp.remote == qp.number && qp.reads > 0, "a read on a queue pair that may not");
  if (found == regions.end() || (found->second->access & verbs::kRemoteRead) == 0 ||
      send.remote_address < found->second->begin ||
      send.remote_address + to.bytes > found->second->begin + found->second->bytes) {
    return Fate::kRefused;
  }
  transfer(reinterpret_cast<void*>(to.address), reinterpret_cast<const void*>(send.remote_address),
           to.bytes);
  ++control.reads;
  return Fate::kArrived;
}

/// A queue pair that was told to do what it may not.
Fate refuse_write(const FakeQp& from, FakeQp& to) {
  if (from.type == verbs::kQpUc && control.tells_by_event) {
    tell(fake_of(to.context), verbs::kQpAccessError, &to);
  } else if (from.type == verbs::kQpUc) {
    auto& srq = *static_cast<FakeSrq*>(to.srq);
    if (!srq.buffers.empty()) {
      verbs::Completion it{};
      it.id = srq.buffers.front().id;
      srq.buffers.pop_front();
      it.status = kAccess;
      it.qp_number = to.number;
      add(to.receive_cq, it);
    }
  }
  to.state = verbs::kStateError;
  flush(to);
  return from.type == verbs::kQpUc ? Fate::kLost : Fate::kRefused;
}

Fate carry(FakeQp& from, const Send& send) {
  const bool is_rc = from.type == verbs::kQpRc;
  const auto found = qps.find(from.type == verbs::kQpUd ? send.to_qp : from.remote);
  FakeQp* const to = found == qps.end() ? nullptr : found->second;
  const bool is_there =
      to != nullptr && !control.is_cut && to->type == from.type &&
      to->state >= verbs::kStateReadyToReceive && to->state <= verbs::kStateReadyToSend &&
      (from.type == verbs::kQpUd ? to->qkey == send.qkey : to->remote == from.number);
  if (!is_there) {
    return is_rc ? Fate::kGivesUp : Fate::kLost;
  }
  if (!is_rc && happens(control.loss)) {
    return Fate::kLost;
  }
  const bool is_write = send.opcode == verbs::kWrite || send.opcode == verbs::kWriteWithImmediate;
  if (is_write) {
    const auto window = opened.find(send.remote_key);
    if (window == opened.end() || send.remote_address < window->second.address ||
        send.remote_address + send.content.size() > window->second.address + window->second.bytes) {
      return refuse_write(from, *to);
    }
  }
  auto& srq = *static_cast<FakeSrq*>(to->srq);
  if (srq.buffers.empty() && send.opcode != verbs::kWrite) {
    return is_rc ? Fate::kWaits : Fate::kLost;
  }
  if (is_write) {
    transfer(reinterpret_cast<void*>(send.remote_address), send.content.data(),
             send.content.size());
    if (send.opcode == verbs::kWrite) {
      return Fate::kArrived;
    }
  }
  const FakeSrq::Buffer buffer = srq.buffers.front();
  srq.buffers.pop_front();
  const std::size_t before = from.type == verbs::kQpUd ? verbs::kGrhBytes : 0;
  require(is_write || before + send.content.size() <= buffer.bytes,
          "a receive buffer is too small");
  if (!is_write) {
    std::memset(buffer.begin, 0, before);
    std::copy(send.content.begin(), send.content.end(), buffer.begin + before);
  }
  verbs::Completion it{};
  it.id = buffer.id;
  it.opcode = is_write ? verbs::kReceivedWrite : verbs::kReceived;
  it.bytes = static_cast<std::uint32_t>(before + send.content.size());
  it.immediate = send.immediate;
  it.flags = verbs::kWithImmediate | (before > 0 ? 1U : 0U);
  it.qp_number = to->number;
  it.source_qp = from.number;
  add(to->receive_cq, it);
  return Fate::kArrived;
}

void repeat_ghosts() {
  for (std::size_t i = 0; i < ghosts.size();) {
    if (ghosts[i].due > polls) {
      ++i;
      continue;
    }
    const auto from = qps.find(ghosts[i].from);
    if (from != qps.end()) {
      (void)carry(*from->second, ghosts[i].send);
    }
    ghosts.erase(ghosts.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// One turn of all NICs: of each queue pair what is in its send queue, in order.
void turn() {
  constexpr std::uint64_t kGhostPolls = 500;
  ++polls;
  repeat_ghosts();
  for (const auto& [number, it] : qps) {
    FakeQp& qp = *it;
    while (!qp.queue.empty() && !happens(control.hold)) {
      const bool is_local = qp.queue.front().opcode == kBind;
      if (control.fail_qp == number ||
          (qp.type != verbs::kQpUd && !is_local && happens(control.fail))) {
        control.fail_qp = 0;
        break_down(qp, kGaveUp);
        break;
      }
      const Send& first = qp.queue.front();
      const Fate fate = first.opcode == kBind          ? bind_window(first)
                        : first.opcode == verbs::kRead ? read(qp, first)
                                                       : carry(qp, first);
      if (fate == Fate::kWaits) {
        break;
      }
      if (fate == Fate::kGivesUp || fate == Fate::kRefused) {
        break_down(qp, fate == Fate::kGivesUp ? kGaveUp : kAccess);
        break;
      }
      if (qp.type != verbs::kQpRc && !is_local && happens(control.duplicate)) {
        ghosts.push_back({first, number, polls + 1 + draws.next() % kGhostPolls});
      }
      qp.late.push_back({std::move(qp.queue.front()), verbs::kSuccess,
                         polls + (control.completes_at_once ? 0 : kLatePolls)});
      qp.queue.pop_front();
    }
    while (!qp.late.empty() && qp.late.front().due <= polls) {
      complete(qp, qp.late.front().send, qp.late.front().status);
      qp.late.pop_front();
    }
  }
}

int request_notification(verbs::Cq* cq, int solicited_only) {
  const std::lock_guard lock(mutex);
  require(cq->channel != nullptr && solicited_only == 0, "a queue without a channel is to tell");
  fake_of(cq).is_armed = true;
  return 0;
}

/// What the NICs do when one of them is polled. False: they do nothing any more.
bool poll_nics(verbs::Cq* cq) {
  if (control.fails_device) {
    control.fails_device = false;
    control.is_stopped = true;
    tell(fake_of(cq->context), verbs::kDeviceFatal, nullptr);
  }
  if (control.is_stopped) {
    return false;
  }
  turn();
  return true;
}

int poll_cq(verbs::Cq* cq, int count, verbs::Completion* completions) {
  const std::lock_guard lock(mutex);
  if (!poll_nics(cq)) {
    return 0;
  }
  require(!fake_of(cq).is_stamped, "an extended completion queue, polled as another");
  auto& done = fake_of(cq).done;
  int taken = 0;
  for (; taken < count && !done.empty(); ++taken) {
    completions[taken] = done.front().it;
    done.pop_front();
  }
  return taken;
}

bool take_next(FakeCq& cq) {
  if (cq.done.empty()) {
    return false;
  }
  cq.current = cq.done.front();
  cq.done.pop_front();
  cq.id = cq.current.it.id;
  cq.status = cq.current.it.status;
  return true;
}

int start_poll(verbs::ExtendedCq* base, void* attributes) {
  const std::lock_guard lock(mutex);
  FakeCq& cq = static_cast<FakeCq&>(*base);
  require(attributes != nullptr && !cq.is_polled, "a poll that had begun");
  cq.is_polled = poll_nics(&base->cq) && take_next(cq);
  return cq.is_polled ? 0 : ENOENT;
}

int next_poll(verbs::ExtendedCq* base) {
  const std::lock_guard lock(mutex);
  FakeCq& cq = static_cast<FakeCq&>(*base);
  require(cq.is_polled, "a poll that had not begun");
  return take_next(cq) ? 0 : ENOENT;
}

void end_poll(verbs::ExtendedCq* base) {
  require(std::exchange(static_cast<FakeCq&>(*base).is_polled, false), "the end of no poll");
}

/// Of a completion that has failed only these are valid: id, status and queue pair.
const FakeCq::Done& current_of(verbs::ExtendedCq* base) {
  const FakeCq& cq = static_cast<FakeCq&>(*base);
  require(cq.is_polled && cq.status == verbs::kSuccess, "a field of a completion that has none");
  return cq.current;
}

verbs::ExtendedCq* create_extended_cq(verbs::Context* context, verbs::ExtendedCqInitial* initial) {
  if (control.clock.refuses_cqs) {
    errno = ENOMEM;
    return nullptr;
  }
  require((initial->tells & ~(verbs::kTellsBytes | verbs::kTellsImmediate | verbs::kTellsQpNumber |
                              verbs::kTellsTime)) == 0 &&
              initial->valid == 0,
          "fields of completions that the fake does not know");
  auto* const cq = new FakeCq{};
  cq->cq.context = context;
  cq->cq.channel = initial->channel;
  cq->cq.entries = static_cast<int>(initial->entries);
  cq->is_stamped = true;
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
  cq->end_poll = end_poll;
  cq->opcode = [](verbs::ExtendedCq* it) { return current_of(it).it.opcode; };
  cq->flags = [](verbs::ExtendedCq* it) { return current_of(it).it.flags; };
  cq->qp_number = [](verbs::ExtendedCq* it) {
    return static_cast<FakeCq*>(it)->current.it.qp_number;
  };
  if ((initial->tells & verbs::kTellsBytes) != 0) {
    cq->bytes = [](verbs::ExtendedCq* it) { return current_of(it).it.bytes; };
  }
  if ((initial->tells & verbs::kTellsImmediate) != 0) {
    cq->immediate = [](verbs::ExtendedCq* it) { return current_of(it).it.immediate; };
  }
  if ((initial->tells & verbs::kTellsTime) != 0) {
    cq->time = [](verbs::ExtendedCq* it) { return current_of(it).ticks; };
  }
  return cq;
}

int query_device(verbs::Context* /*context*/, const void* /*input*/,
                 verbs::ExtendedDeviceAttributes* attributes, std::size_t bytes) {
  require(bytes == sizeof *attributes, "a device's attributes of another length");
  *attributes = {};
  attributes->time_mask = control.clock.mask;
  attributes->clock_khz = control.clock.told_khz;
  return 0;
}

int query_real_time(verbs::Context* /*context*/, verbs::RealTimeValues* values) {
  const std::lock_guard lock(mutex);
  require(values->valid == verbs::kRawClock, "another value than the clock");
  ++control.clock.readings;
  values->raw_clock = {0, static_cast<long>(control.clock.now())};
  return control.clock.read_error;
}

int post_send(verbs::Qp* base, verbs::SendRequest* request, verbs::SendRequest** bad) {
  const std::lock_guard lock(mutex);
  FakeQp& qp = *static_cast<FakeQp*>(base);
  for (; request != nullptr; request = request->next) {
    *bad = request;
    require(qp.state == verbs::kStateReadyToSend || qp.state == verbs::kStateError,
            "a send on a queue pair that may not send");
    require(request->opcode == verbs::kSendWithImmediate || request->opcode == verbs::kWrite ||
                request->opcode == verbs::kWriteWithImmediate ||
                (request->opcode == verbs::kRead && qp.type == verbs::kQpRc),
            "an operation that the fake does not know");
    require(request->opcode == verbs::kSendWithImmediate || qp.type != verbs::kQpUd,
            "a write by datagram");
    if (qp.queue.size() + qp.late.size() >= qp.depth) {
      return ENOMEM;
    }
    Send send;
    send.id = request->id;
    send.segments.assign(request->segments, request->segments + request->segment_count);
    send.content = gather(send.segments);
    send.immediate = request->immediate;
    send.is_signaled = (request->flags & verbs::kSignaled) != 0;
    send.opcode = request->opcode;
    if (send.opcode != verbs::kSendWithImmediate) {
      send.remote_address = request->to.rdma.remote_address;
      send.remote_key = request->to.rdma.remote_key;
    }
    if (qp.type == verbs::kQpUd) {
      require(request->to.ud.address != nullptr, "a datagram without an address");
      require(send.content.size() <= std::size_t{128} << control.mtu_code,
              "a datagram longer than the MTU");
      send.to_qp = request->to.ud.qp_number;
      send.qkey = request->to.ud.qkey;
    }
    for (const verbs::Segment& it : send.segments) {
      const bool is_gpus = is_device(reinterpret_cast<const void*>(it.address));
      require(!is_gpus || (request->flags & verbs::kInline) == 0, "a GPU's memory as inline data");
      control.device_bytes_sent += is_gpus ? it.bytes : 0;
    }
    if ((request->flags & verbs::kInline) != 0) {
      require(send.content.size() <= qp.inline_bytes, "too much for inline data");
      send.segments.clear();
    }
    for (const verbs::Segment& segment : send.segments) {
      check_segment(segment);
    }
    ++control.sends;
    qp.queue.push_back(std::move(send));
    if (qp.state == verbs::kStateError) {
      flush(qp);
    }
  }
  return 0;
}

verbs::Mw* alloc_mw(verbs::Pd* pd, int type) {
  const std::lock_guard lock(mutex);
  if (!control.has_windows) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return new verbs::Mw{pd->context, pd, next_key += 256, 0, type};
}

int dealloc_mw(verbs::Mw* mw) {
  const std::lock_guard lock(mutex);
  // Also while it is about to be opened or closed, with its key changed already.
  std::erase_if(opened, [&](const auto& it) { return (it.first ^ mw->remote_key) <= 0xff; });
  delete mw;
  return control.keeps_memory ? EBUSY : 0;
}

int bind_mw(verbs::Qp* base, verbs::Mw* mw, verbs::Bind* bind) {
  const std::lock_guard lock(mutex);
  FakeQp& qp = *static_cast<FakeQp*>(base);
  require(mw->type == verbs::kWindowOfDomain, "a window of another type");
  if (control.refuses_binds) {
    return EIO;
  }
  const auto mr = regions.find(bind->mr->local_key);
  require(mr != regions.end(), "a window on memory that is not registered");
  if (mr->second->is_dma_buf) {
    return EOPNOTSUPP;  // As libibverbs' drivers do.
  }
  require((mr->second->access & verbs::kMayBind) != 0, "a window on memory that allows none");
  const std::uint64_t begin = mr->second->begin;
  require(bind->address >= begin && bind->address + bind->bytes <= begin + bind->mr->bytes,
          "a window outside its registered memory");
  if (qp.queue.size() + qp.late.size() >= qp.depth) {
    return ENOMEM;
  }
  Send send;
  send.id = bind->id;
  send.opcode = kBind;
  send.is_signaled = (bind->flags & verbs::kSignaled) != 0;
  send.bind = *bind;
  send.old_key = mw->remote_key;
  // The low byte is a count of its own.
  mw->remote_key = (mw->remote_key & ~0xffU) | ((mw->remote_key + 1) & 0xff);
  send.remote_key = mw->remote_key;
  qp.queue.push_back(std::move(send));
  if (qp.state == verbs::kStateError) {
    flush(qp);
  }
  return 0;
}

int post_srq_receive(verbs::Srq* base, verbs::ReceiveRequest* request,
                     verbs::ReceiveRequest** bad) {
  const std::lock_guard lock(mutex);
  auto& srq = *static_cast<FakeSrq*>(base);
  for (; request != nullptr; request = request->next) {
    *bad = request;
    if (srq.buffers.size() >= srq.buffers_max) {
      return ENOMEM;
    }
    require(request->segment_count == 1, "a receive in pieces");
    check_segment(request->segments[0]);
    srq.buffers.push_back({request->id, reinterpret_cast<std::byte*>(request->segments[0].address),
                           request->segments[0].bytes});
  }
  return 0;
}

template <class T>
T* refuse(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

/// Each function is declared with the type in the table, so that the fake cannot drift from it.
#define FAKE_DECLARE(member, symbol, result, parameters) \
  FAKE std::remove_pointer_t<decltype(verbs::Functions::member)> symbol;
TUTTI_VERBS_FUNCTIONS(FAKE_DECLARE)
TUTTI_VERBS_OPTIONAL_FUNCTIONS(FAKE_DECLARE)
#undef FAKE_DECLARE

FAKE FakeVerbsControl* fake_verbs_control();
FAKE void fake_verbs_seed(std::uint64_t seed);

extern "C" {

FakeVerbsControl* fake_verbs_control() { return &control; }
void fake_verbs_seed(std::uint64_t seed) {
  const std::lock_guard lock(mutex);
  draws = tutti::Random(seed);
  ghosts.clear();
  next_number = 0x100;
  polls = 0;
}

verbs::Device** ibv_get_device_list(int* count) {
  *count = 2;
  return new verbs::Device* [3] { &devices[0], &devices[1], nullptr };
}
void ibv_free_device_list(verbs::Device** list) { delete[] list; }
const char* ibv_get_device_name(verbs::Device* device) { return device->name.c_str(); }

verbs::Context* ibv_open_device(verbs::Device* device) {
  auto* const context = new FakeContext{};
  verbs::Context* const base = &context->context;
  base->device = device;
  base->async_descriptor = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  base->ops.poll_cq = poll_cq;
  base->ops.request_notification = request_notification;
  base->ops.post_send = post_send;
  base->ops.post_srq_receive = post_srq_receive;
  base->ops.alloc_mw = alloc_mw;
  base->ops.bind_mw = bind_mw;
  base->ops.dealloc_mw = dealloc_mw;
  if (control.clock.is_extended) {
    base->abi_compat = reinterpret_cast<void*>(verbs::kIsExtended);
    context->bytes = sizeof(verbs::ExtendedContext);
    context->query_device = query_device;
    context->query_real_time = control.clock.is_readable ? query_real_time : nullptr;
    context->create_cq = create_extended_cq;
  }
  return base;
}
int ibv_close_device(verbs::Context* context) {
  close(context->async_descriptor);
  delete &fake_of(context);
  return 0;
}
int ibv_get_async_event(verbs::Context* base, verbs::AsyncEvent* event) {
  const std::lock_guard lock(mutex);
  FakeContext& context = fake_of(base);
  std::uint64_t one = 0;
  if (context.events.empty() || read(base->async_descriptor, &one, sizeof one) != sizeof one) {
    errno = EAGAIN;
    return -1;
  }
  *event = context.events.front();
  context.events.pop_front();
  return 0;
}
void ibv_ack_async_event(verbs::AsyncEvent* /*event*/) {}

int ibv_query_port(verbs::Context* context, std::uint8_t port, verbs::PortAttributes* it) {
  if (port != 1) {
    return EINVAL;
  }
  it->state = (control.inactive >> context->device->number & 1) == 0 ? verbs::kPortActive : 1;
  it->active_mtu = control.mtu_code;
  it->gid_count = 2;
  it->lid = static_cast<std::uint16_t>(context->device->number + 1);
  it->active_width = 2;
  it->active_speed = 32;
  it->link_layer = 1;  // InfiniBand
  return 0;
}
int ibv_query_gid(verbs::Context* context, std::uint8_t /*port*/, int index, verbs::Gid* gid) {
  *gid = {};
  if (index == 0) {
    (*gid)[0] = 0xfe;
    (*gid)[1] = 0x80;
    gid->back() = static_cast<std::uint8_t>(context->device->number + 1);
  }
  return 0;
}

verbs::Pd* ibv_alloc_pd(verbs::Context* context) { return new verbs::Pd{context, 0}; }
int ibv_dealloc_pd(verbs::Pd* pd) {
  delete pd;
  return 0;
}

verbs::Mr* ibv_reg_mr(verbs::Pd* pd, void* address, std::size_t bytes, int access) {
  const std::lock_guard lock(mutex);
  if (control.refuses_memory) {
    return refuse<verbs::Mr>(ENOMEM);
  }
  if (!control.has_peermem && is_device(address)) {
    return refuse<verbs::Mr>(EFAULT);
  }
  if (!control.has_windows && (access & verbs::kMayBind) != 0) {
    return refuse<verbs::Mr>(EINVAL);
  }
  auto* const mr = new FakeMr{{pd->context, pd, address, bytes, 0, ++next_key, ++next_key},
                              reinterpret_cast<std::uint64_t>(address),
                              access,
                              false};
  regions[mr->local_key] = mr;
  return mr;
}
verbs::Mr* ibv_reg_dmabuf_mr(verbs::Pd* pd, std::uint64_t offset, std::size_t bytes,
                             std::uint64_t address, int descriptor, int access) {
  const std::lock_guard lock(mutex);
  if (!control.has_dma_buf) {
    return refuse<verbs::Mr>(EOPNOTSUPP);
  }
  if (fcntl(descriptor, F_GETFD) < 0) {
    return refuse<verbs::Mr>(EBADF);
  }
  // As the library: its address is the offset.
  auto* const mr = new FakeMr{
      {pd->context, pd, reinterpret_cast<void*>(offset), bytes, 0, ++next_key, ++next_key},
      address,
      access,
      true};
  regions[mr->local_key] = mr;
  return mr;
}
int ibv_dereg_mr(verbs::Mr* mr) {
  const std::lock_guard lock(mutex);
  for (const auto& [number, qp] : qps) {
    const auto uses = [&](const Send& send) {
      return std::any_of(send.segments.begin(), send.segments.end(),
                         [&](const auto& it) { return it.local_key == mr->local_key; });
    };
    require(std::none_of(qp->queue.begin(), qp->queue.end(), uses) &&
                std::none_of(qp->late.begin(), qp->late.end(),
                             [&](const Late& it) { return uses(it.send); }),
            "memory was deregistered while a send reads it");
  }
  require(std::none_of(opened.begin(), opened.end(),
                       [&](const auto& it) { return it.second.mr == mr; }),
          "memory was deregistered with a window on it");
  regions.erase(mr->local_key);
  delete static_cast<FakeMr*>(mr);
  return control.keeps_memory ? EBUSY : 0;
}

// The fake NIC works when somebody polls: engines that all sleep would wait for ever.
verbs::CompletionChannel* ibv_create_comp_channel(verbs::Context* context) {
  if (!control.has_events) {
    return refuse<verbs::CompletionChannel>(EOPNOTSUPP);
  }
  auto* const channel = new FakeChannel{};
  channel->context = context;
  channel->descriptor = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return channel;
}
int ibv_destroy_comp_channel(verbs::CompletionChannel* channel) {
  close(channel->descriptor);
  delete static_cast<FakeChannel*>(channel);
  return 0;
}
int ibv_get_cq_event(verbs::CompletionChannel* channel, verbs::Cq** cq, void** /*context*/) {
  eventfd_t one = 0;
  if (eventfd_read(channel->descriptor, &one) != 0) {
    return -1;
  }
  const std::lock_guard lock(mutex);
  auto& told = static_cast<FakeChannel*>(channel)->told;
  *cq = told.front();
  told.pop_front();
  ++fake_of(*cq).events;
  return 0;
}
void ibv_ack_cq_events(verbs::Cq* cq, unsigned count) {
  const std::lock_guard lock(mutex);
  fake_of(cq).events -= count;
}

verbs::Cq* ibv_create_cq(verbs::Context* context, int entries, void* /*cq_context*/,
                         verbs::CompletionChannel* channel, int /*vector*/) {
  if (control.refused_cqs > 0) {
    --control.refused_cqs;
    errno = ENOMEM;
    return nullptr;
  }
  auto* const cq = new FakeCq{};
  cq->cq.context = context;
  cq->cq.channel = channel;
  cq->cq.entries = entries;
  return &cq->cq;
}
int ibv_destroy_cq(verbs::Cq* cq) {
  const std::lock_guard lock(mutex);
  require(fake_of(cq).users == 0, "a completion queue was destroyed while in use");
  require(fake_of(cq).events == 0, "its events were not acknowledged");
  delete &fake_of(cq);
  return 0;
}

verbs::Srq* ibv_create_srq(verbs::Pd* pd, verbs::SrqAttributes* attributes) {
  auto* const srq = new FakeSrq{};
  srq->context = pd->context;
  srq->pd = pd;
  srq->buffers_max = attributes->requests_max;
  return srq;
}
int ibv_destroy_srq(verbs::Srq* srq) {
  const std::lock_guard lock(mutex);
  require(static_cast<FakeSrq*>(srq)->users == 0, "a receive queue was destroyed while in use");
  delete static_cast<FakeSrq*>(srq);
  return 0;
}

verbs::Qp* ibv_create_qp(verbs::Pd* pd, verbs::QpInitial* initial) {
  const std::lock_guard lock(mutex);
  if ((initial->type == verbs::kQpUc && !control.has_uc)) {
    return refuse<verbs::Qp>(control.uc_error);
  }
  if (static_cast<int>(initial->capacity.inline_bytes) > control.inline_bytes_max) {
    return refuse<verbs::Qp>(EINVAL);
  }
  if (static_cast<int>(qps.size()) >= control.qps_max) {
    return refuse<verbs::Qp>(ENOMEM);
  }
  auto* const qp = new FakeQp{};
  qp->context = pd->context;
  qp->pd = pd;
  qp->send_cq = initial->send_cq;
  qp->receive_cq = initial->receive_cq;
  qp->srq = initial->srq;
  qp->type = initial->type;
  qp->depth = initial->capacity.send_requests;
  qp->inline_bytes = initial->capacity.inline_bytes;
  qp->number = ++next_number;
  qps[qp->number] = qp;
  ++fake_of(qp->send_cq).users;
  ++fake_of(qp->receive_cq).users;
  ++static_cast<FakeSrq*>(qp->srq)->users;
  control.qps = qps.size();
  return qp;
}
int ibv_modify_qp(verbs::Qp* base, verbs::QpAttributes* attributes, int mask) {
  const std::lock_guard lock(mutex);
  auto& qp = *static_cast<FakeQp*>(base);
  using namespace verbs;  // The masks.
  const bool is_ud = qp.type == kQpUd;
  const bool is_rc = qp.type == kQpRc;
  const auto has = [&](int bits) { return mask == (bits | kMaskState); };
  switch (attributes->state) {
    case kStateInit:
      if (qp.state != kStateReset ||
          !has(kMaskPkeyIndex | kMaskPort | (is_ud ? kMaskQkey : kMaskAccessFlags))) {
        return EINVAL;
      }
      qp.qkey = attributes->qkey;
      break;
    case kStateReadyToReceive:
      if (qp.state != kStateInit ||
          !has(is_ud ? 0
                     : kMaskAddress | kMaskPathMtu | kMaskRemoteQp | kMaskReceivePsn |
                           (is_rc ? kMaskReadsIn | kMaskNotReadyTimer : 0))) {
        return EINVAL;
      }
      if (!is_ud && control.connect_refusals != 0) {
        control.connect_refusals -= control.connect_refusals > 0 ? 1 : 0;
        return ENETUNREACH;
      }
      if (!is_ud && (attributes->path_mtu < 1 || attributes->path_mtu > control.mtu_code)) {
        return EINVAL;
      }
      qp.remote = attributes->remote_qp;
      qp.reads = attributes->reads_in;
      break;
    case kStateReadyToSend:
      if (qp.state != kStateReadyToReceive ||
          !has(kMaskSendPsn |
               (is_rc ? kMaskTimeout | kMaskRetries | kMaskNotReadyRetries | kMaskReadsOut : 0))) {
        return EINVAL;
      }
      break;
    case kStateError:
      flush(qp);
      break;
    case kStateReset:
      qp.late.clear();
      qp.queue.clear();
      break;
    default:
      return EINVAL;
  }
  qp.state = attributes->state;
  return 0;
}
int ibv_destroy_qp(verbs::Qp* base) {
  const std::lock_guard lock(mutex);
  auto* const qp = static_cast<FakeQp*>(base);
  --fake_of(qp->send_cq).users;
  --fake_of(qp->receive_cq).users;
  --static_cast<FakeSrq*>(qp->srq)->users;
  // As mlx5: receives of it that nobody has taken are forgotten, and their buffers with them.
  auto& received = fake_of(qp->receive_cq).done;
  std::erase_if(received, [&](const auto& done) { return done.it.qp_number == qp->number; });
  std::erase_if(fake_of(qp->context).events, [&](const auto& it) { return it.about.qp == qp; });
  qps.erase(qp->number);
  control.qps = qps.size();
  delete qp;
  return 0;
}

verbs::AddressHandle* ibv_create_ah(verbs::Pd* pd, verbs::AddressAttributes* attributes) {
  if (attributes->is_global == 0 || attributes->port != 1 ||
      attributes->route.flow_label > 0xf'ffff) {
    return refuse<verbs::AddressHandle>(EINVAL);
  }
  return new verbs::AddressHandle{pd->context, pd, 0};
}
int ibv_destroy_ah(verbs::AddressHandle* address) {
  delete address;
  return 0;
}

const char* ibv_wc_status_str(int status) {
  return status == kGaveUp     ? "transport retry counter exceeded"
         : status == kNotReady ? "RNR retry counter exceeded"
                               : "an error";
}

}  // extern "C"
