// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The one room that looks at the machine to find out its topology: sysfs by reading files, the
// vendors' management libraries by dlopen. What it finds it hands to src/topology, which is pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"
#include "topology/sysfs.hpp"

namespace tutti::discover {

struct Discovery {
  topology::Machine machine;
  std::vector<std::string> unavailable;  ///< What could not be asked, and why.
};

/// This machine, with the vendors' libraries. Initialises and shuts down NVML or ROCm SMI, which
/// makes no context on a GPU but may take seconds where no driver is loaded yet: for commands.
Discovery this_machine();
/// This machine by sysfs alone: some milliseconds, loads nothing. For the engine.
topology::Machine this_machine_by_sysfs();
/// A recorded machine: a directory that holds sys/, or a listing (topology/tree.hpp). Errors name
/// the file.
Result<Discovery> recorded_machine(const std::string& root);

/// Name of this host.
std::string host_name();
/// CPUs on which the calling thread may run, ascending; empty when the kernel does not say.
std::vector<int> own_cpus();

/// What NVIDIA's library says (nvml.cpp); an error says why it says nothing.
Result<topology::VendorFacts> ask_nvml();
/// What AMD's library says (rocm_smi.cpp).
Result<topology::VendorFacts> ask_rocm_smi();

}  // namespace tutti::discover
