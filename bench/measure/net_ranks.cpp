// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// tutti-measure-net: times collectives that schedules carry over our transport, on host memory and
// without MPI. One process is one rank; `tutti bench --plans net:NAME` starts them. The method is
// that of measure.c: algorithms take turns, a call's latency is the longest of its ranks' times,
// with --check every element is compared before and after the timed calls.
//
// Output (rank 0, stdout): JSON Lines: {"bootstrap": ADDRESS} once others can come, then a header,
// rows and progress. Exit status: 0; 1: wrong elements; 2: bad usage or a failure.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "content.h"
#include "report.h"
#include "runners/net/net_runner.hpp"

namespace {

using tutti::Result;
using tutti::Status;
using tutti::runners::Call;
using tutti::runners::NetRunner;
using tutti::schedule::Parameters;
using tutti::select::Collective;
using tutti::select::DataType;

// Clocks and windows come up during the first size, which would otherwise look slow.
constexpr double kFirstWarmUpS = 0.2;
constexpr int kRoundsMax = 20;
// Of the program's own barriers, decisions and results.
constexpr const char* kBarrierAlgorithm = "dissemination";
constexpr const char* kDecisionAlgorithm = "knomial";

int g_rank = -1;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// "rings" or "rings(5)": five segments.
struct Variant {
  std::string name;
  std::string algorithm;
  Parameters parameters;
};

struct Options {
  tutti::net::TcpBootstrapOptions bootstrap;
  std::string node;
  std::string collective;
  std::string type = "float32";
  std::string op = "sum";
  std::vector<Variant> variants;
  std::size_t begin = 4;
  std::size_t end = 1 << 20;
  std::size_t factor = 2;
  int root = 0;
  int iterations = 0;
  int warmup = 5;
  double time_cap_s = 10;  ///< Per size.
  bool check = false;
};

constexpr char kUsage[] =
    "usage: tutti-measure-net --rank R --ranks N --address HOST:PORT --collective NAME "
    "--algorithms LIST [options]\n"
    "  --address HOST:PORT  of rank 0; there port 0 means any, and it prints which\n"
    "  --key TEXT           of the job; other jobs are kept out\n"
    "  --node NAME          equal on the ranks of a node; default: the host's name\n"
    "  --patience SECONDS   for all ranks to come (30)\n"
    "  --algorithms LIST    of schedules, as in rings,ring(4): in four segments\n"
    "  --begin, --end SIZE  smallest and largest size (4, 1M); --factor N between sizes (2)\n"
    "  --type T --op OP     float32, sum; --root RANK\n"
    "  --check              compare every element\n"
    "  --iterations N --warmup N --time-cap SECONDS   per size; default by size, 5, 10\n";

void parse_algorithms(const std::string& text, std::vector<Variant>* variants) {
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    Variant variant;
    variant.name = text.substr(at, end - at);
    const std::size_t open = variant.name.find('(');
    variant.algorithm = variant.name.substr(0, open);
    if (open != std::string::npos) {
      const std::string number = variant.name.substr(open + 1);
      variant.parameters.segments = std::atoi(number.c_str());
      if (variant.parameters.segments < 1 ||
          number != std::to_string(variant.parameters.segments) + ")") {
        fail("--algorithms %s: segments are a number from 1, as in rings(4)", variant.name.c_str());
      }
    }
    variants->push_back(std::move(variant));
    at = end + 1;
  }
}

