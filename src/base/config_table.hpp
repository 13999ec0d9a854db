// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The one table of knobs. Parsing and `tutti config` are driven by it or checked
// against it. Defaults are not repeated here: they are the initial values in base/config.hpp.
// A removed knob stays as an entry whose `replaced_by` says what to use in its place: the name of a
// knob takes its value, with a warning, for one release.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "base/config.hpp"

namespace tutti {

/// A knob's field in Config, which is also its type. A size_t is an index into Config::plans.
using KnobField =
    std::variant<std::monostate, bool Config::*, int Config::*, double Config::*, Bytes Config::*,
                 LogLevel Config::*, std::string Config::*, VirtualNodes Config::*, std::size_t>;

struct Knob {
  std::string name;         ///< "TUTTI_ENABLE"
  KnobField field;          ///< monostate: removed.
  std::string unit;         ///< "s", "bytes", "" for none.
  std::string range;        ///< "a|b|c" (choices), "low..high" (numbers), "" (free text).
  std::string effect;       ///< One sentence.
  std::string since;        ///< First release that has it.
  std::string replaced_by;  ///< Only in removed entries: what to set instead, a name or a text.
};

/// Every knob in the order in which `tutti config` prints them.
inline const std::vector<Knob>& knobs() {
  static const std::vector<Knob> table = [] {
    std::vector<Knob> all = {
        {"TUTTI_ENABLE", &Config::enable, "", "", "0: every call uses native MPI.", "0.1", ""},
        {"TUTTI_STRICT", &Config::strict, "", "",
         "1: a fall-back is an error: a plan that cannot carry a call, ranks without the preload, "
         "an "
         "MPI library that is not served, gloo or NCCL in place of a PyTorch group's plan, or a "
         "network device that lacks a feature its settings ask for.",
         "0.1", ""},
        {"TUTTI_LOG_LEVEL", &Config::log_level, "", "error|warn|info|debug",
         "Minimum severity to log (debug: as info). The network plugin logs through NCCL: "
         "NCCL_DEBUG=INFO.",
         "0.1", ""},
        {"TUTTI_LOG_FILE", &Config::log_file, "", "",
         "Log file; %h is the host, %p the process. Unset: standard error.", "0.1", ""},
        {"TUTTI_DEVICE", &Config::device, "", "auto|cuda|hip|host|none",
         "GPU runtime to load; host emulates a GPU on machines without one.", "0.1", ""},
        {"TUTTI_CCL", &Config::ccl, "", "auto|nccl|rccl|none",
         "Collective communication library to load.", "0.1", ""},
        {"TUTTI_CCL_LIBRARY", &Config::ccl_library, "", "",
         "Path of the collective communication library, where the process has loaded none. Unset: "
         "PyTorch's, else the system's.",
         "0.1", ""},
        {"TUTTI_TUNING_FILE", &Config::tuning_file, "", "",
         "Tuning file. Unset: the user's file, else the system's, else the shipped rules alone.",
         "0.1", ""},
        {"TUTTI_TOPOLOGY_FILE", &Config::topology_file, "", "",
         "File that describes nodes: sockets, GPUs, NICs and rails. Unset: each node is "
         "discovered.",
         "0.1", ""},
        {"TUTTI_TRANSPORT_POLICY", &Config::transport_policy, "", "",
         "Shared object with a transport policy (tutti/transport_policy.h). Unset: none.", "0.1",
         ""},
        {"TUTTI_VIRTUAL_NODES", &Config::virtual_nodes, "nodes", "0..65536",
         "Splits one machine into this many nodes, for tests. A list (5,4,3) gives the ranks of "
         "each node and is repeated. 0: the real nodes.",
         "0.1", ""},
        {"TUTTI_TIMEOUT", &Config::timeout_s, "s", "0..31536000",
         "Time after which a collective or a set-up is an error, except while an MPI program waits "
         "for a running process of its machine. 0: never.",
         "0.1", ""},
        {"TUTTI_PIPELINE_CHUNK", &Config::pipeline_chunk_bytes, "bytes", "0..16G",
         "Chunk size of collectives staged through host memory. 0: no pipelining.", "0.1", ""},
        {"TUTTI_PINNED_POOL", &Config::pinned_pool_bytes, "bytes", "0..1T",
         "Pinned host memory that a process keeps for staging, at most.", "0.1", ""},
        {"TUTTI_DIRECT", &Config::direct, "", "auto|all|off",
         "Where our GPU kernels run. auto: GPUs joined by NVLink; all: also PCIe and AMD GPUs, "
         "where they have not been measured.",
         "0.1", ""},
        {"TUTTI_DIRECT_HANDLES", &Config::direct_handles, "", "auto|ipc|descriptor|fabric",
         "How ranks share GPU memory for our kernels. auto tries ipc, then file descriptors, then "
         "fabric handles.",
         "0.1", ""},
        {"TUTTI_NET_PATHS", &Config::net_paths, "", "1..1024",
         "Network paths of a connection: UDP source ports, or queue pairs.", "0.1", ""},
        {"TUTTI_NET_ENGINES", &Config::net_engines, "", "0..64",
         "Engine threads of each network device. 0: one shared; from 16 processors on two to four "
         "busy ones, divided among the devices.",
         "0.1", ""},
        {"TUTTI_NET_SUB_CONNECTIONS", &Config::net_sub_connections, "", "0..8",
         "Engines that share each long message of a channel (connection splitting); the smaller "
         "number of both ends counts. 0: two on the loopback interface, else one.",
         "0.1", ""},
        {"TUTTI_NET_LANES",
         {},
         "",
         "",
         "The old name of TUTTI_NET_SUB_CONNECTIONS.",
         "0.1",
         "TUTTI_NET_SUB_CONNECTIONS"},
        {"TUTTI_NET_POLLING", &Config::net_polling, "", "auto|busy|shared",
         "busy: engine threads spin; shared: callers do their work. auto: busy where processors "
         "are free. A spinning thread sleeps after 1 ms without work, and while others need its "
         "processor.",
         "0.1", ""},
        {"TUTTI_NET_AFFINITY", &Config::net_affinity, "", "",
         "Processors of the engine threads, of those that the process may use: near their network "
         "device, a list like 0-3,8, or off: where NCCL's threads may run.",
         "0.1", ""},
        {"TUTTI_NET_CONTROLLER", &Config::net_controller, "", "",
         "Congestion control of our transport: {controllers}. Equal on all hosts.", "0.1", ""},
        {"TUTTI_NET_WIRE", &Config::net_wire, "", "udp|verbs|xdp|auto",
         "What carries the packets of our transport: UDP sockets, RDMA NICs by libibverbs, or "
         "AF_XDP sockets, which need privileges or tutti-xdp-helper. auto: verbs where network "
         "interfaces have RDMA ports, else udp. Equal on all hosts.",
         "0.1", ""},
        {"TUTTI_NET_VERBS", &Config::net_verbs, "", "auto|uc|rc|ud",
         "Service of the RDMA NICs under TUTTI_NET_WIRE=verbs. auto: uc, or rc where the NIC has "
         "no UC. Equal on all hosts.",
         "0.1", ""},
        {"TUTTI_NET_SPRAY", &Config::net_spray, "", "oblivious|two_choices|bitmap|reps|mixed",
         "How the transport chooses paths. reps and mixed need switches that mark packets (ECN).",
         "0.1", ""},
        {"TUTTI_NET_CHUNK", &Config::net_chunk_bytes, "bytes", "0..64K",
         "Unit of acknowledgement and retransmission, at least 512. 0: 200 us of the link, at most "
         "64 KiB; over verbs 32 KiB, or less (docs/rdma.md).",
         "0.1", ""},
        {"TUTTI_NET_COPY", &Config::net_copy_bytes, "bytes", "0..1K",
         "Largest message copied and completed locally (eager).", "0.1", ""},
        {"TUTTI_NET_ACK_DELAY", &Config::net_ack_delay_us, "us", "0..1000",
         "Time for which acknowledgements of eager messages, and clear-to-send messages that are "
         "not urgent, wait for a packet to piggyback on. 0: none.",
         "0.1", ""},
        {"TUTTI_NET_BUFFER", &Config::net_buffer_bytes, "bytes", "64K..1G",
         "Receive buffer of an engine's socket, as far as the system allows.", "0.1", ""},
        {"TUTTI_NET_SPEED", &Config::net_speed_mbps, "Mb/s", "0..1000000",
         "Speed of the network devices. 0: what the system reports.", "0.1", ""},
        {"TUTTI_NET_LATENCY", &Config::net_latency_us, "us", "0..1000000",
         "One-way latency that the plugin reports to NCCL for its choice of protocols. 0: NCCL's "
         "own numbers.",
         "0.1", ""},
        {"TUTTI_NET_TIMEOUT", &Config::net_timeout_s, "s", "0.1..3600",
         "Idle time after which a peer of the transport is declared dead.", "0.1", ""},
        {"TUTTI_NET_TRAFFIC_CLASS", &Config::net_traffic_class, "", "0..255",
         "Traffic class (TOS) of the transport's packets, unless the program sets one "
         "(ncclConfig_t). The transport sets its two low bits.",
         "0.1", ""},
        {"TUTTI_NET_OFFLOAD", &Config::net_offload, "", "",
         "0: no segmentation offload (UDP_SEGMENT, UDP_GRO).", "0.1", ""},
        {"TUTTI_NET_TIMESTAMPS", &Config::net_timestamps, "", "auto|on|off",
         "Receive timestamps of the kernel or the NIC, so that host delay does not count as "
         "congestion. auto: on for controllers that use delay (nscc, swift, timely, a policy).",
         "0.1", ""},
        {"TUTTI_NET_AUTHENTICATE", &Config::net_authenticate, "", "",
         "0: packets carry no authentication tag. Equal on all hosts.", "0.1", ""},
        {"TUTTI_NET_STATISTICS", &Config::net_statistics, "", "",
         "0: no statistics in /dev/shm, which `tutti top` reads.", "0.1", ""},
        {"TUTTI_METRICS", &Config::metrics, "", "",
         "File for the network engines' metrics in Prometheus' text format. %h is the host, %p the "
         "process, whose number goes before the ending if there is no %p. Unset: none.",
         "0.1", ""},
        {"TUTTI_TRACE", &Config::trace, "", "",
         "File for a trace of the network engines' requests and the transport's events, for "
         "Perfetto or Chrome. %h and %p as in TUTTI_METRICS. Unset: none.",
         "0.1", ""},
        {"TUTTI_FAULT", &Config::fault, "", "",
         "For tests: faults injected between engines, for example "
         "seed=7,drop=0.01,duplicate=0.001,reorder=0.01,delay=0.02:200us,corrupt=0.001,"
         "kill_path=3@1s,kill_rail=all@2s:500ms. Unset: none.",
         "0.1", ""},
        {"TUTTI_SYNC_DEVICE", &Config::sync_device, "", "",
         "1: waits for the whole GPU before each collective, to find missing synchronisation.",
         "0.1", ""},
        {"TUTTI_SUMMARY", &Config::summary, "", "",
         "1: rank 0 prints a table at MPI_Finalize: calls and seconds of each collective, size "
         "class and plan.",
         "0.1", ""},
        {"TUTTI_LIBRARY_DIR", &Config::library_dir, "", "",
         "Directory of the shared objects that the tutti command uses. Unset: its own.", "0.1", ""},
        {"TUTTI_TORCH_REPLACE", &Config::torch_replace, "", "",
         "Backends of torch.distributed that are Tutti where a script names them: gloo, nccl, both "
         "with a comma between them.",
         "0.1", ""},
    };
    for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) {
      std::string name = "TUTTI_";
      for (const char* c = kCollectiveNames[i]; *c != '\0'; ++c) {
        name += *c == '_' ? '_' : static_cast<char>(*c - 'a' + 'A');
      }
      all.push_back({name, i, "", "",
                     std::string("Plan or plan list of ") + kCollectiveNames[i] +
                         ", for example 8K:mpi,ccl. Overrides every tuning file.",
                     "0.1", ""});
    }
    return all;
  }();
  return table;
}

}  // namespace tutti
