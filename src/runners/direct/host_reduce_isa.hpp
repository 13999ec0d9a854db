// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What each of the files that are compiled for one instruction set offers.
#pragma once

#include "runners/direct/host_reduce.hpp"

namespace tutti::runners {

ReduceFunction reduce_baseline(select::DataType type, select::ReduceOp op);
ReduceFunction reduce_avx2(select::DataType type, select::ReduceOp op);
ReduceFunction reduce_avx512(select::DataType type, select::ReduceOp op);

}  // namespace tutti::runners
