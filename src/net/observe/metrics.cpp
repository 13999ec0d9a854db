// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/observe/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/system_random.hpp"

namespace tutti::net {
namespace {

using transport::ConnectionCounters;
using wire::WireCounters;

constexpr double kSecondsPerNs = 1e-9;

template <class Owner>
struct Counter {
  const char* name;
  std::uint64_t Owner::*field;
  const char* help;
};

using C = ConnectionCounters;
constexpr std::array<Counter<C>, 23> kCounters = {{
    {"chunks_sent", &C::chunks_sent, "Chunks sent, those sent again included."},
    {"bytes_sent", &C::bytes_sent, "Payload in them."},
    {"chunks_received", &C::chunks_received, "Chunks received for the first time."},
    {"bytes_received", &C::bytes_received, "Payload in them."},
    {"acks_sent", &C::acks_sent, "Acknowledgements sent."},
    {"acks_received", &C::acks_received, "Acknowledgements received."},
    {"retransmissions", &C::retransmissions, "Chunks sent again."},
    {"spurious_retransmissions", &C::spurious_retransmissions,
     "Chunks sent again that the receiver had already."},
    {"nacks", &C::nacks, "Chunks of which a part came, as the sender learned."},
    {"lost_same_path", &C::lost_same_path, "Losses told by later chunks of the same path."},
    {"lost_rack", &C::lost_rack, "Losses told by time (RACK), or by the receiver."},
    {"lost_timeout", &C::lost_timeout, "Losses told by a timeout."},
    {"timeouts", &C::timeouts, "Retransmission timeouts."},
    {"tail_probes", &C::tail_probes, "Probes for a loss at the end."},
    {"marks", &C::marks, "Echoes with a congestion mark."},
    {"undone", &C::undone, "Decreases of a window that were taken back."},
    {"path_deaths", &C::path_deaths, "Paths given up; some come back."},
    {"rail_deaths", &C::rail_deaths, "Rails given up; some come back."},
    {"duplicates_received", &C::duplicates_received, "Chunks received once more."},
    {"trims_received", &C::trims_received, "Chunks that came without their payload."},
    {"replays_dropped", &C::replays_dropped, "Packets that had come before."},
    {"forgeries_dropped", &C::forgeries_dropped, "Packets whose tag did not fit."},
    {"malformed_dropped", &C::malformed_dropped, "Genuine packets that made no sense."},
}};
static_assert(sizeof(C) == kCounters.size() * sizeof(std::uint64_t));

using W = WireCounters;
constexpr std::array<Counter<W>, 9> kWireCounters = {{
    {"datagrams_sent", &W::datagrams_sent, "Datagrams given to the system."},
    {"datagrams_received", &W::datagrams_received, "Datagrams taken from the system."},
    {"calls_sent", &W::calls_sent, "System calls that sent."},
    {"calls_received", &W::calls_received, "System calls that received."},
    {"payload_bytes_placed", &W::payload_bytes_placed, "Bytes received where they belong."},
    {"payload_bytes_copied", &W::payload_bytes_copied, "Bytes received elsewhere and copied."},
    {"fragments_dropped", &W::fragments_dropped, "Parts of packets whose rest did not come."},
    {"malformed_dropped", &W::malformed_dropped, "Datagrams that are none of ours."},
    {"refused", &W::refused, "Packets that the system refused."},
}};
static_assert(sizeof(W) == kWireCounters.size() * sizeof(std::uint64_t));

std::string number(std::uint64_t value) { return std::to_string(value); }

std::string seconds(std::uint64_t time_ns) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(),
                                 static_cast<double>(time_ns) * kSecondsPerNs);
  return {text.data(), end.ptr};
}

std::string label(const char* name, std::string_view value) {
  return std::string(name) + "=\"" + escape_label(value) + "\"";
}

struct ShownConnection {
  std::string labels;
  ConnectionRecord record;
};

struct ShownEngine {
  std::string labels;
  EngineRecord record;
  std::vector<ShownConnection> connections;
};

