// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// tutti-xdp-helper: opens AF_XDP sockets for jobs that run without privileges (xdp_helper.hpp).
#include <grp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "wire/xdp/xdp_helper.hpp"

namespace {

using tutti::wire::xdp::HelperServer;
using tutti::wire::xdp::kHelperPath;

constexpr const char* kUsage =
    "usage: tutti-xdp-helper [--socket PATH] [--group GROUP]\n"
    "\n"
    "Opens AF_XDP sockets for jobs with TUTTI_NET_WIRE=xdp that run without privileges, in the\n"
    "network namespace that it was started in. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW,\n"
    "CAP_BPF, CAP_IPC_LOCK, and CAP_SYS_ADMIN for several jobs on one interface. When it ends,\n"
    "jobs go on over UDP.\n"
    "\n"
    "  --socket PATH   where it listens (default /run/tutti-xdp-helper.sock)\n"
    "  --group GROUP   who may ask, beside root. Members can send any frame by the interface.\n";

int fail(const std::string& text) {
  std::fprintf(stderr, "tutti-xdp-helper: %s\n", text.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path = kHelperPath;
  std::string group;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--help" || name == "-h") {
      std::fputs(kUsage, stderr);
      return 0;
    }
    if ((name != "--socket" && name != "--group") || i + 1 == argc) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    (name == "--socket" ? path : group) = argv[++i];
  }
  const ::group* const members = group.empty() ? nullptr : getgrnam(group.c_str());
  if (!group.empty() && members == nullptr) {
    return fail("there is no group '" + group + "'");
  }
  auto server = HelperServer::open(path, members == nullptr ? 0600 : 0660);
  if (!server.ok()) {
    return fail(server.status().message());
  }
  if (members != nullptr && chown(path.c_str(), static_cast<uid_t>(-1), members->gr_gid) != 0) {
    return fail(path + ": " + std::strerror(errno));
  }
  // Until a signal ends it: what it has open is closed then, and the next helper takes the path.
  for (;;) {
    server->serve(-1);
  }
}
