// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// tutti-xdp-helper: opens AF_XDP sockets for jobs that run without privileges (xdp_helper.hpp).
#include <grp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "wire/xdp/xdp_helper.hpp"

namespace {

using tutti::wire::xdp::HelperOptions;
using tutti::wire::xdp::HelperServer;

constexpr const char* kUsage =
    "usage: tutti-xdp-helper --interface NAME... [--socket PATH] [--group GROUP] [--zero-copy]\n"
    "\n"
    "Opens AF_XDP sockets for jobs with TUTTI_NET_WIRE=xdp that run without privileges, in the\n"
    "network namespace that it was started in. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW,\n"
    "CAP_BPF, CAP_IPC_LOCK, and CAP_SYS_ADMIN for several jobs on one interface. When it ends,\n"
    "jobs go on over UDP.\n"
    "\n"
    "  --interface NAME  Ethernet interface that it serves; once for each\n"
    "  --socket PATH     where it listens (default /run/tutti-xdp-helper.sock); PATH.lock is "
    "locked\n"
    "  --group GROUP     who may ask, beside root. Members can send any frame by the interfaces, "
    "and\n"
    "                    the host's firewall, IPsec and traffic shaping do not apply to what they\n"
    "                    send and receive so.\n"
    "  --zero-copy       where the driver can. Members then see and can change, or hold up, all\n"
    "                    traffic of the queues that they use.\n";

volatile std::sig_atomic_t has_ended = 0;

void end(int /*signal*/) { has_ended = 1; }

int fail(const std::string& text) {
  std::fprintf(stderr, "tutti-xdp-helper: %s\n", text.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  HelperOptions options;
  std::string group;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--help" || name == "-h") {
      std::fputs(kUsage, stderr);
      return 0;
    }
    if (name == "--zero-copy") {
      options.allows_zero_copy = true;
    } else if (i + 1 < argc && name == "--interface") {
      options.interfaces.emplace_back(argv[++i]);
    } else if (i + 1 < argc && (name == "--socket" || name == "--group")) {
      (name == "--socket" ? options.path : group) = argv[++i];
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  if (options.interfaces.empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const ::group* const members = group.empty() ? nullptr : getgrnam(group.c_str());
  if (!group.empty() && members == nullptr) {
    return fail("there is no group '" + group + "'");
  }
  // A client it serves has some five descriptors here.
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
  options.on_refusal = [](const std::string& text) { (void)fail(text); };
  const std::string path = options.path;
  options.mode = members == nullptr ? 0600 : 0660;
  auto server = HelperServer::open(std::move(options));
  if (!server.ok()) {
    return fail(server.status().message());
  }
  if (members != nullptr && lchown(path.c_str(), static_cast<uid_t>(-1), members->gr_gid) != 0) {
    return fail(path + ": " + std::strerror(errno));
  }
  // A signal ends it in order: the sockets of its clients leave the program's maps, which a process
  // of root may keep on the interface.
  struct sigaction action {};
  action.sa_handler = end;
  (void)sigaction(SIGTERM, &action, nullptr);
  (void)sigaction(SIGINT, &action, nullptr);
  while (has_ended == 0) {
    server->serve(-1);
  }
  return 0;
}