Options parse_options(int argc, char** argv) {
  static const option kLong[] = {{"rank", 1, nullptr, 'R'},       {"ranks", 1, nullptr, 'N'},
                                 {"address", 1, nullptr, 'a'},    {"key", 1, nullptr, 'k'},
                                 {"node", 1, nullptr, 'n'},       {"patience", 1, nullptr, 'p'},
                                 {"collective", 1, nullptr, 'C'}, {"algorithms", 1, nullptr, 'A'},
                                 {"begin", 1, nullptr, 'b'},      {"end", 1, nullptr, 'e'},
                                 {"factor", 1, nullptr, 'f'},     {"type", 1, nullptr, 't'},
                                 {"op", 1, nullptr, 'o'},         {"root", 1, nullptr, 'r'},
                                 {"check", 0, nullptr, 'c'},      {"iterations", 1, nullptr, 'i'},
                                 {"warmup", 1, nullptr, 'w'},     {"time-cap", 1, nullptr, 'T'},
                                 {"help", 0, nullptr, 'h'},       {nullptr, 0, nullptr, 0}};
  Options o;
  int c = 0;
  while ((c = getopt_long(argc, argv, "", kLong, nullptr)) != -1) {
    switch (c) {
      case 'R':
        o.bootstrap.rank = g_rank = static_cast<int>(parse_size("--rank", optarg));
        break;
      case 'N':
        o.bootstrap.ranks = static_cast<int>(parse_size("--ranks", optarg));
        break;
      case 'a':
        o.bootstrap.address = optarg;
        break;
      case 'k':
        o.bootstrap.key = optarg;
        break;
      case 'n':
        o.node = optarg;
        break;
      case 'p':
        o.bootstrap.timeout_s = std::atof(optarg);
        break;
      case 'C':
        o.collective = optarg;
        break;
      case 'A':
        parse_algorithms(optarg, &o.variants);
        break;
      case 'b':
        o.begin = parse_size("--begin", optarg);
        break;
      case 'e':
        o.end = parse_size("--end", optarg);
        break;
      case 'f':
        o.factor = parse_size("--factor", optarg);
        break;
      case 't':
        o.type = optarg;
        break;
      case 'o':
        o.op = optarg;
        break;
      case 'r':
        o.root = static_cast<int>(parse_size("--root", optarg));
        break;
      case 'c':
        o.check = true;
        break;
      case 'i':
        o.iterations = static_cast<int>(parse_size("--iterations", optarg));
        break;
      case 'w':
        o.warmup = static_cast<int>(parse_size("--warmup", optarg));
        break;
      case 'T':
        o.time_cap_s = std::atof(optarg);
        break;
      default:
        fail("%s", kUsage);
    }
  }
  if (o.bootstrap.address.empty() || o.collective.empty() || o.variants.empty() || optind != argc) {
    fail("%s", kUsage);
  }
  if (o.factor < 2 || o.begin > o.end) {
    fail("sizes: begin <= end and factor >= 2 are needed");
  }
  return o;
}

std::uint64_t wide(int value) { return static_cast<std::uint64_t>(value); }

/// A call of the measured collective as runners have it.
struct NetCall {
  Call call;
  std::vector<std::uint64_t> send_counts, send_offsets, recv_counts, recv_offsets;
};

