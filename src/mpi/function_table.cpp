// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/function_table.hpp"

#include <string>

#include "base/config.hpp"
#include "base/log.hpp"

namespace tutti::mpi {
namespace {

Lookup g_lookup = nullptr;

/// Every call straight to the library: two MPIs in one process, or a flavour we cannot serve. Of
/// all fall-backs the largest, so under TUTTI_STRICT no collective has a way, unless all of them
/// are to go there (TUTTI_ENABLE=0).
void fill_untouched(const Config& config, Lookup lookup, FunctionTable* table) {
  const bool is_strict = config.strict && config.enable;
  for (int entry = 0; entry < kEntryCount; ++entry) {
    if (!is_strict || !is_collective(entry)) {
      table->entries[entry] = lookup(kPmpiNames[entry]);
    }
  }
  if (is_strict) {
    table->refusal = "TUTTI_STRICT: it would go to MPI untouched";
  }
}

/// Not MPI_SUCCESS in any ABI, through the communicator's error handler. A program that is linked
/// to its library gets here under TUTTI_STRICT alone.
int refuse(const FunctionTable* table, int entry, Word last) {
  constexpr int kError = 16;
  log(LogLevel::kError, std::string(kPmpiNames[entry] + 1) + ": " + table->refusal);
  using Handler = int (*)(Word comm, Word code);
  if (auto* handler = reinterpret_cast<Handler>(g_lookup("PMPI_Comm_call_errhandler"));
      handler != nullptr && is_collective(entry)) {
    handler(last, kError);
  }
  return kError;
}

const char* to_string(Flavour flavour) {
  constexpr const char* kNames[] = {"unknown MPI", "MPICH ABI", "Open MPI ABI", "MPI standard ABI"};
  return kNames[static_cast<std::size_t>(flavour)];
}

bool fill_from_flavour(Flavour flavour, [[maybe_unused]] Lookup lookup,
                       [[maybe_unused]] FunctionTable* table) {
  switch (flavour) {
#ifdef TUTTI_HAVE_MPICH
    case Flavour::kMpich:
      return fill_function_table_mpich(lookup, table);
#endif
#ifdef TUTTI_HAVE_OPENMPI
    case Flavour::kOpenMpi:
      return fill_function_table_openmpi(lookup, table);
#endif
#ifdef TUTTI_HAVE_ABI
    case Flavour::kAbi:
      return fill_function_table_abi(lookup, table);
#endif
    default:
      log(LogLevel::kError, std::string("this build does not support the ") + to_string(flavour) +
                                "; every call goes to MPI untouched");
      return false;
  }
}

/// A line of a process that may have made no call of ours, so that nothing has read the settings.
/// Nothing where Tutti is off.
void warn(const std::string& text) {
  const Config config = config_from_environment().config;
  if (config.enable) {
    configure_log(config.log_level, config.log_file);
    log(LogLevel::kWarn, text);
  }
}

}  // namespace

bool supports_abi(Flavour flavour) {
  bool has = false;
#ifdef TUTTI_HAVE_MPICH
  has |= flavour == Flavour::kMpich;
#endif
#ifdef TUTTI_HAVE_OPENMPI
  has |= flavour == Flavour::kOpenMpi;
#endif
#ifdef TUTTI_HAVE_ABI
  has |= flavour == Flavour::kAbi;
#endif
  return has;
}

}  // namespace tutti::mpi

using namespace tutti::mpi;

extern "C" void tutti_mpi_fill_table(Flavour flavour, const char* path, const char* other_path,
                                     Lookup lookup, FunctionTable* table) {
  g_lookup = lookup;
  table->refuse = refuse;
  const tutti::ParsedConfig parsed = tutti::config_from_environment();
  if (*other_path != '\0') {
    tutti::log(tutti::LogLevel::kError, std::string("two MPI libraries in one process (") + path +
                                            " and " + other_path +
                                            "); every call goes untouched to the first of them");
    fill_untouched(parsed.config, lookup, table);
  } else if (!fill_from_flavour(flavour, lookup, table)) {
    fill_untouched(parsed.config, lookup, table);
  }
}

extern "C" void tutti_mpi_report_tool(const char* path) {
  warn(
      std::string(path) +
      " calls MPI past Tutti, which carries none of the collectives that it wraps; remedy: name it "
      "before libtutti-mpi.so in LD_PRELOAD");
}

extern "C" void tutti_mpi_report_unseen(const char* path) {
  warn(
      std::string(path) +
      " was initialised, but none of its calls passed Tutti: the program took the library's "
      "functions "
      "from a handle (dlopen, as Julia and ctypes do) or loaded a module with RTLD_DEEPBIND; "
      "remedy: "
      "take them from the process (dlsym(RTLD_DEFAULT), ctypes.CDLL(None)), without RTLD_DEEPBIND");
}
