// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One node as a value: its sockets, NUMA nodes, GPUs and NICs, and what joins them; and the
// questions that plans ask of it. Says nothing of ranks: that is Layout. Rates are megabits a
// second and one way, latencies nanoseconds; 0 means unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::topology {

/// How the vendors' tools name the way between two devices, nearest first.
enum class LinkKind : std::uint8_t {
  kSelf,    ///< "X"
  kNvlink,  ///< "NV#": # NVLinks, between the two or to a common switch.
  kXgmi,    ///< "XGMI": AMD's link.
  kPix,     ///< "PIX": at most one PCIe bridge (a switch).
  kPxb,     ///< "PXB": several PCIe bridges, but no host bridge.
  kPhb,     ///< "PHB": a PCIe host bridge (the CPU).
  kNode,    ///< "NODE": host bridges of one NUMA node.
  kSys,     ///< "SYS": the interconnect between NUMA nodes.
};

struct Socket {
  int number = 0;         ///< The kernel's physical package.
  std::vector<int> cpus;  ///< Ascending; empty: unknown.
  friend bool operator==(const Socket&, const Socket&) = default;
};

struct NumaNode {
  int number = 0;   ///< The kernel's.
  int socket = -1;  ///< Index into Machine::sockets; -1: unknown.
  std::vector<int> cpus;
  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

struct Gpu {
  std::string name;      ///< Product; empty: unknown.
  std::string pci;       ///< "0000:1b:00.0"; empty: unknown.
  std::string identity;  ///< The vendor's unique name, "GPU-<uuid>".
  int numa = -1;         ///< NUMA node's number.
  int socket = -1;       ///< Index into Machine::sockets.
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Nic {
  std::string name;  ///< RDMA device ("mlx5_0"), else the network interface.
  std::string net;   ///< Network interface ("ib0"); empty: none.
  std::string pci;
  std::uint64_t rate_mbit_s = 0;  ///< All ports together.
  bool is_rdma = false;
  bool is_up = false;
  int numa = -1;
  int socket = -1;
  friend bool operator==(const Nic&, const Nic&) = default;
};

/// Between devices `a` < `b`. Devices are numbered GPUs first, then NICs.
struct Link {
  int a = 0;
  int b = 0;
  LinkKind kind = LinkKind::kSys;
  int nvlinks = 0;  ///< kNvlink: how many; else 0.
  std::uint64_t rate_mbit_s = 0;
  std::uint64_t latency_ns = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

struct Machine {
  std::string host;  ///< Empty: unknown.
  std::vector<Socket> sockets;
  std::vector<NumaNode> numa_nodes;
  std::vector<Gpu> gpus;
  std::vector<Nic> nics;
  std::vector<Link> links;   ///< At most one a pair; a missing pair follows from the NUMA nodes.
  std::optional<int> rails;  ///< Said by a file; else rail_nics() counts them.

  int devices() const { return static_cast<int>(gpus.size() + nics.size()); }
  friend bool operator==(const Machine&, const Machine&) = default;
};

/// "GPU0", "NIC2".
std::string device_label(const Machine& machine, int device);
/// The other way round; nothing for a device that the machine does not have.
std::optional<int> parse_device_label(const Machine& machine, std::string_view label);

/// "NV18", "PIX", "X".
std::string link_word(const Link& link);
/// Kind and number of links of a word; not "X", which joins nothing.
std::optional<Link> parse_link_word(std::string_view word);

/// What joins two devices: their link, else what their NUMA nodes imply.
Link link_between(const Machine& machine, int a, int b);
/// What link_between() says of a pair without a link.
Link implied_link(const Machine& machine, int a, int b);
/// Words by row and column, for all devices.
std::vector<std::vector<std::string>> link_matrix(const Machine& machine);

/// NICs that carry the traffic between nodes: those that are up, RDMA devices alone if there are
/// any, and of these the fastest (storage and management often have slower ones). Indices into
/// Machine::nics, ascending.
std::vector<int> rail_nics(const Machine& machine);
/// Machine::rails, else the number of rail_nics(); 0: unknown.
int rail_count(const Machine& machine);

/// The NICs that serve each GPU, nearest first: each rail goes to at least one GPU and each GPU has
/// at least one, as long as there are rails. A GPU takes its nearest; equally near ones are shared
/// out so that GPUs spread over them. NICs left over go to the nearest GPU that has fewest.
std::vector<std::vector<int>> nics_of_gpus(const Machine& machine);

/// The one socket that holds all these CPUs, an index into Machine::sockets; -1: none or several.
int socket_of_cpus(const Machine& machine, const std::vector<int>& cpus);
/// The socket of the GPU at a PCI address (any form that normal_pci reads), -1 when unknown.
int socket_of_gpu(const Machine& machine, std::string_view pci);

/// "00000000:1B:00.0", "1b:00.0" and the like as "0000:1b:00.0"; nothing for other text.
std::optional<std::string> normal_pci(std::string_view text);
/// "0-3,8" as numbers, ascending; nothing for other text or numbers beyond 65535.
std::optional<std::vector<int>> parse_cpus(std::string_view text);
std::string format_cpus(const std::vector<int>& cpus);

}  // namespace tutti::topology
