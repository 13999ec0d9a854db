// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The effective configuration: every TUTTI_* variable, parsed once. Its config.cpp alone reads
// the environment (tools/tidy.py enforces it). The knobs themselves stand in base/config_table.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/units.hpp"

namespace tutti {

/// Names of the 17 blocking collectives in the order of select::Collective; each has a variable
/// TUTTI_<NAME> (upper case) that holds a plan list, for example "8K:mpi-gamma,ccl-beta".
inline constexpr int kCollectiveCount = 17;
inline constexpr std::array<const char*, kCollectiveCount> kCollectiveNames = {
    "barrier",   "bcast",     "gather",     "gatherv",        "scatter",
    "scatterv",  "allgather", "allgatherv", "alltoall",       "alltoallv",
    "alltoallw", "reduce",    "allreduce",  "reduce_scatter", "reduce_scatter_block",
    "scan",      "exscan"};

/// How MPI_COMM_WORLD is cut into pretended nodes: into `count` runs as equal as can be, or, if
/// there are sizes, into runs of these many ranks, over and over.
struct VirtualNodes {
  int count = 0;           ///< 0: real nodes. With sizes: how many those are.
  std::vector<int> sizes;  ///< Ranks of each node, at least 1; empty: equal nodes.

  bool operator==(const VirtualNodes&) const = default;
};

/// Parsed values; fields carry the knobs' names in lower case without the prefix.
struct Config {
  bool enable = true;   ///< false: every call goes straight to MPI.
  bool strict = false;  ///< A fall-back is an error.
  LogLevel log_level = LogLevel::kWarn;
  std::string log_file;
  std::string device = "auto";   ///< auto | cuda | hip | host | none
  std::string ccl = "auto";      ///< auto | nccl | rccl | none
  std::string ccl_library;       ///< Path; empty: search.
  std::string tuning_file;       ///< Path; empty: user's, then system's, then built-in.
  std::string transport_policy;  ///< Path of a shared object; empty: none.
  std::string topology_file;     ///< Path; empty: nodes are discovered.
  std::array<std::string, kCollectiveCount> plans;  ///< TUTTI_<COLLECTIVE>; empty: unset.
  VirtualNodes virtual_nodes;
  double timeout_s = 1800;               ///< 0: wait for ever.
  Bytes pipeline_chunk_bytes = 1 << 20;  ///< Staged native collectives are cut into these.
  Bytes pinned_pool_bytes = 256 << 20;   ///< Cached pinned staging memory per process.
  std::string direct = "auto";           ///< Which GPUs our own kernels may use: auto, all, off.
  std::string direct_handles = "auto";   ///< auto | ipc | descriptor | fabric (device::Sharing)
  int net_paths = 64;                    ///< Of a connection: source ports over UDP.
  int net_engines = 0;               ///< Engine threads of a network device; 0: by the processors.
  int net_sub_connections = 0;       ///< Engines that share a long message; 0: by the device.
  int net_ack_delay_us = 20;         ///< Of what may wait for company.
  int net_speed_mbps = 0;            ///< Of each device; 0: what the system says.
  std::string net_wire = "udp";      ///< What carries packets (net/wires.cpp).
  std::string net_verbs = "auto";    ///< auto | uc | rc | ud (wire/verbs)
  std::string net_polling = "auto";  ///< auto | busy | shared (net/engine.hpp)
  std::string net_controller = "cubic";   ///< transport/congestion/controller.cpp
  std::string net_spray = "two_choices";  ///< transport/spray.hpp
  Bytes net_chunk_bytes = 0;              ///< 0: 200 us of the link, at most 64 KiB.
  Bytes net_copy_bytes = 1024;            ///< Sends up to so long are copied.
  Bytes net_buffer_bytes = 64 << 20;      ///< Of a receiving socket.
  double net_latency_us = 15;             ///< One way, as NCCL is told; 0: not known.
  double net_timeout_s = 30;              ///< Without a sign of life the peer is gone.
  int net_traffic_class = 0;              ///< IPv4's TOS, IPv6's traffic class.
  bool net_offload = true;                ///< Segmentation and coalescing by kernel or NIC.
  std::string net_timestamps = "auto";    ///< auto | on | off: when packets came to the host.
  std::string net_affinity = "off";       ///< near | off | processors (net/processors.hpp)
  bool net_authenticate = true;           ///< Packets carry a tag.
  bool net_statistics = true;             ///< What the engines do, in shared memory.
  std::string metrics;       ///< File for Prometheus (net/observe/metrics.hpp); empty: none.
  std::string trace;         ///< File of what the engines do (net/observe/trace.hpp); empty: none.
  std::string fault;         ///< Of the network, wire/fault/fault_plan.hpp; empty: none.
  bool sync_device = false;  ///< Debug: wait for the whole device before each collective.
  bool summary = false;      ///< A table of what carried this job's collectives, at its end.
  // Read in Python alone; knobs so that their names are known.
  std::string library_dir;
  std::string torch_replace;
};

/// One complaint about the environment: an unknown variable ("did you mean"), a bad value.
struct ConfigProblem {
  bool is_error = false;  ///< A bad value (error) or an unknown name (warning).
  std::string text;       ///< Names the variable, what is wrong, the remedy.
};

struct ParsedConfig {
  Config config;  ///< Bad values leave the default in place.
  std::vector<ConfigProblem> problems;
};

/// Pure: parses the given "NAME=value" strings; names that do not start with TUTTI_ are skipped.
ParsedConfig parse_config(const std::vector<std::string>& environment);

/// Reads the process's environment and calls parse_config. Not cached: the engine keeps it.
ParsedConfig config_from_environment();

/// The process's environment as "NAME=value" strings.
std::vector<std::string> process_environment();

/// Plain getenv for the few variables that belong to others (HOME, XDG_CONFIG_HOME, NCCL_HOSTID,
/// MPI launchers' ranks); empty when unset.
std::string environment_value(const char* name);

/// The rank that a launcher gave this process in a variable of its own: torchrun, Open MPI, PMI,
/// PMIx, Slurm. None: nobody did.
std::optional<std::uint64_t> launcher_rank();

/// All knobs with type, unit, range, default, value, origin ("default" or "environment"), effect
/// and since-version, as a JSON array; `tutti config` prints it.
std::string config_json(const std::vector<std::string>& environment);

}  // namespace tutti
