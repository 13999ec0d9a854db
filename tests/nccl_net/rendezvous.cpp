// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace tutti::driver {
namespace {

// A frame: 4 bytes of length, then the text. An answer: for each rank 1 byte (it lives) and a
// frame.

bool write_all(int fd, const std::string& text) {
  for (std::size_t offset = 0; offset < text.size();) {
    const ssize_t wrote = send(fd, text.data() + offset, text.size() - offset, MSG_NOSIGNAL);
    if (wrote < 0 && errno != EINTR) {
      return false;
    }
    offset += static_cast<std::size_t>(std::max<ssize_t>(wrote, 0));
  }
  return true;
}

std::string read_exactly(int fd, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t offset = 0; offset < bytes;) {
    const ssize_t got = recv(fd, text.data() + offset, bytes - offset, 0);
    if (got == 0 || (got < 0 && errno != EINTR)) {
      throw std::runtime_error("the rendezvous has ended");
    }
    offset += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  }
  return text;
}

std::string frame(const std::string& text) {
  const auto bytes = static_cast<std::uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + text;
}

std::uint32_t length_of(const std::string& head) {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, head.data(), sizeof bytes);
  return bytes;
}

/// What the server knows of a rank.
struct Seat {
  int fd = -1;
  bool alive = true;
  std::string input;
  std::string last;

  bool has_frame() const {
    return input.size() >= 4 && input.size() >= 4 + std::size_t{length_of(input)};
  }
};

addrinfo* resolve(const std::string& host_and_port, bool passive) {
  const std::size_t colon = host_and_port.rfind(':');
  if (colon == std::string::npos) {
    throw std::runtime_error(host_and_port + ": HOST:PORT is expected");
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host_and_port.substr(0, colon).c_str(),
                                 host_and_port.substr(colon + 1).c_str(), &hints, &found);
  if (status != 0) {
    throw std::runtime_error(host_and_port + ": " + gai_strerror(status));
  }
  return found;
}

}  // namespace

Rendezvous::~Rendezvous() { close(fd_); }

std::vector<std::string> Rendezvous::all_gather(const std::string& mine) {
  if (!write_all(fd_, frame(mine))) {
    throw std::runtime_error("the rendezvous has ended");
  }
  const std::uint32_t ranks = length_of(read_exactly(fd_, 4));
  std::vector<std::string> texts;
  alive_.assign(ranks, false);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    alive_[rank] = read_exactly(fd_, 1)[0] != 0;
    texts.push_back(read_exactly(fd_, length_of(read_exactly(fd_, 4))));
  }
  return texts;
}

std::vector<std::string> serve(const std::vector<int>& fds, const std::atomic<bool>& stop) {
  std::vector<Seat> seats(fds.size());
  for (std::size_t i = 0; i < fds.size(); ++i) {
    seats[i].fd = fds[i];
  }
  const auto any_alive = [&] {
    return std::any_of(seats.begin(), seats.end(), [](const Seat& seat) { return seat.alive; });
  };
  while (any_alive() && !stop) {
    std::vector<pollfd> polled;
    for (const Seat& seat : seats) {
      polled.push_back({.fd = seat.alive ? seat.fd : -1, .events = POLLIN, .revents = 0});
    }
    poll(polled.data(), polled.size(), 50);
    for (std::size_t i = 0; i < seats.size(); ++i) {
      if (polled[i].revents == 0) {
        continue;
      }
      char buffer[65536];
      const ssize_t got = recv(seats[i].fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) {
        seats[i].input.append(buffer, static_cast<std::size_t>(got));
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        seats[i].alive = false;
      }
    }
    if (!any_alive() || !std::all_of(seats.begin(), seats.end(), [](const Seat& seat) {
          return !seat.alive || seat.has_frame();
        })) {
      continue;
    }
    const auto ranks = static_cast<std::uint32_t>(seats.size());
    std::string answer(reinterpret_cast<const char*>(&ranks), sizeof ranks);
    for (Seat& seat : seats) {
      std::string text;
      if (seat.alive) {
        text = seat.input.substr(4, length_of(seat.input));
        seat.input.erase(0, 4 + text.size());
        seat.last = text;
      }
      answer += seat.alive ? '\1' : '\0';
      answer += frame(text);
    }
    for (Seat& seat : seats) {
      seat.alive = seat.alive && write_all(seat.fd, answer);
    }
  }
  std::vector<std::string> last;
  for (Seat& seat : seats) {
    last.push_back(std::move(seat.last));
    close(seat.fd);
  }
  return last;
}

int listen_at(const std::string& host_and_port) {
  addrinfo* const found = resolve(host_and_port, true);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const bool good = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 64) == 0;
  freeaddrinfo(found);
  if (!good) {
    throw std::runtime_error(host_and_port + ": " + std::strerror(errno));
  }
  return fd;
}

std::vector<int> accept_ranks(int listener, int ranks) {
  std::vector<int> fds(static_cast<std::size_t>(ranks), -1);
  for (int i = 0; i < ranks; ++i) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      throw std::runtime_error(std::string("accept: ") + std::strerror(errno));
    }
    fds.at(length_of(read_exactly(fd, 4))) = fd;
  }
  close(listener);
  return fds;
}

int dial(const std::string& host_and_port, int rank, int timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  addrinfo* const found = resolve(host_and_port, false);
  while (true) {
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
      freeaddrinfo(found);
      const auto number = static_cast<std::uint32_t>(rank);
      write_all(fd, std::string(reinterpret_cast<const char*>(&number), sizeof number));
      return fd;
    }
    const int error = errno;
    close(fd);
    if (std::chrono::steady_clock::now() > deadline) {
      freeaddrinfo(found);
      throw std::runtime_error(host_and_port + ": " + std::strerror(error));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace tutti::driver
