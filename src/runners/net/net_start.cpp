// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/net/net_start.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/system_random.hpp"

namespace tutti::runners {
namespace {

/// What a rank has to say after a step; fixed size, host byte order (one kind of node per job).
struct Report {
  ErrorCode code = ErrorCode::kOk;
  char reason[240] = {};
  char address[80] = {};  ///< Of rank 0's bootstrap, with its key.
  char key[33] = {};
};

/// Of what another rank has met.
bool is_consequence(const Report& report) {
  return report.code == ErrorCode::kTimeout ||
         std::string_view(report.reason).find("has left") != std::string_view::npos;
}

template <std::size_t N>
void put_text(char (&field)[N], const std::string& text) {
  std::strncpy(field, text.c_str(), N - 1);
}

void log_line(net::LogKind kind, const std::string& text) {
  const LogLevel level = kind == net::LogKind::kWarning ? LogLevel::kWarn : LogLevel::kInfo;
  if (kind != net::LogKind::kTrace && log_enabled(level)) {
    log(level, text);
  }
}

/// Of this process; opened by the first that wants it, closed with its last user.
Result<std::shared_ptr<net::Network>> shared_network() {
  static std::mutex mutex;
  static std::weak_ptr<net::Network> open;
  const std::lock_guard<std::mutex> lock(mutex);
  if (std::shared_ptr<net::Network> known = open.lock(); known != nullptr) {
    return known;
  }
  TUTTI_ASSIGN_OR_RETURN(auto made, net::open_network(log_line));
  std::shared_ptr<net::Network> shared = std::move(made);
  open = shared;
  return shared;
}

/// "192.0.2.1:0", "[2001:db8::1]:0"
std::string any_port_at(const std::string& address) {
  return (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":0";
}

Result<std::string> new_key() {
  std::array<unsigned char, 16> bytes{};
  TUTTI_RETURN_IF_ERROR(system_random(bytes.data(), bytes.size()));
  std::string text;
  for (const unsigned char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

class Start {
 public:
  Start(Bootstrap& bootstrap, const NetRunner::Options& options)
      : bootstrap_(bootstrap), options_(options) {
    of_tcp_.rank = options.rank;
    of_tcp_.ranks = options.layout->ranks();
    of_tcp_.timeout_s = set_up_timeout_s(options.timeout_s);
  }

  Result<std::unique_ptr<NetRunner>> run(std::string* refusal) {
    Report report;
    TUTTI_RETURN_IF_ERROR(exchange(open(), &report, refusal));
    if (!refusal->empty()) {
      return std::unique_ptr<NetRunner>();
    }
    of_tcp_.address = report.address;
    of_tcp_.key = report.key;
    TUTTI_RETURN_IF_ERROR(exchange(join(), &report, refusal));
    if (!refusal->empty()) {
      return std::unique_ptr<NetRunner>();
    }
    std::unique_ptr<NetRunner> runner;
    if (const Status made = make(&runner); !made.ok()) {
      *refusal = "rank " + std::to_string(options_.rank) + ": " + made.message();
      runner.reset();
    }
    return runner;
  }

 private:
  /// What this rank alone can find out. Rank 0 listens.
  Status open() {
    TUTTI_ASSIGN_OR_RETURN(network_, shared_network());
    if (options_.rank == 0) {
      of_tcp_.address = any_port_at(network_->devices()[0].address);
      TUTTI_ASSIGN_OR_RETURN(of_tcp_.key, new_key());
      TUTTI_ASSIGN_OR_RETURN(tcp_, net::TcpBootstrap::open(of_tcp_));
      of_tcp_.address = tcp_->address();
    }
    return {};
  }

  Status join() {
    if (options_.rank != 0) {
      TUTTI_ASSIGN_OR_RETURN(tcp_, net::TcpBootstrap::open(of_tcp_));
    }
    return tcp_->join();
  }

  /// A barrier sends messages over each rail: a network that lets none through is found here. The
  /// verdict is taken where a rank that has failed or died is noticed.
  Status make(std::unique_ptr<NetRunner>* runner) {
    TUTTI_ASSIGN_OR_RETURN(*runner,
                           NetRunner::create(std::move(network_), std::move(tcp_), options_));
    Call barrier;
    barrier.collective = select::Collective::kBarrier;
    TUTTI_RETURN_IF_ERROR((*runner)->run("dissemination", {}, barrier));
    return (*runner)->bootstrap().all_gather("", of_tcp_.timeout_s).status();
  }

  /// `first`: rank 0's report. `refusal`: of the first rank whose reason is no consequence of
  /// another's, else of the first that has one.
  Status exchange(const Status& mine, Report* first, std::string* refusal) {
    Report report;
    report.code = mine.code();
    put_text(report.reason, mine.message());
    put_text(report.address, of_tcp_.address);
    put_text(report.key, of_tcp_.key);
    std::vector<Report> all(static_cast<std::size_t>(of_tcp_.ranks));
    TUTTI_RETURN_IF_ERROR(bootstrap_.allgather(&report, all.data(), sizeof(report)));
    *first = all[0];
    const auto fails = [](const Report& one) { return one.code != ErrorCode::kOk; };
    auto failed = std::find_if(all.begin(), all.end(), [&](const Report& one) {
      return fails(one) && !is_consequence(one);
    });
    failed = failed != all.end() ? failed : std::find_if(all.begin(), all.end(), fails);
    if (failed != all.end()) {
      *refusal = "rank " + std::to_string(failed - all.begin()) + ": " + failed->reason;
    }
    return {};
  }

  Bootstrap& bootstrap_;
  const NetRunner::Options& options_;
  net::TcpBootstrapOptions of_tcp_;
  std::shared_ptr<net::Network> network_;
  std::unique_ptr<net::TcpBootstrap> tcp_;
};

}  // namespace

Result<std::unique_ptr<NetRunner>> start_net_runner(Bootstrap& bootstrap,
                                                    const NetRunner::Options& options,
                                                    std::string* refusal) {
  return Start(bootstrap, options).run(refusal);
}

}  // namespace tutti::runners
