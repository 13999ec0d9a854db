// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// PMI-1 as text: one line of words key=value asks, one line answers. The MPI library speaks on the
// same descriptor, so this code does only while the library does not: before it starts, and when
// its initialization has returned. An init comes before our first put: the Hydra of MPICH 3.4
// and 4.0 forgets at a node's first init what was put before, and answers later ones alike. A value
// is visible to the processes of this node at once, and to all after the library's own barrier.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <mutex>

#include "base/config.hpp"
#include "mpi/presence_store.hpp"

namespace tutti::mpi {
namespace {

std::optional<int> number_of(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty()
             ? std::optional<int>(value)
             : std::nullopt;
}

/// The value of a word of an answer.
std::optional<std::string> word(const std::string& line, const std::string& key) {
  const std::size_t at = line.find(" " + key + "=");
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const std::size_t begin = at + key.size() + 2;
  return line.substr(begin, line.find_first_of(" \n", begin) - begin);
}

class PmiStore final : public PresenceStore {
 public:
  PmiStore(int descriptor, int rank) : descriptor_(descriptor), rank_(rank) {}

  void put(const std::string& value) override {
    ask("cmd=init pmi_version=1 pmi_subversion=1");
    ask("cmd=put" + name() + " key=tutti-" + std::to_string(rank_) + " value=" + value);
  }

  std::vector<std::optional<std::string>> get(const std::vector<int>& ranks) override {
    std::vector<std::optional<std::string>> values;
    for (const int rank : ranks) {
      const std::string answer = ask("cmd=get" + name() + " key=tutti-" + std::to_string(rank));
      values.push_back(word(answer, "rc") == "0" ? word(answer, "value") : std::nullopt);
    }
    return values;
  }

  std::string host(int /*rank*/) override { return {}; }
  bool puts_at_commit() const override { return false; }

 private:
  /// The job's part of the store, as a word of a question.
  const std::string& name() {
    if (name_.empty()) {
      name_ = " kvsname=" + word(ask("cmd=get_my_kvsname"), "kvsname").value_or("");
    }
    return name_;
  }

  /// Empty when the launcher does not answer; it is then asked nothing more.
  std::string ask(const std::string& question) {
    if (is_broken_) {
      return {};
    }
    is_broken_ = !write_all(question + "\n");
    std::string answer;
    while (!is_broken_ && !answer.ends_with('\n')) {
      // One answer to one question: nothing of the MPI library's own can follow it.
      char part[1024];
      const ssize_t bytes = read(descriptor_, part, sizeof(part));
      if (bytes > 0) {
        answer.append(part, static_cast<std::size_t>(bytes));
      } else {
        is_broken_ = bytes == 0 || errno != EINTR;
      }
    }
    return is_broken_ ? std::string() : answer;
  }

  bool write_all(const std::string& text) const {
    for (std::size_t done = 0; done < text.size();) {
      // A launcher that has ended must not end this process by SIGPIPE.
      const ssize_t bytes = send(descriptor_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (bytes < 0 && errno != EINTR) {
        return false;
      }
      done += bytes < 0 ? 0 : static_cast<std::size_t>(bytes);
    }
    return true;
  }

  int descriptor_;
  int rank_;
  bool is_broken_ = false;
  std::string name_;
};

}  // namespace

std::unique_ptr<PresenceStore> open_pmi_store() {
  // MPI_LOCALNRANKS is Hydra's. Other launchers (srun) give a PMI_FD that takes its protocol from
  // the first line on it, which must be the MPI library's.
  const std::optional<int> descriptor = number_of(environment_value("PMI_FD"));
  const std::optional<int> rank = number_of(environment_value("PMI_RANK"));
  if (!descriptor || !rank || environment_value("MPI_LOCALNRANKS").empty()) {
    return nullptr;
  }
  return std::make_unique<PmiStore>(*descriptor, *rank);
}

}  // namespace tutti::mpi
