// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Runs a fuzz target without libFuzzer: every file of a corpus, then mutations of them.
// usage: <target>_replay CORPUS_DIRECTORY [MUTATIONS [SEED]]
// The same arguments run the same inputs. When an input fails, its number and bytes are printed.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz.hpp"

namespace {

using Input = std::vector<std::uint8_t>;

constexpr int kDefaultMutations = 2000;
constexpr unsigned kDefaultSeed = 1;
constexpr std::size_t kLongestInput = 16384;

const Input* g_running = nullptr;
long g_number = 0;

/// Says which input it was before the process ends; only calls that a handler may make.
void report_input(int) {
  static constexpr char kHead[] = "replay: this input failed (hexadecimal): ";
  static constexpr char kDigits[] = "0123456789abcdef";
  ssize_t ignored = write(STDERR_FILENO, kHead, sizeof(kHead) - 1);
  for (std::uint8_t byte : *g_running) {
    char pair[2] = {kDigits[byte >> 4], kDigits[byte & 15]};
    ignored = write(STDERR_FILENO, pair, 2);
  }
  ignored = write(STDERR_FILENO, "\n", 1);
  static_cast<void>(ignored);
  std::signal(SIGABRT, SIG_DFL);
}

void run(const Input& input) {
  g_running = &input;
  ++g_number;
  // A copy of the exact size, so that the address sanitizer sees a read behind the end.
  Input copy(input);
  copy.shrink_to_fit();
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

std::vector<Input> read_corpus(const char* directory) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // The order of a directory differs between machines.
  std::vector<Input> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

/// One of: flip a bit, set a byte, cut a piece out, repeat a piece, take a piece of another input.
void mutate(Input* input, const std::vector<Input>& corpus, std::mt19937* random) {
  auto below = [&](std::size_t bound) {
    // Not a distribution: those give other numbers with another standard library.
    return bound == 0 ? 0 : static_cast<std::size_t>((*random)()) % bound;
  };
  auto at = [](Input* list, std::size_t index) {
    return list->begin() + static_cast<std::ptrdiff_t>(index);
  };
  std::size_t place = below(input->size());
  std::size_t length = std::min(input->size() - place, below(16) + 1);
  switch (input->empty() ? 4 : below(5)) {
    case 0:
      (*input)[place] ^= static_cast<std::uint8_t>(1U << below(8));
      break;
    case 1: {
      static constexpr char kTelling[] = "{}[]\":,<=-0189KMT\\\n \xff";
      (*input)[place] = static_cast<std::uint8_t>(kTelling[below(sizeof(kTelling))]);
      break;
    }
    case 2:
      input->erase(at(input, place), at(input, place + length));
      break;
    case 3: {
      Input piece(at(input, place), at(input, place + length));
      input->insert(at(input, below(input->size() + 1)), piece.begin(), piece.end());
      break;
    }
    default: {
      Input other = corpus[below(corpus.size())];
      std::size_t from = below(other.size());
      std::size_t count = std::min(other.size() - from, below(64) + 1);
      input->insert(at(input, place), at(&other, from), at(&other, from + count));
      break;
    }
  }
  input->resize(std::min(input->size(), kLongestInput));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIRECTORY [MUTATIONS [SEED]]\n", argv[0]);
    return 2;
  }
  const int mutations = argc > 2 ? std::atoi(argv[2]) : kDefaultMutations;
  const unsigned seed =
      argc > 3 ? static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)) : kDefaultSeed;
  const std::vector<Input> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus; a test that runs nothing proves nothing\n", argv[1]);
    return 1;
  }
  std::signal(SIGABRT, report_input);
  for (const Input& input : corpus) {
    run(input);
  }
  std::mt19937 random(seed);
  for (int i = 0; i < mutations; ++i) {
    Input input = corpus[random() % corpus.size()];
    for (std::size_t steps = random() % 8 + 1; steps > 0; --steps) {
      mutate(&input, corpus, &random);
    }
    run(input);
  }
  std::printf("%ld inputs: %zu of the corpus, %d mutations with seed %u\n", g_number, corpus.size(),
              mutations, seed);
  return 0;
}
