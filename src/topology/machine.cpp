// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/machine.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <set>

namespace tutti::topology {
namespace {

std::size_t at(int number) { return static_cast<std::size_t>(number); }

constexpr std::array<const char*, 8> kWords = {"X",   "NV",  "XGMI", "PIX",
                                               "PXB", "PHB", "NODE", "SYS"};
constexpr int kCpuMax = 65535;
constexpr int kNvlinksMax = 1024;

std::optional<int> parse_int(std::string_view text, int most, int base = 10) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > most) {
    return std::nullopt;
  }
  return value;
}

int numa_of(const Machine& machine, int device) {
  const int gpus = static_cast<int>(machine.gpus.size());
  return device < gpus ? machine.gpus[at(device)].numa : machine.nics[at(device - gpus)].numa;
}

LinkKind kind_between(const Machine& machine, int gpu, int nic) {
  return link_between(machine, gpu, static_cast<int>(machine.gpus.size()) + nic).kind;
}

}  // namespace

std::string device_label(const Machine& machine, int device) {
  const int gpus = static_cast<int>(machine.gpus.size());
  return device < gpus ? "GPU" + std::to_string(device) : "NIC" + std::to_string(device - gpus);
}

std::optional<int> parse_device_label(const Machine& machine, std::string_view label) {
  const bool is_gpu = label.substr(0, 3) == "GPU";
  if (!is_gpu && label.substr(0, 3) != "NIC") {
    return std::nullopt;
  }
  const auto count = static_cast<int>(is_gpu ? machine.gpus.size() : machine.nics.size());
  const auto number = parse_int(label.substr(3), count - 1);
  if (!number) {
    return std::nullopt;
  }
  return is_gpu ? *number : static_cast<int>(machine.gpus.size()) + *number;
}

std::string link_word(const Link& link) {
  const std::string word = kWords[static_cast<std::size_t>(link.kind)];
  return link.kind == LinkKind::kNvlink ? word + std::to_string(link.nvlinks) : word;
}

std::optional<Link> parse_link_word(std::string_view word) {
  Link link;
  for (std::size_t kind = 2; kind < kWords.size(); ++kind) {
    if (word == kWords[kind]) {
      link.kind = static_cast<LinkKind>(kind);
      return link;
    }
  }
  if (word.substr(0, 2) != "NV") {
    return std::nullopt;
  }
  const auto nvlinks = parse_int(word.substr(2), kNvlinksMax);
  if (!nvlinks || *nvlinks == 0) {
    return std::nullopt;
  }
  link.kind = LinkKind::kNvlink;
  link.nvlinks = *nvlinks;
  return link;
}

Link implied_link(const Machine& machine, int a, int b) {
  Link link{.a = std::min(a, b), .b = std::max(a, b)};
  const int numa = numa_of(machine, a);
  link.kind = a == b                                      ? LinkKind::kSelf
              : numa >= 0 && numa == numa_of(machine, b)  ? LinkKind::kNode
              : machine.numa_nodes.size() < 2 && numa < 0 ? LinkKind::kNode
                                                          : LinkKind::kSys;
  return link;
}

Link link_between(const Machine& machine, int a, int b) {
  const auto found = std::find_if(
      machine.links.begin(), machine.links.end(),
      [&](const Link& link) { return link.a == std::min(a, b) && link.b == std::max(a, b); });
  return found != machine.links.end() ? *found : implied_link(machine, a, b);
}

std::vector<std::vector<std::string>> link_matrix(const Machine& machine) {
  const int devices = machine.devices();
  std::vector<std::vector<std::string>> rows(at(devices));
  for (int a = 0; a < devices; ++a) {
    for (int b = 0; b < devices; ++b) {
      rows[at(a)].push_back(link_word(link_between(machine, a, b)));
    }
  }
  return rows;
}

std::vector<int> rail_nics(const Machine& machine) {
  bool has_rdma = false;
  for (const Nic& nic : machine.nics) {
    has_rdma = has_rdma || (nic.is_up && nic.is_rdma);
  }
  std::uint64_t fastest = 0;
  std::vector<int> candidates;
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    const Nic& nic = machine.nics[i];
    if (nic.is_up && nic.is_rdma == has_rdma) {
      fastest = std::max(fastest, nic.rate_mbit_s);
      candidates.push_back(static_cast<int>(i));
    }
  }
  std::erase_if(candidates, [&](int nic) { return machine.nics[at(nic)].rate_mbit_s != fastest; });
  return candidates;
}

int rail_count(const Machine& machine) {
  return machine.rails ? *machine.rails : static_cast<int>(rail_nics(machine).size());
}

