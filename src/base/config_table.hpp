// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The one table of knobs. Parsing and `tutti config` are driven by it or checked
// against it. Defaults are not repeated here: they are the initial values in base/config.hpp.
// A removed knob stays as an entry whose `replaced_by` says what to use in its place.
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
  std::string replaced_by;  ///< Only in removed entries: what to set instead.
};

/// Every knob in the order in which `tutti config` prints them.
inline const std::vector<Knob>& knobs() {
  static const std::vector<Knob> table = [] {
    std::vector<Knob> all = {
        {"TUTTI_ENABLE", &Config::enable, "", "", "0: every call goes straight to MPI.", "0.1", ""},
        {"TUTTI_STRICT", &Config::strict, "", "",
         "A fall-back is an error: a call that its plan cannot carry, a network device without "
         "something that its settings ask for.",
         "0.1", ""},
        {"TUTTI_LOG_LEVEL", &Config::log_level, "", "error|warn|info|debug",
         "Lines of this level and the graver ones are logged.", "0.1", ""},
        {"TUTTI_LOG_FILE", &Config::log_file, "", "",
         "Log file; %h is the host, %p the process. Unset: standard error.", "0.1", ""},
        {"TUTTI_DEVICE", &Config::device, "", "auto|cuda|hip|host|none",
         "Which GPU runtime is loaded; host is a stand-in for machines without a GPU.", "0.1", ""},
        {"TUTTI_CCL", &Config::ccl, "", "auto|nccl|rccl|none",
         "Which collective communication library is loaded.", "0.1", ""},
        {"TUTTI_CCL_LIBRARY", &Config::ccl_library, "", "",
         "Path of that library. Unset: searched for.", "0.1", ""},
        {"TUTTI_TUNING_FILE", &Config::tuning_file, "", "",
         "Tuning file. Unset: the user's, then the system's, then the shipped rules alone.", "0.1",
         ""},
        {"TUTTI_TOPOLOGY_FILE", &Config::topology_file, "", "",
         "Describes nodes: sockets, GPUs, NICs and rails. Unset: each node is discovered.", "0.1",
         ""},
        {"TUTTI_TRANSPORT_POLICY", &Config::transport_policy, "", "",
         "Shared object with a transport policy (tutti/transport_policy.h). Unset: none.", "0.1",
         ""},
        {"TUTTI_VIRTUAL_NODES", &Config::virtual_nodes, "nodes", "0..65536",
         "Splits one machine into this many nodes, for tests, or with commas (5,4,3) into nodes of "
         "so many ranks, over and over. 0: the real nodes.",
         "0.1", ""},
        {"TUTTI_TIMEOUT", &Config::timeout_s, "s", "0..31536000",
         "A collective or a set-up that takes longer is an error, except where the host waits for "
         "a "
         "process of this machine that runs. 0: wait for ever.",
         "0.1", ""},
        {"TUTTI_PIPELINE_CHUNK", &Config::pipeline_chunk_bytes, "bytes", "0..16G",
         "Collectives staged through the host are cut into chunks of this size. 0: no pipelining.",
         "0.1", ""},
        {"TUTTI_PINNED_POOL", &Config::pinned_pool_bytes, "bytes", "0..1T",
         "Most pinned host memory that a process keeps for staging.", "0.1", ""},
        {"TUTTI_DIRECT", &Config::direct, "", "auto|all|off",
         "Our own kernels on GPUs: auto where NVLink joins them; all also over PCIe and on AMD "
         "GPUs, "
         "where they have not been measured.",
         "0.1", ""},
        {"TUTTI_DIRECT_HANDLES", &Config::direct_handles, "", "auto|ipc|descriptor|fabric",
         "How our own kernels' ranks show their GPU memory to each other: auto tries the library's "
         "handles, then file descriptors, then the fabric's handles.",
         "0.1", ""},
        {"TUTTI_NET_PATHS", &Config::net_paths, "", "1..1024",
         "Paths of a connection of our transport: source ports over UDP.", "0.1", ""},
        {"TUTTI_NET_ENGINES", &Config::net_engines, "", "0..64",
         "Engine threads of each network device. 0: chosen by the number of processors; those that "
         "spin are shared out among the devices.",
         "0.1", ""},
        {"TUTTI_NET_LANES", &Config::net_lanes, "", "0..8",
         "Engines that share each long message of a channel, as far as both ends have them. 0: two "
         "on the loopback interface, else one.",
         "0.1", ""},
        {"TUTTI_NET_POLLING", &Config::net_polling, "", "auto|busy|shared",
         "Engine threads spin (busy), or callers do their work (shared). auto: busy where there "
         "are processors to spare. One that spins makes room where its processor is wanted.",
         "0.1", ""},
        {"TUTTI_NET_AFFINITY", &Config::net_affinity, "", "",
         "Processors of the engine threads: near their network device, a list like 0-3,8, or off: "
         "where NCCL's threads may run. Never others than those that the process may use.",
         "0.1", ""},
        {"TUTTI_NET_CONTROLLER", &Config::net_controller, "", "",
         "Congestion control of our transport: nscc, swift, cubic, dctcp, timely, fixed, each also "
         "with +rccc, or rccc, or eqds. Equal on all hosts.",
         "0.1", ""},
        {"TUTTI_NET_SPRAY", &Config::net_spray, "", "oblivious|two_choices|bitmap|reps|mixed",
         "How our transport chooses paths. reps and mixed want networks that mark (ECN).", "0.1",
         ""},
        {"TUTTI_NET_CHUNK", &Config::net_chunk_bytes, "bytes", "0..64K",
         "What is acknowledged and sent again as one: 512 and more. 0: 200 us of the link, at most "
         "what one system call takes.",
         "0.1", ""},
        {"TUTTI_NET_COPY", &Config::net_copy_bytes, "bytes", "0..1K",
         "Sends of up to so many bytes are copied and done before they are acknowledged.", "0.1",
         ""},
        {"TUTTI_NET_ACK_DELAY", &Config::net_ack_delay_us, "us", "0..1000",
         "So long acknowledgements of copied sends, and adverts that are not urgent, wait for "
         "something that they can travel with. 0: not at all.",
         "0.1", ""},
        {"TUTTI_NET_BUFFER", &Config::net_buffer_bytes, "bytes", "64K..1G",
         "Memory of an engine's receiving socket, as far as the system allows.", "0.1", ""},
        {"TUTTI_NET_SPEED", &Config::net_speed_mbps, "Mb/s", "0..1000000",
         "Speed of the network devices. 0: what the system says.", "0.1", ""},
        {"TUTTI_NET_LATENCY", &Config::net_latency_us, "us", "0..1000000",
         "One way from engine to engine, as NCCL's choice of protocols is told. 0: NCCL's own "
         "numbers, one for each of its protocols.",
         "0.1", ""},
        {"TUTTI_NET_TIMEOUT", &Config::net_timeout_s, "s", "0.1..3600",
         "A peer of our transport that gives no sign of life for so long is gone.", "0.1", ""},
        {"TUTTI_NET_TRAFFIC_CLASS", &Config::net_traffic_class, "", "0..255",
         "Traffic class (TOS) of our transport's packets, where the program does not set one "
         "(ncclConfig_t). Its two low bits are the transport's.",
         "0.1", ""},
        {"TUTTI_NET_OFFLOAD", &Config::net_offload, "", "",
         "0: no segmentation offload (UDP_SEGMENT, UDP_GRO).", "0.1", ""},
        {"TUTTI_NET_TIMESTAMPS", &Config::net_timestamps, "", "auto|on|off",
         "The kernel says when it took a packet in, so that time in hosts does not look like "
         "congestion. auto: where delay decides (the controllers nscc, swift and timely, a "
         "policy).",
         "0.1", ""},
        {"TUTTI_NET_AUTHENTICATE", &Config::net_authenticate, "", "",
         "0: packets carry no tag. Equal on all hosts.", "0.1", ""},
        {"TUTTI_NET_STATISTICS", &Config::net_statistics, "", "",
         "0: nothing in /dev/shm for `tutti top`.", "0.1", ""},
        {"TUTTI_METRICS", &Config::metrics, "", "",
         "File that holds the network engines' metrics in Prometheus' text format; %h is the host, "
         "%p the process, whose number is put before the ending if there is no %p. Unset: none.",
         "0.1", ""},
        {"TUTTI_TRACE", &Config::trace, "", "",
         "File of the network engines' requests and what the transport met, for Perfetto or "
         "Chrome; "
         "%h and %p as in TUTTI_METRICS. Unset: none.",
         "0.1", ""},
        {"TUTTI_FAULT", &Config::fault, "", "",
         "For tests: faults of the network between engines, as in "
         "seed=7,drop=0.01,duplicate=0.001,reorder=0.01,delay=0.02:200us,corrupt=0.001,"
         "kill_path=3@1s,kill_rail=all@2s:500ms. Unset: none.",
         "0.1", ""},
        {"TUTTI_SYNC_DEVICE", &Config::sync_device, "", "",
         "Waits for the whole device before each collective; finds missing synchronisation.", "0.1",
         ""},
        {"TUTTI_SUMMARY", &Config::summary, "", "",
         "1: at MPI_Finalize rank 0 prints what carried its collectives: calls and seconds of each "
         "collective, size class and plan.",
         "0.1", ""},
        {"TUTTI_LIBRARY_DIR", &Config::library_dir, "", "",
         "Directory of the shared objects that the tutti command uses. Unset: its own.", "0.1", ""},
    };
    for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) {
      std::string name = "TUTTI_";
      for (const char* c = kCollectiveNames[i]; *c != '\0'; ++c) {
        name += *c == '_' ? '_' : static_cast<char>(*c - 'a' + 'A');
      }
      all.push_back({name, i, "", "",
                     std::string("Plan or plan list of ") + kCollectiveNames[i] +
                         ", for example 8K:mpi,ccl. Goes before every tuning file.",
                     "0.1", ""});
    }
    return all;
  }();
  return table;
}

}  // namespace tutti