class Bench {
 public:
  Bench(Options options, NetRunner& runner) : options_(std::move(options)), runner_(runner) {}
  ~Bench() { pattern_free(&pattern_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Status resolve();
  void print_header() const;
  /// Wrong elements of all.
  Result<std::size_t> measure();

 private:
  Result<std::size_t> measure_size(std::size_t bytes, bool is_first);
  void fill_in(const call& layout, NetCall* out);
  Status run(const Variant& variant, const NetCall& now) {
    return runner_.run(variant.algorithm, variant.parameters, now.call);
  }
  Result<std::size_t> check_once(const call& layout, const NetCall& now, const Variant& variant);
  Status warm_up(const NetCall& now, const Variant& variant, double least_s);
  Status time_block(const NetCall& now, const Variant& variant, int calls,
                    std::vector<double>* samples_us);
  Status time_rounds(const NetCall& now, int iterations,
                     std::vector<std::vector<double>>* samples_us);
  Result<std::size_t> report(std::size_t bytes, const Variant& variant,
                             const std::vector<double>& samples_us, std::size_t wrong);
  Status barrier();
  /// Rank 0's answer, on all ranks.
  Result<bool> decide(bool mine);

  Options options_;
  NetRunner& runner_;
  call_options of_calls_ = {};
  pattern pattern_ = {};
  Collective collective_ = Collective::kBarrier;
  DataType type_ = DataType::kByte;
  tutti::select::ReduceOp op_ = tutti::select::ReduceOp::kNone;
  std::vector<unsigned char> send_, recv_;
  std::size_t check_count_ = 0;
};

Status Bench::resolve() {
  Options& o = options_;
  const auto invalid = [](const std::string& text) {
    return Status(tutti::ErrorCode::kInvalidArgument, text);
  };
  of_calls_.collective = find_collective(o.collective.c_str());
  const auto collective = tutti::select::parse_collective(o.collective);
  if (of_calls_.collective == nullptr || !collective) {
    return invalid("--collective " + o.collective + ": no such collective");
  }
  collective_ = *collective;
  of_calls_.type = find_type(o.type.c_str());
  const auto type = tutti::select::parse_data_type(o.type);
  if (of_calls_.type == nullptr || !type) {
    return invalid("--type " + o.type + ": no such type; types: " + kTypeNames);
  }
  type_ = *type;
  const auto op = tutti::select::parse_reduce_op(o.op);
  if (!find_op(o.op.c_str(), &of_calls_.op) || !op) {
    return invalid("--op " + o.op + ": sum, prod, min or max");
  }
  op_ = tutti::select::is_reduction(collective_) ? *op : tutti::select::ReduceOp::kNone;
  if (o.root >= runner_.ranks()) {
    return invalid("--root " + std::to_string(o.root) + ": there are " +
                   std::to_string(runner_.ranks()) + " ranks");
  }
  of_calls_.rank = runner_.rank();
  of_calls_.ranks = runner_.ranks();
  of_calls_.root = o.root;
  if (collective_ == Collective::kBarrier) {
    o.begin = o.end = 0;
  }
  call layout;
  call_init(&layout, &of_calls_, collective_bytes(&of_calls_, o.end));
  send_.resize(layout.send_count * layout.type->bytes);
  recv_.resize(layout.recv_count * layout.type->bytes);
  NetCall probe;
  fill_in(layout, &probe);
  call_free(&layout);
  for (const Variant& variant : o.variants) {
    if (const std::string why = runner_.refusal(variant.algorithm, probe.call); !why.empty()) {
      return invalid("net:" + variant.name + ": " + why);
    }
  }
  pattern_init(&pattern_, of_calls_.type, collective_reduces(of_calls_.collective), of_calls_.op,
               runner_.rank(),
               collective_reduce_ranks(of_calls_.collective, runner_.rank(), runner_.ranks()));
  return {};
}

void Bench::fill_in(const call& layout, NetCall* out) {
  Call& it = out->call;
  it.collective = collective_;
  it.type = type_;
  it.op = op_;
  it.element_bytes = layout.type->bytes;
  it.root = layout.root;
  it.send = layout.sends ? send_.data() : nullptr;
  it.recv = layout.recv_output || layout.recv_input ? recv_.data() : nullptr;
  it.count = wide(layout.count);
  if (!tutti::runners::has_counts(collective_)) {
    return;
  }
  for (int rank = 0; rank < layout.ranks; ++rank) {
    out->send_counts.push_back(wide(layout.send_counts[rank]));
    out->send_offsets.push_back(wide(layout.send_displs[rank]));
    out->recv_counts.push_back(wide(layout.recv_counts[rank]));
    out->recv_offsets.push_back(wide(layout.recv_displs[rank]));
  }
  // Of an allgatherv this rank's own block; nothing of a reduce_scatter has offsets.
  it.recv_counts = out->recv_counts;
  if (collective_ == Collective::kAlltoallv) {
    it.send_counts = out->send_counts;
    it.send_offsets = out->send_offsets;
  }
  if (collective_ != Collective::kReduceScatter) {
    it.recv_offsets = out->recv_offsets;
  }
  it.count = collective_ == Collective::kAllgatherv ? layout.send_count : it.count;
}

void Bench::print_header() const {
  std::printf("{\"header\": true");
  print_field("mpi", "");
  std::printf(", \"ranks\": %d, \"nodes\": %d, \"ranks_per_node\": %d", runner_.ranks(),
              runner_.layout().nodes(), runner_.layout().ranks_per_node_max());
  print_field("collective", collective_name(of_calls_.collective));
  print_field("type", of_calls_.type->name);
  print_field("op", to_string(op_));
  print_field("memory", "host");
  std::printf(", \"devices\": []");
  print_field("driver", "");
  print_field("ccl_library", "");
  print_field("ccl_version", "");
  std::printf("}\n");
  std::fflush(stdout);
}

Status Bench::barrier() {
  Call call;
  call.collective = Collective::kBarrier;
  return runner_.run(kBarrierAlgorithm, {}, call);
}

Result<bool> Bench::decide(bool mine) {
  unsigned char answer = mine ? 1 : 0;
  Call call;
  call.collective = Collective::kBcast;
  call.recv = &answer;
  call.count = 1;
  TUTTI_RETURN_IF_ERROR(runner_.run(kDecisionAlgorithm, {}, call));
  return answer != 0;
}

Result<std::size_t> Bench::check_once(const call& layout, const NetCall& now,
                                      const Variant& variant) {
  const std::size_t t = ++check_count_;
  call_fill(&layout, &pattern_, t, send_.data(), recv_.data());
  TUTTI_RETURN_IF_ERROR(run(variant, now));
  return call_verify(&layout, &pattern_, t, recv_.data());
}

/// At least the options' calls and `least_s`, within a quarter of the time cap.
Status Bench::warm_up(const NetCall& now, const Variant& variant, double least_s) {
  const double start_s = now_s();
  for (int i = 0;; ++i) {
    const double elapsed_s = now_s() - start_s;
    TUTTI_ASSIGN_OR_RETURN(const bool stop, decide((i >= options_.warmup && elapsed_s >= least_s) ||
                                                   elapsed_s > options_.time_cap_s / 4));
    if (stop) {
      return {};
    }
    TUTTI_RETURN_IF_ERROR(run(variant, now));
  }
}

Status Bench::time_block(const NetCall& now, const Variant& variant, int calls,
                         std::vector<double>* samples_us) {
  TUTTI_RETURN_IF_ERROR(barrier());
  for (int i = 0; i < calls; ++i) {
    if (i > 0 && collective_runs_ahead(of_calls_.collective)) {
      TUTTI_RETURN_IF_ERROR(barrier());
    }
    const double start_s = now_s();
    TUTTI_RETURN_IF_ERROR(run(variant, now));
    samples_us->push_back((now_s() - start_s) * 1e6);
  }
  return {};
}

/// Rounds of blocks until `iterations` or the time cap.
Status Bench::time_rounds(const NetCall& now, int iterations,
                          std::vector<std::vector<double>>* samples_us) {
  const int rounds = std::min(iterations, kRoundsMax);
  const std::size_t variants = options_.variants.size();
  const double start_s = now_s();
  int done = 0;
  for (int round = 0; round < rounds; ++round) {
    const int block = (iterations - done + rounds - round - 1) / (rounds - round);
    for (std::size_t k = 0; k < variants; ++k) {
      const std::size_t v = (k + static_cast<std::size_t>(round)) % variants;
      TUTTI_RETURN_IF_ERROR(time_block(now, options_.variants[v], block, &(*samples_us)[v]));
    }
    done += block;
    TUTTI_ASSIGN_OR_RETURN(const bool stop, decide(now_s() - start_s > options_.time_cap_s));
    if (stop) {
      break;
    }
  }
  return {};
}

/// Gathers this variant's times and wrong elements; gives the latter of all ranks.
Result<std::size_t> Bench::report(std::size_t bytes, const Variant& variant,
                                  const std::vector<double>& samples_us, std::size_t wrong) {
  std::string mine(reinterpret_cast<const char*>(&wrong), sizeof wrong);
  mine.append(reinterpret_cast<const char*>(samples_us.data()), samples_us.size() * sizeof(double));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                         runner_.bootstrap().all_gather(mine, 0));
  std::vector<double> longest(samples_us.size(), 0);
  std::size_t all_wrong = 0;
  for (const std::string& text : all) {
    std::size_t theirs = 0;
    std::vector<double> times_us(samples_us.size());
    if (text.size() != mine.size()) {
      return Status(tutti::ErrorCode::kInvalidArgument, "ranks have timed different calls");
    }
    std::memcpy(&theirs, text.data(), sizeof theirs);
    std::memcpy(times_us.data(), text.data() + sizeof theirs, text.size() - sizeof theirs);
    all_wrong += theirs;
    for (std::size_t i = 0; i < longest.size(); ++i) {
      longest[i] = std::max(longest[i], times_us[i]);
    }
  }
  if (runner_.rank() == 0) {
    begin_row(bytes, variant.name.c_str());
    end_row(longest.data(), static_cast<int>(longest.size()), options_.check, all_wrong);
  }
  return all_wrong;
}

Result<std::size_t> Bench::measure_size(std::size_t bytes, bool is_first) {
  call layout;
  call_init(&layout, &of_calls_, bytes);
  const std::unique_ptr<call, void (*)(call*)> freed(&layout, call_free);
  NetCall now;
  fill_in(layout, &now);
  call_fill(&layout, &pattern_, 0, send_.data(), recv_.data());
  const int iterations = options_.iterations > 0 ? options_.iterations : default_iterations(bytes);
  const std::size_t variants = options_.variants.size();
  std::vector<std::size_t> wrong(variants, 0);
  const auto check = [&](std::size_t v) -> Status {
    if (options_.check) {
      TUTTI_ASSIGN_OR_RETURN(const std::size_t found,
                             check_once(layout, now, options_.variants[v]));
      wrong[v] += found;
    }
    return {};
  };
  for (std::size_t v = 0; v < variants; ++v) {
    TUTTI_RETURN_IF_ERROR(check(v));
    TUTTI_RETURN_IF_ERROR(warm_up(now, options_.variants[v], is_first ? kFirstWarmUpS : 0));
  }
  std::vector<std::vector<double>> samples_us(variants);
  TUTTI_RETURN_IF_ERROR(time_rounds(now, iterations, &samples_us));
  for (std::size_t v = 0; v < variants; ++v) {
    TUTTI_RETURN_IF_ERROR(check(v));
  }
  std::size_t total = 0;
  for (std::size_t v = 0; v < variants; ++v) {
    TUTTI_ASSIGN_OR_RETURN(const std::size_t found,
                           report(bytes, options_.variants[v], samples_us[v], wrong[v]));
    total += found;
  }
  return total;
}

Result<std::size_t> Bench::measure() {
  const Options& o = options_;
  const double steps = size_steps(o.begin, o.end, o.factor);
  double step = 0;
  std::size_t wrong = 0;
  std::optional<std::size_t> last;
  for (std::size_t size = o.begin; size <= o.end; size = size == 0 ? 1 : size * o.factor) {
    const std::size_t bytes = collective_bytes(&of_calls_, size);
    if (bytes != last) {  // Rounding may give a size twice.
      TUTTI_ASSIGN_OR_RETURN(const std::size_t found, measure_size(bytes, !last));
      wrong += found;
    }
    last = bytes;
    ++step;
    if (runner_.rank() == 0) {
      print_progress(step < steps ? step / steps : 1);
    }
    if (o.end == 0) {
      break;
    }
  }
  return wrong;
}

Result<std::size_t> measure_with(const Options& options, NetRunner& runner) {
  Bench bench(options, runner);
  if (const Status status = bench.resolve(); !status.ok()) {
    // The same on all ranks.
    if (runner.rank() != 0) {
      _exit(2);
    }
    return status;
  }
  if (runner.rank() == 0) {
    bench.print_header();
  }
  TUTTI_ASSIGN_OR_RETURN(const std::size_t wrong, bench.measure());
  // Nobody leaves while another still waits for its last words.
  TUTTI_RETURN_IF_ERROR(runner.bootstrap().all_gather("", 0).status());
  return wrong;
}

Result<std::size_t> measure_all(const Options& options) {
  TUTTI_ASSIGN_OR_RETURN(auto bootstrap, tutti::net::TcpBootstrap::open(options.bootstrap));
  if (options.bootstrap.rank == 0) {
    std::printf("{\"bootstrap\": ");
    print_text(bootstrap->address().c_str());
    std::printf("}\n");
    std::fflush(stdout);
  }
  TUTTI_RETURN_IF_ERROR(bootstrap->join());
  const tutti::Config config = tutti::config_from_environment().config;
  tutti::configure_log(config.log_level, config.log_file);
  tutti::set_log_rank(g_rank);
  auto network = tutti::net::open_network([](tutti::net::LogKind kind, const std::string& text) {
    const auto level =
        kind == tutti::net::LogKind::kWarning ? tutti::LogLevel::kWarn : tutti::LogLevel::kInfo;
    if (kind != tutti::net::LogKind::kTrace && tutti::log_enabled(level)) {
      tutti::log(level, text);
    }
  });
  if (!network.ok()) {
    bootstrap->give_up("rank " + std::to_string(g_rank) + ": " + network.status().message());
    return network.status();
  }
  TUTTI_ASSIGN_OR_RETURN(
      const auto runner,
      NetRunner::create(std::move(*network), std::move(bootstrap),
                        {options.bootstrap.rank, options.node, config.timeout_s}));
  return measure_with(options, *runner);
}

}  // namespace

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[4096];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "tutti-measure: %s%s\n",
               g_rank < 0 ? "" : ("rank " + std::to_string(g_rank) + ": ").c_str(), text);
  std::fflush(nullptr);
  _exit(2);  // Engine threads may be at work.
}

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const Result<std::size_t> wrong = measure_all(options);
  if (!wrong.ok()) {
    fail("%s", wrong.status().message().c_str());
  }
  return *wrong > 0 && options.bootstrap.rank == 0 ? 1 : 0;
}
