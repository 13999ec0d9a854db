// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What nccl.h needs of the CUDA runtime's header in order to be compared with our declarations.
// CUDART_VERSION stays undefined, so that nccl.h asks for no further headers; that bfloat16 exists
// it would learn from cuda_bf16.h.
#pragma once

#include <stddef.h>

#define __CUDA_BF16_TYPES_EXIST__

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
