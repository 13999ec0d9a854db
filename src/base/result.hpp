// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Expected failures as values: Status (did it work) and Result<T> (a value or why not).
// Not for broken invariants of our own: those are CHECK (base/check.hpp).
// C++20 has no std::expected; this is the part of it that we need.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace tutti {

/// What kind of failure a caller has to answer. The entry points translate each to their own
/// kind of code (an MPI error class, an NCCL result, a Python exception).
enum class ErrorCode {
  kOk = 0,
  kInvalidArgument,  ///< The caller passed something that can never work.
  kInvalidConfig,    ///< A variable or a file is wrong; the message names place and remedy.
  kUnsupported,      ///< Right, but this build, library or machine cannot do it.
  kUnavailable,      ///< A library or a device is missing.
  kOutOfMemory,
  kTimeout,        ///< A peer or a device did not answer within the configured time.
  kLibraryFailed,  ///< A foreign library returned an error; the message holds its words.
  kMpiFailed,      ///< PMPI returned an error; `mpi_code` holds it unchanged.
  kMismatch,       ///< The ranks' calls differ. The next ones work, or fail as after a failure.
  kFallback,       ///< TUTTI_STRICT=1 turned a fall-back into this error.
};

/// Name of the code for messages, for example "timeout".
const char* to_string(ErrorCode code);

/// Success, or a code with a message that names the place and the remedy.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  /// An error that PMPI returned: `mpi_code` is handed back to the application unchanged. `raised`:
  /// MPI has called the application's error handler already, and nobody may call it again.
  static Status mpi(int mpi_code, std::string message, bool raised = false) {
    Status status(ErrorCode::kMpiFailed, std::move(message));
    status.mpi_code_ = mpi_code;
    status.raised_ = raised;
    return status;
  }

  bool ok() const { return code_ == ErrorCode::kOk; }
  explicit operator bool() const { return ok(); }
  ErrorCode code() const { return code_; }
  int mpi_code() const { return mpi_code_; }
  bool raised() const { return raised_; }
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  int mpi_code_ = 0;
  bool raised_ = false;
  std::string message_;
};

/// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }

  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tutti

/// Returns early with the failure of `expr`, a Status.
#define TUTTI_RETURN_IF_ERROR(expr)        \
  do {                                     \
    ::tutti::Status tutti_status = (expr); \
    if (!tutti_status.ok()) [[unlikely]] { \
      return tutti_status;                 \
    }                                      \
  } while (0)

#define TUTTI_CONCAT_INNER(a, b) a##b
#define TUTTI_CONCAT(a, b) TUTTI_CONCAT_INNER(a, b)

/// `TUTTI_ASSIGN_OR_RETURN(auto x, f())`: takes the value of a Result or returns its Status.
#define TUTTI_ASSIGN_OR_RETURN(lhs, expr) \
  TUTTI_ASSIGN_OR_RETURN_IMPL(TUTTI_CONCAT(tutti_result_, __LINE__), lhs, expr)
#define TUTTI_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.ok()) [[unlikely]] {                     \
    return tmp.status();                            \
  }                                                 \
  lhs = std::move(*tmp)
