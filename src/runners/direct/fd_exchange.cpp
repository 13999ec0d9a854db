// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/fd_exchange.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptors.hpp"
#include "base/system_random.hpp"

namespace tutti::runners {
namespace {

using Clock = std::chrono::steady_clock;

constexpr time_t kSendTimeoutS = 10;

struct Datagram {
  std::array<std::uint64_t, 2> secret{};  ///< The receiver's.
  std::int32_t from = -1;
};

Status exchange_error(const char* what) {
  return Status(ErrorCode::kUnavailable, std::string("descriptors for the ranks of this node: ") +
                                             what + ": " + std::strerror(errno));
}

/// One datagram that waits in the queue; nothing: a stranger's, or one without a descriptor.
std::optional<std::pair<Datagram, Descriptor>> take(int socket) {
  Datagram datagram;
  std::vector<Descriptor> descriptors;  // Strangers may send many.
  if (!receive_with_descriptors(socket, MSG_DONTWAIT,
                                std::as_writable_bytes(std::span(&datagram, 1)), &descriptors) ||
      descriptors.size() != 1) {
    return std::nullopt;
  }
  return std::pair(datagram, std::move(descriptors.front()));
}

}  // namespace

Result<FdExchange> FdExchange::open() {
  FdExchange self;
  self.socket_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un bound{};
  bound.sun_family = AF_UNIX;
  // With no name at all the kernel gives one of its own.
  if (self.socket_.get() < 0 ||
      bind(self.socket_.get(), reinterpret_cast<sockaddr*>(&bound), sizeof(sa_family_t)) != 0) {
    return exchange_error("no socket");
  }
  const timeval timeout{.tv_sec = kSendTimeoutS, .tv_usec = 0};
  socklen_t bytes = sizeof bound;
  if (setsockopt(self.socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0 ||
      getsockname(self.socket_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    return exchange_error("no socket");
  }
  Address& address = self.address_;
  address.name_bytes = bytes - static_cast<socklen_t>(offsetof(sockaddr_un, sun_path));
  if (address.name_bytes > address.name.size()) {
    errno = ENAMETOOLONG;
    return exchange_error("no socket");
  }
  std::memcpy(address.name.data(), bound.sun_path, address.name_bytes);
  TUTTI_RETURN_IF_ERROR(system_random(address.secret.data(), sizeof address.secret));
  return self;
}

Status FdExchange::send_to_all(std::span<const Address> all, int self, int descriptor) const {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == static_cast<std::size_t>(self)) {
      continue;
    }
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    const std::size_t name_bytes =
        std::min<std::size_t>(all[rank].name_bytes, all[rank].name.size());
    std::memcpy(to.sun_path, all[rank].name.data(), name_bytes);
    const Datagram datagram{all[rank].secret, self};
    if (!send_with_descriptors(
            socket_.get(), std::as_bytes(std::span(&datagram, 1)), std::span(&descriptor, 1),
            reinterpret_cast<const sockaddr*>(&to),
            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_bytes))) {
      const std::string what = "rank " + std::to_string(rank) + " cannot be reached";
      return errno == EAGAIN ? Status(ErrorCode::kTimeout, exchange_error(what.c_str()).message())
                             : exchange_error(what.c_str());
    }
  }
  return {};
}

Result<std::vector<Descriptor>> FdExchange::receive_from_all(int ranks, int self,
                                                             double timeout_s) const {
  std::vector<Descriptor> received(static_cast<std::size_t>(ranks));
  const auto end = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (int missing = ranks - 1; missing > 0;) {
    const double left_s = std::chrono::duration<double>(end - Clock::now()).count();
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (left_s <= 0) {
      return Status(ErrorCode::kTimeout, "descriptors of " + std::to_string(missing) +
                                             " ranks of this node have not come");
    }
    if (poll(&waiting, 1, static_cast<int>(left_s * 1000) + 1) <= 0) {
      continue;
    }
    auto datagram = take(socket_.get());
    if (!datagram || datagram->first.secret != address_.secret || datagram->first.from < 0 ||
        datagram->first.from >= ranks || datagram->first.from == self) {
      continue;  // Anybody on this host can write here.
    }
    Descriptor& place = received[static_cast<std::size_t>(datagram->first.from)];
    missing -= place.get() < 0 ? 1 : 0;
    place = std::move(datagram->second);
  }
  return received;
}

}  // namespace tutti::runners
