// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Functions of the C API as functions of the Python interpreter that this process runs: ctypes
// takes long to convert the arguments of a call, above all with cold caches. CPython's stable ABI
// (docs.python.org/3/c-api/stable.html; METH_FASTCALL, in it from 3.10 on, is the same in 3.9) is
// enough, and is looked up in the process: a program without Python has none, nothing is linked.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/dynamic_library.hpp"
#include "tutti/tutti.h"

namespace {

struct PyObject;
using PySize = std::ptrdiff_t;
using FastFunction = PyObject* (*)(PyObject* self, PyObject* const* arguments, PySize count);

/// PyMethodDef.
struct Method {
  const char* name;
  FastFunction function;
  int flags;
  const char* doc;
};
constexpr int kFastCall = 0x0080;  // METH_FASTCALL

/// What is used of the interpreter; by threads that hold the GIL.
struct Python {
  PyObject* (*new_function)(Method*, PyObject* self, PyObject* module) = nullptr;
  void* (*as_pointer)(PyObject*) = nullptr;
  long long (*as_integer)(PyObject*) = nullptr;
  PyObject* (*from_integer)(unsigned long long) = nullptr;
  PyObject* (*error)() = nullptr;
  void (*raise)(PyObject* type, const char* text) = nullptr;
  void* (*save_thread)() = nullptr;
  void (*restore_thread)(void* thread) = nullptr;
  PyObject** type_error = nullptr;
  PyObject** overflow_error = nullptr;

  static const Python& get() {
    static const Python python;
    return python;
  }
  bool is_there() const { return is_there_; }

 private:
  Python() {
    const tutti::DynamicLibrary process = tutti::DynamicLibrary::process();
    is_there_ = process.resolve("PyCFunction_NewEx", &new_function) &&
                process.resolve("PyLong_AsVoidPtr", &as_pointer) &&
                process.resolve("PyLong_AsLongLong", &as_integer) &&
                process.resolve("PyLong_FromUnsignedLongLong", &from_integer) &&
                process.resolve("PyErr_Occurred", &error) &&
                process.resolve("PyErr_SetString", &raise) &&
                process.resolve("PyEval_SaveThread", &save_thread) &&
                process.resolve("PyEval_RestoreThread", &restore_thread) &&
                process.resolve("PyExc_TypeError", &type_error) &&
                process.resolve("PyExc_OverflowError", &overflow_error);
  }

  bool is_there_ = false;
};

template <class Value>
Value converted(PyObject* argument) {
  const Python& python = Python::get();
  if constexpr (std::is_pointer_v<Value>) {
    return static_cast<Value>(python.as_pointer(argument));
  } else {
    const long long given = python.as_integer(argument);
    const auto value = static_cast<Value>(given);
    if (static_cast<long long>(value) != given && python.error() == nullptr) {
      python.raise(*python.overflow_error, "tutti: an argument is too large for its type");
    }
    return value;
  }
}

/// A C function that takes addresses and integers, as one of Python's that takes integers.
template <auto function>
struct Called;

template <class Answer, class... Values, Answer (*function)(Values...)>
struct Called<function> {
  static PyObject* call(PyObject* /*self*/, PyObject* const* arguments, PySize count) {
    const Python& python = Python::get();
    if (count != static_cast<PySize>(sizeof...(Values))) {
      python.raise(*python.type_error, "tutti: another number of arguments than in tutti.h");
      return nullptr;
    }
    const auto values = [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::tuple<Values...>{converted<Values>(arguments[i])...};
    }
    (std::index_sequence_for<Values...>());
    if (python.error() != nullptr) {
      return nullptr;
    }
    void* const thread = python.save_thread();
    const Answer answer = std::apply(function, values);
    python.restore_thread(thread);
    return python.from_integer(static_cast<unsigned long long>(answer));
  }
};

template <auto function>
constexpr Method method(const char* name) {
  return {name, &Called<function>::call, kFastCall, nullptr};
}

// Python keeps their addresses.
std::array g_methods = {
    // NOLINT(*-avoid-non-const-global-variables)
    method<tutti_allreduce>("tutti_allreduce"),
    method<tutti_bcast>("tutti_bcast"),
    method<tutti_allgather>("tutti_allgather"),
    method<tutti_reduce_scatter_block>("tutti_reduce_scatter_block"),
    method<tutti_alltoall>("tutti_alltoall"),
    method<tutti_comm_order>("tutti_comm_order"),
    method<tutti_comm_mark>("tutti_comm_mark"),
    method<tutti_comm_calls>("tutti_comm_calls"),
    method<tutti_comm_wait_on>("tutti_comm_wait_on"),
};

}  // namespace

/// For python/tutti_hpc/api.py, by a thread that holds the GIL: a new reference to the function of
/// this name, which gives the GIL up during the call. Null without an error: there is no
/// interpreter to be found, or no such function.
extern "C" TUTTI_API void* tutti_python_function(const char* name) {
  const Python& python = Python::get();
  for (Method& method : g_methods) {
    if (python.is_there() && std::string_view(method.name) == name) {
      return python.new_function(&method, nullptr, nullptr);
    }
  }
  return nullptr;
}
