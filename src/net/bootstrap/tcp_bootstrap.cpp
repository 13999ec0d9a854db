// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/bootstrap/tcp_bootstrap.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "base/descriptors.hpp"
#include "base/host_name.hpp"
#include "net/bootstrap/tcp_stream.hpp"

namespace tutti::net {
namespace {

using bootstrap::after;
using bootstrap::Clock;
using bootstrap::Deadline;
using bootstrap::Frame;
using bootstrap::has_passed;
using bootstrap::kFrameBytesMax;
using bootstrap::Kind;
using bootstrap::left_ms;
using bootstrap::put;
using bootstrap::Reader;
using bootstrap::Stream;

constexpr char kBootstrapMagic[8] = {'T', 'U', 'T', 'T', 'I', 'M', 'E', 'T'};
constexpr std::size_t kHandshakeBytesMax = 1 << 10;  ///< Bounds what a stranger can make us keep.
constexpr std::size_t kStrangersMax = 64;  ///< Beside a caller for each rank that is missing.
constexpr auto kDialAgain = std::chrono::milliseconds(50);
constexpr double kAnswerS = 5;  ///< Beyond its own time, for rank 0 to say who is missing.

std::string in_seconds(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  return (text.back() == '.' ? text.substr(0, text.size() - 1) : text) + " s";
}

std::string own_name() { return host_name() + ", process " + std::to_string(getpid()); }

Status error(const std::string& text) { return Status(ErrorCode::kTimeout, "bootstrap: " + text); }

struct HostPort {
  std::string host;
  std::string port;
};

Result<HostPort> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) {
    return Status(ErrorCode::kInvalidArgument,
                  "bootstrap: " + text + ": HOST:PORT is expected, as in 192.0.2.1:5000");
  }
  HostPort host_port{text.substr(0, colon), text.substr(colon + 1)};
  if (host_port.host.front() == '[' && host_port.host.back() == ']') {
    host_port.host = host_port.host.substr(1, host_port.host.size() - 2);
  }
  return host_port;
}

class Addresses {
 public:
  static Result<Addresses> find(const std::string& text, bool passive) {
    TUTTI_ASSIGN_OR_RETURN(const HostPort host_port, parse_address(text));
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    Addresses found;
    const int status =
        getaddrinfo(host_port.host.c_str(), host_port.port.c_str(), &hints, &found.first_);
    if (status != 0) {
      return Status(ErrorCode::kInvalidArgument,
                    "bootstrap: " + text + ": " + gai_strerror(status));
    }
    return found;
  }
  Addresses() = default;
  Addresses(Addresses&& other) noexcept : first_(std::exchange(other.first_, nullptr)) {}
  Addresses& operator=(Addresses&& other) noexcept {
    std::swap(first_, other.first_);
    return *this;
  }
  ~Addresses() {
    if (first_ != nullptr) {
      freeaddrinfo(first_);
    }
  }
  const addrinfo& first() const { return *first_; }

 private:
  addrinfo* first_ = nullptr;
};

/// "rank 3", "ranks 1, 2"
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  return text;
}

/// What both kinds of rank have: the first bad news is the last.
class Member : public TcpBootstrap {
 public:
  explicit Member(const TcpBootstrapOptions& options) : options_(options) {}

 protected:
  Status over() const { return failure_.empty() ? Status() : error(failure_); }
  bool is_over() const { return !failure_.empty(); }

  TcpBootstrapOptions options_;
  std::string failure_;
};

/// Rank 0.
class RootRank : public Member {
 public:
  using Member::Member;

  ~RootRank() override {
    for (Seat& seat : seats_) {
      if (seat.stream.is_open() && !is_over()) {
        (void)seat.stream.write(Kind::kClose, "");
      }
    }
  }

