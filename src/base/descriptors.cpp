// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/descriptors.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace tutti {

bool send_with_descriptors(int socket, std::span<const std::byte> content,
                           std::span<const int> descriptors, const sockaddr* to,
                           socklen_t to_bytes) {
  iovec part = {const_cast<std::byte*>(content.data()), content.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kPassedMax * sizeof(int))] = {};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(to);
  message.msg_namelen = to_bytes;
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
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(content.size());
}

bool receive_with_descriptors(int socket, int flags, std::span<std::byte> content,
                              std::vector<Descriptor>* descriptors) {
  iovec part = {content.data(), content.size()};
  // Room for as many as a message can have: others the kernel would close within this call.
  alignas(cmsghdr) char control[CMSG_SPACE(kPassedMax * sizeof(int))] = {};
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
  return got == static_cast<ssize_t>(content.size());
}

int descriptors_max() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0
             ? static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX))
             : INT_MAX;
}

int descriptors_left() {
  DIR* const open = opendir("/proc/self/fd");
  if (open == nullptr) {
    return errno == EMFILE ? 0 : descriptors_max();
  }
  const int most = descriptors_max();
  int count = -1;  // The directory's own.
  while (const dirent* const entry = readdir(open)) {
    // Numbers beyond the limit are from before it was lowered, and take no room.
    const bool is_one = entry->d_name[0] != '.' && std::atoi(entry->d_name) < most;
    count += is_one ? 1 : 0;
  }
  closedir(open);
  return most - count;
}

std::string why_no_descriptor() {
  const std::string why = std::strerror(errno);
  return errno == EMFILE
             ? why + "; remedy: a higher ulimit -n than " + std::to_string(descriptors_max())
             : why;
}

}  // namespace tutti
