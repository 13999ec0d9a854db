// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "discover/discover.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_document.hpp"
#include "discover/directory_tree.hpp"

namespace tutti::discover {
namespace {

void explain_unknowns(const topology::Machine& machine, std::vector<std::string>* unavailable) {
  if (machine.sockets.empty()) {
    unavailable->push_back("sockets: /sys/devices/system/cpu does not tell them");
  }
  if (machine.nics.empty()) {
    unavailable->push_back(
        "NICs: neither /sys/class/infiniband nor /sys/class/net has one behind PCI");
  } else if (topology::rail_nics(machine).empty()) {
    unavailable->push_back("rails: no NIC is up");
  }
}

}  // namespace

Discovery this_machine() {
  Discovery found;
  topology::VendorFacts facts;
  for (const auto ask : {ask_nvml, ask_rocm_smi}) {
    auto answer = ask();
    if (!answer.ok()) {
      found.unavailable.push_back(answer.status().message());
    } else if (!facts.is_known || facts.gpus.empty()) {
      facts = std::move(*answer);
    }
  }
  found.machine = topology::machine_from_sysfs(DirectoryTree(""), facts);
  found.machine.host = host_name();
  explain_unknowns(found.machine, &found.unavailable);
  return found;
}

topology::Machine this_machine_by_sysfs() {
  topology::Machine machine = topology::machine_from_sysfs(DirectoryTree(""), {});
  machine.host = host_name();
  return machine;
}

Result<Discovery> recorded_machine(const std::string& root) {
  Discovery found;
  struct stat info {};
  if (stat(root.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    const DirectoryTree tree(root);
    if (tree.list("/sys").empty()) {
      return Status(ErrorCode::kInvalidArgument, root + ": no directory sys in it");
    }
    found.machine = topology::machine_from_sysfs(tree, {});
  } else {
    TUTTI_ASSIGN_OR_RETURN(const std::string text, read_json_file(root));
    TUTTI_ASSIGN_OR_RETURN(const auto tree, topology::RecordedTree::parse(text, root));
    found.machine = topology::machine_from_sysfs(tree, {});
  }
  found.unavailable.push_back("links of the GPUs' vendor: a recorded tree has none");
  explain_unknowns(found.machine, &found.unavailable);
  return found;
}

std::string host_name() {
  char host[256] = {};
  return gethostname(host, sizeof(host) - 1) == 0 ? host : "";
}

std::vector<int> own_cpus() {
  std::vector<int> cpus;
  // The kernel refuses a set smaller than its own.
  for (int room = 1024; room <= 65536; room *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(room));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(room));
    if (set == nullptr) {
      return cpus;
    }
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < room; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) {
        cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (known) {
      return cpus;
    }
  }
  return cpus;
}

}  // namespace tutti::discover