  Status listen() {
    seats_.resize(static_cast<std::size_t>(options_.ranks) - 1);
    TUTTI_ASSIGN_OR_RETURN(const Addresses found, Addresses::find(options_.address, true));
    const addrinfo& at = found.first();
    listener_.reset(::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int one = 1;
    setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    if (listener_.get() < 0 || bind(listener_.get(), at.ai_addr, at.ai_addrlen) != 0 ||
        ::listen(listener_.get(), SOMAXCONN) != 0 ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
      return Status(ErrorCode::kUnavailable, "bootstrap: cannot listen at " + options_.address +
                                                 ": " + std::strerror(errno));
    }
    const in_port_t port = bound.ss_family == AF_INET6
                               ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                               : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
    address_ =
        options_.address.substr(0, options_.address.rfind(':') + 1) + std::to_string(ntohs(port));
    return {};
  }

  std::string address() const override { return address_; }

  Status join() override {
    const Deadline deadline = after(options_.timeout_s);
    while (!is_over() && !missing().empty()) {
      std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
      for (const Pending& pending : pending_) {
        polled.push_back({pending.get(), POLLIN, 0});
      }
      for (const Seat& seat : seats_) {
        // No more than there are descriptors, or poll() is an error.
        if (seat.stream.is_open()) {
          polled.push_back({seat.stream.get(), POLLIN, 0});
        }
      }
      (void)poll(polled.data(), polled.size(), left_ms(deadline));
      if (polled[0].revents != 0) {
        let_in();
      }
      for (std::size_t i = 0; i < pending_.size();) {
        if (read_handshake(pending_[i])) {
          pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      look();
      if (const std::vector<int> late = missing(); !late.empty() && has_passed(deadline)) {
        fail(ranks_text(late) + " did not come within " + in_seconds(options_.timeout_s) +
             (refused_.empty() ? "" : "; refused: " + refused_));
      }
    }
    pending_.clear();
    listener_.reset();
    for (Seat& seat : seats_) {
      if (!is_over() && !seat.stream.write(Kind::kWelcome, own_name())) {
        lose(seat);
      }
    }
    return over();
  }

  Result<std::vector<std::string>> all_gather(const std::string& mine, double timeout_s) override {
    const Deadline deadline = after(timeout_s);
    while (true) {
      look();
      std::vector<int> late;
      std::vector<pollfd> polled;
      for (Seat& seat : seats_) {
        if (seat.texts.empty()) {
          late.push_back(rank_of(seat));
          if (seat.has_left) {
            fail("rank " + std::to_string(rank_of(seat)) + " (" + seat.who + ") has left");
          }
        }
        polled.push_back({seat.stream.get(), POLLIN, 0});
      }
      if (late.empty() || is_over()) {
        break;
      }
      if (has_passed(deadline)) {
        fail("not in the exchange yet after " + in_seconds(timeout_s) + ": " + ranks_text(late));
        break;
      }
      (void)poll(polled.data(), polled.size(), left_ms(deadline));
    }
    TUTTI_RETURN_IF_ERROR(over());
    std::vector<std::string> texts = {mine};
    for (Seat& seat : seats_) {
      texts.push_back(std::move(seat.texts.front()));
      seat.texts.pop_front();
    }
    std::string answer;
    for (const std::string& text : texts) {
      put(answer, text);
    }
    // To all, before any of them hears of one who has gone since: the exchange is done.
    std::vector<Seat*> gone;
    for (Seat& seat : seats_) {
      if (!seat.stream.write(Kind::kTexts, answer)) {
        gone.push_back(&seat);
      }
    }
    for (Seat* const seat : gone) {
      lose(*seat);
    }
    return texts;
  }

  Status news(double wait_s) override {
    look();
    const Deadline deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                 std::chrono::duration<double>(wait_s));
    while (!is_over() && Clock::now() < deadline) {
      std::vector<pollfd> polled;
      for (const Seat& seat : seats_) {
        polled.push_back({seat.stream.get(), POLLIN, 0});
      }
      (void)poll(polled.data(), polled.size(), left_ms(deadline));
      look();
    }
    return over();
  }

  void give_up(const std::string& why) override { fail(why); }

 private:
  struct Seat {
    Stream stream;
    std::string who;
    bool has_left = false;
    std::deque<std::string> texts;  ///< Contributions, the next first.
  };
  using Pending = Stream;  ///< A connection whose handshake has not come.

  int rank_of(const Seat& seat) const { return static_cast<int>(&seat - seats_.data()) + 1; }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (const Seat& seat : seats_) {
      if (!seat.stream.is_open()) {
        ranks.push_back(rank_of(seat));
      }
    }
    return ranks;
  }

  /// Accepts new connections, a bounded number at a time.
  void let_in() {
    for (std::size_t i = 0; i < kStrangersMax; ++i) {
      Descriptor caller(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (caller.get() < 0) {
        // An error whether or not one more connection waits.
        if (i == 0 && (errno == EMFILE || errno == ENFILE)) {
          fail("rank 0 cannot let in " + ranks_text(missing()) + ": " + std::strerror(errno) +
               "; raise its limit (ulimit -n)");
        }
        return;
      }
      // The oldest one without a handshake is no rank: ranks send theirs at once.
      while (pending_.size() >= kStrangersMax + missing().size()) {
        (void)read_handshake(pending_.front());
        pending_.erase(pending_.begin());
      }
      pending_.emplace_back(std::move(caller), kHandshakeBytesMax);
    }
  }

  /// True: it has a seat now, or was refused or closed.
  bool read_handshake(Pending& pending) {
    const bool is_there = pending.read();
    const std::optional<Frame> handshake = pending.take();
    if (!handshake) {
      return !is_there;
    }
    Reader reader{handshake->text};
    const std::string_view magic = reader.bytes(sizeof kBootstrapMagic);
    const std::string_view version = reader.bytes(1);
    if (handshake->kind != Kind::kHandshake || !reader.is_good ||
        std::memcmp(magic.data(), kBootstrapMagic, sizeof kBootstrapMagic) != 0) {
      return true;  // A stranger.
    }
    const auto theirs = static_cast<std::uint8_t>(version[0]);
    if (theirs != kBootstrapVersion) {
      return refuse(pending, "a rank of version " + std::to_string(theirs) + ", rank 0 is of " +
                                 std::to_string(kBootstrapVersion) +
                                 "; install the same Tutti on all hosts");
    }
    const std::uint32_t rank = reader.number();
    const std::uint32_t ranks = reader.number();
    const std::string key = reader.text();
    const std::string who = reader.text();
    if (!reader.is_good) {
      return true;
    }
    const std::string name = "rank " + std::to_string(rank) + " (" + who + ")";
    if (key != options_.key) {
      return refuse(pending, name + " belongs to another job");
    }
    if (ranks != static_cast<std::uint32_t>(options_.ranks)) {
      return refuse(pending, name + " thinks that there are " + std::to_string(ranks) +
                                 " ranks, rank 0 that there are " + std::to_string(options_.ranks));
    }
    if (rank == 0 || rank >= ranks) {
      return refuse(
          pending, name + ": there are ranks 1 to " + std::to_string(ranks - 1) + " beside rank 0");
    }
    Seat& seat = seats_[rank - 1];
    if (seat.stream.is_open()) {
      return refuse(pending, name + " is there already: " + seat.who);
    }
    seat.stream = std::move(pending);
    seat.stream.trust();
    seat.who = who;
    return true;
  }

  bool refuse(Pending& pending, const std::string& why) {
    refused_ = why;
    (void)pending.write(Kind::kRefusal, why);
    return true;
  }

  /// Takes in what the ranks have sent.
  void look() {
    for (Seat& seat : seats_) {
      if (!seat.stream.is_open()) {
        continue;
      }
      const bool is_there = seat.stream.read();
      while (std::optional<Frame> frame = seat.stream.take()) {
        if (frame->kind == Kind::kText) {
          seat.texts.push_back(std::move(frame->text));
        } else if (frame->kind == Kind::kClose) {
          seat.has_left = true;
        } else if (frame->kind == Kind::kFailure) {
          fail(frame->text);
        }
      }
      if (!is_there) {
        lose(seat);
      }
    }
  }

  void lose(Seat& seat) {
    seat.stream.close();
    if (!seat.has_left) {
      fail("rank " + std::to_string(rank_of(seat)) + " (" + seat.who +
           ") is gone: its process ended");
    }
  }

  void fail(const std::string& why) {
    if (is_over()) {
      return;
    }
    failure_ = why;
    for (Seat& seat : seats_) {
      if (seat.stream.is_open()) {
        (void)seat.stream.write(Kind::kFailure, why);
      }
    }
  }

  Descriptor listener_;
  std::string address_;
  std::vector<Pending> pending_;
  std::vector<Seat> seats_;  ///< Of ranks 1 and up.
  std::string refused_;
};

/// All other ranks.
class OtherRank : public Member {
 public:
  using Member::Member;

  ~OtherRank() override {
    if (stream_.is_open() && !is_over()) {
      (void)stream_.write(Kind::kClose, "");
    }
  }

  Status find() {
    TUTTI_ASSIGN_OR_RETURN(found_, Addresses::find(options_.address, false));
    return {};
  }

  std::string address() const override { return options_.address; }

  Status join() override {
    TUTTI_RETURN_IF_ERROR(dial());
    std::string handshake(kBootstrapMagic, sizeof kBootstrapMagic);
    handshake += static_cast<char>(kBootstrapVersion);
    put(handshake, static_cast<std::uint32_t>(options_.rank));
    put(handshake, static_cast<std::uint32_t>(options_.ranks));
    put(handshake, options_.key);
    put(handshake, own_name());
    (void)stream_.write(Kind::kHandshake, handshake);
    const Result<Frame> answer = wait_for(Kind::kWelcome, after(options_.timeout_s + kAnswerS));
    if (!answer.ok()) {
      return answer.status();
    }
    if (answer->kind == Kind::kRefusal) {
      failure_ = answer->text;
      return Status(ErrorCode::kInvalidArgument, "bootstrap: refused by rank 0: " + failure_);
    }
    host_ = answer->text;
    return {};
  }

  Result<std::vector<std::string>> all_gather(const std::string& mine, double timeout_s) override {
    TUTTI_RETURN_IF_ERROR(over());
    // What rank 0 has to say is worth more than that it takes nothing.
    (void)stream_.write(Kind::kText, mine);
    TUTTI_ASSIGN_OR_RETURN(
        const Frame answer,
        wait_for(Kind::kTexts, after(timeout_s <= 0 ? timeout_s : timeout_s + kAnswerS)));
    std::vector<std::string> texts;
    Reader reader{answer.text};
    for (int rank = 0; rank < options_.ranks; ++rank) {
      texts.push_back(reader.text());
    }
    if (!reader.is_good) {
      failure_ = is_over() ? failure_ : "rank 0 (" + host_ + ") sent what is no exchange";
      return over();
    }
    return texts;
  }

  Status news(double wait_s) override {
    const Deadline deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                 std::chrono::duration<double>(wait_s));
    look();
    while (!is_over() && !has_left_ && Clock::now() < deadline) {
      pollfd readable = {stream_.get(), POLLIN, 0};
      (void)poll(&readable, 1, left_ms(deadline));
      look();
    }
    return over();
  }

  void give_up(const std::string& why) override {
    if (!is_over()) {
      failure_ = why;
      (void)stream_.write(Kind::kFailure, why);
    }
  }

 private:
  Status dial() {
    const Deadline deadline = after(options_.timeout_s);
    while (true) {
      const addrinfo& at = found_.first();
      Descriptor socket(::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      int why = connect(socket.get(), at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
      if (why == EINPROGRESS) {
        pollfd writable = {socket.get(), POLLOUT, 0};
        socklen_t bytes = sizeof why;
        if (poll(&writable, 1, left_ms(deadline)) > 0) {
          getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &why, &bytes);
        }
      }
      if (why == 0) {
        stream_ = Stream(std::move(socket), kFrameBytesMax);
        return {};
      }
      if (Clock::now() + kDialAgain > deadline) {
        failure_ = "rank 0 does not answer at " + options_.address + " for " +
                   in_seconds(options_.timeout_s) + ": " + std::strerror(why);
        return over();
      }
      std::this_thread::sleep_for(kDialAgain);
    }
  }

  /// The frame that a call waits for, or a refusal. What came before bad news still counts.
  Result<Frame> wait_for(Kind kind, Deadline deadline) {
    while (true) {
      look();
      while (!answers_.empty()) {
        Frame answer = std::move(answers_.front());
        answers_.pop_front();
        if (answer.kind == kind || answer.kind == Kind::kRefusal) {
          return answer;
        }
      }
      note_end();
      TUTTI_RETURN_IF_ERROR(over());
      if (!stream_.is_open()) {
        failure_ = "rank 0 (" + host_ + ") has left";
        return over();
      }
      if (has_passed(deadline)) {
        failure_ = "rank 0 at " + options_.address + " does not answer";
        return over();
      }
      pollfd readable = {stream_.get(), POLLIN, 0};
      (void)poll(&readable, 1, left_ms(deadline));
    }
  }

  void look() {
    const bool is_there = stream_.is_open() && stream_.read();
    while (std::optional<Frame> frame = stream_.take()) {
      if (frame->kind == Kind::kFailure) {
        failure_ = is_over() ? failure_ : frame->text;
      } else if (frame->kind == Kind::kClose) {
        has_left_ = true;
      } else {
        answers_.push_back(*std::move(frame));
      }
    }
    if (!is_there) {
      stream_.close();
    }
    note_end();
  }

  /// Its last answer, a refusal for one, is first for a call to take.
  void note_end() {
    if (!stream_.is_open() && answers_.empty() && !has_left_ && !is_over()) {
      failure_ =
          "rank 0 (" + (host_.empty() ? options_.address : host_) + ") is gone: its process ended";
    }
  }

  Addresses found_;
  Stream stream_;
  std::string host_;  ///< Who rank 0 is.
  bool has_left_ = false;
  std::deque<Frame> answers_;
};

}  // namespace

Result<std::unique_ptr<TcpBootstrap>> TcpBootstrap::open(const TcpBootstrapOptions& options) {
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks) {
    return Status(ErrorCode::kInvalidArgument, "bootstrap: rank " + std::to_string(options.rank) +
                                                   " of " + std::to_string(options.ranks) +
                                                   ": ranks count from 0");
  }
  if (options.rank == 0) {
    auto host = std::make_unique<RootRank>(options);
    TUTTI_RETURN_IF_ERROR(host->listen());
    return std::unique_ptr<TcpBootstrap>(std::move(host));
  }
  auto caller = std::make_unique<OtherRank>(options);
  TUTTI_RETURN_IF_ERROR(caller->find());
  return std::unique_ptr<TcpBootstrap>(std::move(caller));
}

}  // namespace tutti::net