std::vector<std::vector<int>> nics_of_gpus(const Machine& machine) {
  const std::vector<int> rails = rail_nics(machine);
  const int gpus = static_cast<int>(machine.gpus.size());
  std::vector<std::vector<int>> serves(at(gpus));
  if (rails.empty() || gpus == 0) {
    return serves;
  }
  std::vector<int> load(machine.nics.size(), 0);
  // GPUs that have a NIC among their nearest: where two are equally near, the one that fewer want.
  std::vector<int> wanted(machine.nics.size(), 0);
  std::vector<std::vector<int>> nearest(at(gpus));
  for (int gpu = 0; gpu < gpus; ++gpu) {
    LinkKind best = LinkKind::kSys;
    for (const int nic : rails) {
      best = std::min(best, kind_between(machine, gpu, nic));
    }
    for (const int nic : rails) {
      if (kind_between(machine, gpu, nic) == best) {
        nearest[at(gpu)].push_back(nic);
        ++wanted[at(nic)];
      }
    }
  }
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const auto chosen = std::min_element(nearest[at(gpu)].begin(), nearest[at(gpu)].end(),
                                         [&](int left, int right) {
                                           return std::pair(load[at(left)], wanted[at(left)]) <
                                                  std::pair(load[at(right)], wanted[at(right)]);
                                         });
    serves[at(gpu)].push_back(*chosen);
    ++load[at(*chosen)];
  }
  for (const int nic : rails) {
    if (load[at(nic)] != 0) {
      continue;
    }
    int chosen = 0;
    const auto cost = [&](int gpu) {
      return std::pair(kind_between(machine, gpu, nic), serves[at(gpu)].size());
    };
    for (int gpu = 1; gpu < gpus; ++gpu) {
      chosen = cost(gpu) < cost(chosen) ? gpu : chosen;
    }
    serves[at(chosen)].push_back(nic);
  }
  return serves;
}

int socket_of_cpus(const Machine& machine, const std::vector<int>& cpus) {
  for (std::size_t socket = 0; socket < machine.sockets.size() && !cpus.empty(); ++socket) {
    const std::vector<int>& own = machine.sockets[socket].cpus;
    if (std::includes(own.begin(), own.end(), cpus.begin(), cpus.end())) {
      return static_cast<int>(socket);
    }
  }
  return -1;
}

int socket_of_gpu(const Machine& machine, std::string_view pci) {
  const auto wanted = normal_pci(pci);
  for (const Gpu& gpu : machine.gpus) {
    if (wanted && gpu.pci == *wanted) {
      return gpu.socket;
    }
  }
  return -1;
}

std::optional<std::string> normal_pci(std::string_view text) {
  const auto dot = text.rfind('.');
  const auto second = text.rfind(':', dot);
  if (dot == std::string_view::npos || second == std::string_view::npos) {
    return std::nullopt;
  }
  const auto first = second == 0 ? std::string_view::npos : text.rfind(':', second - 1);
  const bool has_domain = first != std::string_view::npos;
  const auto bus_at = has_domain ? first + 1 : 0;
  const auto domain = has_domain ? parse_int(text.substr(0, first), 0x7fffffff, 16) : 0;
  const auto bus = parse_int(text.substr(bus_at, second - bus_at), 0xff, 16);
  const auto device = parse_int(text.substr(second + 1, dot - second - 1), 0x1f, 16);
  const auto function = parse_int(text.substr(dot + 1), 7, 16);
  if (!domain || !bus || !device || !function) {
    return std::nullopt;
  }
  char normal[32];
  std::snprintf(normal, sizeof(normal), "%04x:%02x:%02x.%x", static_cast<unsigned>(*domain),
                static_cast<unsigned>(*bus), static_cast<unsigned>(*device),
                static_cast<unsigned>(*function));
  return std::string(normal);
}

std::optional<std::vector<int>> parse_cpus(std::string_view text) {
  std::set<int> cpus;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const auto dash = part.find('-');
    const auto first = parse_int(part.substr(0, dash), kCpuMax);
    const auto last =
        dash == std::string_view::npos ? first : parse_int(part.substr(dash + 1), kCpuMax);
    if (!first || !last || *last < *first || comma == text.size() - 1) {
      return std::nullopt;
    }
    for (int cpu = *first; cpu <= *last; ++cpu) {
      cpus.insert(cpu);
    }
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::string format_cpus(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) {
      ++last;
    }
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) {
      text += "-" + std::to_string(cpus[last]);
    }
    i = last + 1;
  }
  return text;
}

}  // namespace tutti::topology
