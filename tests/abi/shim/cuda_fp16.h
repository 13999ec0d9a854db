// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// nccl.h includes this file and uses nothing of it.
#pragma once