class Text {
 public:
  void begin(const std::string& name, const char* type, const char* help) {
    name_ = name;
    text_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void sample(const std::string& labels, const std::string& value) {
    text_ += name_ + "{" + labels + "} " + value + "\n";
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

void add_engines(Text& text, const std::vector<ShownEngine>& engines) {
  const auto each = [&](auto&& value_of) {
    for (const ShownEngine& engine : engines) {
      text.sample(engine.labels, value_of(engine.record));
    }
  };
  text.begin("tutti_engine_info", "gauge", "1, and what the engine is.");
  for (const ShownEngine& engine : engines) {
    text.sample(engine.labels + "," + label("address", engine.record.address.data()) + "," +
                    label("controller", engine.record.controller.data()) + "," +
                    label("polling", engine.record.is_busy != 0 ? "busy" : "shared") + "," +
                    label("wire", engine.record.description.data()),
                "1");
  }
  text.begin("tutti_engine_connections", "gauge", "Connections that are there.");
  each([](const EngineRecord& it) { return number(it.connections); });
  text.begin("tutti_engine_connections_left_out", "gauge",
             "Of those: without metrics of their own, for there are too many.");
  each([](const EngineRecord& it) { return number(it.connections_left_out); });
  text.begin(
      "tutti_engine_fallbacks", "gauge",
      "What its device does without, though its settings ask for it; the same on all engines "
      "of a device.");
  each([](const EngineRecord& it) { return number(it.fallbacks); });
  for (const auto& counter : kCounters) {
    text.begin(std::string("tutti_engine_") + counter.name + "_total", "counter", counter.help);
    each([&](const EngineRecord& it) { return number(it.counters.*counter.field); });
  }
  text.begin("tutti_engine_strays_dropped_total", "counter", "Packets for no connection of ours.");
  each([](const EngineRecord& it) { return number(it.of_strangers.strays_dropped); });
  text.begin("tutti_engine_unreadable_dropped_total", "counter",
             "Packets without a header that makes sense.");
  each([](const EngineRecord& it) { return number(it.of_strangers.malformed_dropped); });
  for (const auto& counter : kWireCounters) {
    text.begin(std::string("tutti_wire_") + counter.name + "_total", "counter", counter.help);
    each([&](const EngineRecord& it) { return number(it.wire.*counter.field); });
  }
}

bool is_of_a_connection(const Counter<C>& counter) {
  using Field = std::uint64_t C::*;
  for (const Field field :
       {&C::chunks_sent, &C::bytes_sent, &C::chunks_received, &C::bytes_received,
        &C::retransmissions, &C::timeouts, &C::marks, &C::path_deaths}) {
    if (field == counter.field) {
      return true;
    }
  }
  return false;
}

void add_connections(Text& text, const std::vector<ShownEngine>& engines) {
  const auto each = [&](auto&& value_of) {
    for (const ShownEngine& engine : engines) {
      for (const ShownConnection& connection : engine.connections) {
        const std::string value = value_of(connection.record);
        if (!value.empty()) {
          text.sample(connection.labels, value);
        }
      }
    }
  };
  for (const auto& counter : kCounters) {
    if (is_of_a_connection(counter)) {
      text.begin(std::string("tutti_connection_") + counter.name + "_total", "counter",
                 counter.help);
      each([&](const ConnectionRecord& it) { return number(it.counters.*counter.field); });
    }
  }
  text.begin("tutti_connection_window_bytes", "gauge", "What may be in flight.");
  each([](const ConnectionRecord& it) { return number(it.window_bytes); });
  text.begin("tutti_connection_inflight_bytes", "gauge", "What is in flight.");
  each([](const ConnectionRecord& it) { return number(it.inflight_bytes); });
  text.begin("tutti_connection_rtt_seconds", "gauge",
             "Smoothed round trip, with the time that hosts take.");
  each([](const ConnectionRecord& it) { return it.srtt_ns == 0 ? "" : seconds(it.srtt_ns); });
  text.begin("tutti_connection_rtt_min_seconds", "gauge", "Shortest round trip.");
  each([](const ConnectionRecord& it) { return it.rtt_ns_min == 0 ? "" : seconds(it.rtt_ns_min); });
  text.begin("tutti_connection_fabric_rtt_seconds", "gauge",
             "Smoothed round trip, without the time that hosts take.");
  each([](const ConnectionRecord& it) { return it.fabric_ns == 0 ? "" : seconds(it.fabric_ns); });
  text.begin("tutti_connection_fabric_rtt_min_seconds", "gauge",
             "Shortest round trip without the time that hosts take.");
  each([](const ConnectionRecord& it) {
    return it.fabric_ns_min == 0 ? "" : seconds(it.fabric_ns_min);
  });
  text.begin("tutti_connection_paths", "gauge", "Paths that it has.");
  each([](const ConnectionRecord& it) { return number(it.paths); });
  text.begin("tutti_connection_paths_alive", "gauge", "Of those: not given up.");
  each([](const ConnectionRecord& it) { return number(it.paths_alive); });
  text.begin("tutti_connection_open_requests", "gauge", "Sends or receives that have not ended.");
  each([](const ConnectionRecord& it) { return number(it.open_requests); });
}

}  // namespace

std::string escape_label(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\' || letter == '"') {
      escaped += '\\';
      escaped += letter;
    } else if (letter == '\n') {
      escaped += "\\n";
    } else {
      escaped += letter >= ' ' && letter <= '~' ? letter : '?';
    }
  }
  return escaped;
}

std::string metrics_text(const Statistics& statistics) {
  std::vector<ShownEngine> engines;
  // Ranks in containers may have equal numbers.
  const std::string process = label("host", statistics.header().host.data()) + "," +
                              label("process", number(statistics.header().process));
  for (std::uint32_t i = 0; i < kEnginesShownMax; ++i) {
    const std::optional<EngineRecord> record = statistics.engine(i);
    if (!record) {
      continue;
    }
    ShownEngine engine;
    engine.record = *record;
    engine.labels = process + "," + label("device", record->device.data()) + "," +
                    label("engine", number(record->number));
    for (const ConnectionRecord& connection : statistics.connections(i, nullptr)) {
      const bool sends = connection.direction == Direction::kSends;
      engine.connections.push_back({engine.labels + "," +
                                        label("connection", number(connection.number)) + "," +
                                        label("direction", sends ? "sends" : "receives") + "," +
                                        label("peer", connection.peer.data()),
                                    connection});
    }
    engines.push_back(std::move(engine));
  }
  Text text;
  add_engines(text, engines);
  add_connections(text, engines);
  return text.take();
}

Status write_atomically(const std::string& file, std::string_view text) {
  // Processes in containers may have equal numbers and so equal files, which replace each other,
  // but never a temporary one.
  std::uint64_t random = 0;
  TUTTI_RETURN_IF_ERROR(system_random(&random, sizeof random));
  const std::string temporary = file + ".tmp-" + std::to_string(random);
  const auto fail = [&] {
    return Status(ErrorCode::kUnavailable,
                  "cannot write '" + file + "': " + std::string(std::strerror(errno)));
  };
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return fail();
  }
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      Status status = fail();
      close(descriptor);
      unlink(temporary.c_str());
      return status;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (close(descriptor) != 0 || std::rename(temporary.c_str(), file.c_str()) != 0) {
    Status status = fail();
    unlink(temporary.c_str());
    return status;
  }
  return {};
}

}  // namespace tutti::net
