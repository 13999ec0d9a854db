// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The hardware that a kernel runs on: lanes, votes, and the loads and stores by which GPUs talk to
// each other. Three kinds: NVIDIA (PTX ISA 6.0, sm_70), AMD (CDNA), and the host, where a warp is
// one lane of a CPU thread. Everything above this file is one source.
//
// Memory order. Data and flag of a line travel together, so nothing here is an acquire or a release
// between GPUs: packets are relaxed stores at system scope, polls relaxed loads at system scope
// (they go past the L1 cache). The one fence of a call that succeeds stands before the word that
// the host waits for.
#pragma once

#include "device/kernels/direct_arguments.hpp"

#if defined(__NVPTX__) || defined(__AMDGCN__)
#define TUTTI_ON_GPU 1
#define TUTTI_INLINE __attribute__((always_inline)) inline
#define TUTTI_INLINE_LAMBDA __attribute__((always_inline))
/// Memory of a block: of a variable outside functions.
#define TUTTI_BLOCK_MEMORY __attribute__((address_space(3), loader_uninitialized))
#define TUTTI_UNROLL _Pragma("clang loop unroll(full)")
#define TUTTI_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#include <sched.h>
#include <time.h>

#define TUTTI_ON_GPU 0
#define TUTTI_INLINE inline
#define TUTTI_INLINE_LAMBDA
#define TUTTI_UNROLL
#define TUTTI_NO_UNROLL
#endif

namespace tutti::device::kernels {

/// 16 bytes.
typedef Word Unit __attribute__((vector_size(16)));

#if defined(__NVPTX__)

struct Hardware {
  static constexpr Word kLanes = 32;
  /// A look at host memory takes as long as many at the own.
  static constexpr Word kLooksBetweenAborts = 1024;
  static TUTTI_INLINE Word thread() { return static_cast<Word>(__nvvm_read_ptx_sreg_tid_x()); }
  static TUTTI_INLINE Word block() { return static_cast<Word>(__nvvm_read_ptx_sreg_ctaid_x()); }
  /// True when it is true on every lane; all lanes of the warp take part.
  static TUTTI_INLINE bool all(bool value) {
    Word result;
    asm volatile(
        "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.all.pred q, p, 0xffffffff; "
        "selp.u32 %0, 1, 0, q; }"
        : "=r"(result)
        : "r"(static_cast<Word>(value)));
    return result != 0;
  }
  static TUTTI_INLINE void relax() {}
  static TUTTI_INLINE void block_barrier() { asm volatile("bar.sync 0;" ::: "memory"); }
  static TUTTI_INLINE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
  /// What this block has written to memory of its own device is where every reader of that memory
  /// finds it: kernels, copies, other GPUs, NICs.
  static TUTTI_INLINE void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
  static TUTTI_INLINE void put(void* to, Unit v) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
  }
  /// All lanes of the warp meet and store with one instruction. One statement, so that what each
  /// lane stores is chosen before they meet: behind a branch they may go on apart.
  static TUTTI_INLINE void put_together(void* to, Unit v) {
    asm volatile(
        "bar.warp.sync 0xffffffff;\n\t"
        "st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
        :
        : "l"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
        : "memory");
  }
  static TUTTI_INLINE Unit get(const void* from) {
    Word a, b, c, d;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(from)
                 : "memory");
    return Unit{a, b, c, d};
  }
  /// As put_together().
  static TUTTI_INLINE Unit get_together(const void* from) {
    Word a, b, c, d;
    asm volatile(
        "bar.warp.sync 0xffffffff;\n\t"
        "ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
        : "l"(from)
        : "memory");
    return Unit{a, b, c, d};
  }
  static TUTTI_INLINE void put_word(Wide* to, Wide value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  static TUTTI_INLINE void put_word(Word* to, Word value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
  }
  static TUTTI_INLINE Word get_word(const Word* from) {
    Word value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
  /// Adds to memory of the own device; what was there.
  static TUTTI_INLINE Word add_word(Word* to, Word value) {
    Word before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(to), "r"(value)
                 : "memory");
    return before;
  }
  /// Of the lane behind this one, of the first for the last; all lanes of the warp take part.
  static TUTTI_INLINE Unit from_lane_behind(Unit v, Word lane) {
    const Word from = (lane + 1) % kLanes;
    Unit result;
    TUTTI_UNROLL
    for (Word word = 0; word < 4; ++word) {
      Word value;
      asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;"
                   : "=r"(value)
                   : "r"(v[word]), "r"(from));
      result[word] = value;
    }
    return result;
  }
  /// 4 bytes that begin `bytes` bytes (0 to 3) within `low`; `high` follows it in memory.
  static TUTTI_INLINE Word join_words(Word low, Word high, Word bytes) {
    Word value;
    asm("prmt.b32 %0, %1, %2, %3;"
        : "=r"(value)
        : "r"(low), "r"(high), "r"(0x3210 + 0x1111 * bytes));
    return value;
  }
  /// A clock of 954 ticks a second.
  static TUTTI_INLINE Word ticks() {
    Wide now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return static_cast<Word>(now >> 20);
  }
};

#elif defined(__AMDGCN__)

struct Hardware {
  static constexpr Word kLanes = 64;
  static constexpr Word kLooksBetweenAborts = 1024;
  static TUTTI_INLINE Word thread() { return __builtin_amdgcn_workitem_id_x(); }
  static TUTTI_INLINE Word block() { return __builtin_amdgcn_workgroup_id_x(); }
  static TUTTI_INLINE bool all(bool value) { return __builtin_amdgcn_ballot_w64(!value) == 0; }
  static TUTTI_INLINE void relax() {}
  static TUTTI_INLINE void block_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  }
  static TUTTI_INLINE void fence_system() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, ""); }
  static TUTTI_INLINE void fence_device() { fence_system(); }  // Never measured there.
  /// 16 bytes are two stores there, 8 bytes each in one piece.
  static TUTTI_INLINE void put(void* to, Unit v) {
    Wide* const words = static_cast<Wide*>(to);
    put_word(words, v[0] | static_cast<Wide>(v[1]) << 32);
    put_word(words + 1, v[2] | static_cast<Wide>(v[3]) << 32);
  }
  static TUTTI_INLINE Unit get(const void* from) {
    const Wide* const words = static_cast<const Wide*>(from);
    const Wide a = __scoped_atomic_load_n(words, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
    const Wide b = __scoped_atomic_load_n(words + 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
    return Unit{static_cast<Word>(a), static_cast<Word>(a >> 32), static_cast<Word>(b),
                static_cast<Word>(b >> 32)};
  }
  /// Lanes of a wave never part for longer than a branch.
  static TUTTI_INLINE void put_together(void* to, Unit v) { put(to, v); }
  static TUTTI_INLINE Unit get_together(const void* from) { return get(from); }
  static TUTTI_INLINE void put_word(Wide* to, Wide value) {
    __scoped_atomic_store_n(to, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
  }
  static TUTTI_INLINE void put_word(Word* to, Word value) {
    __scoped_atomic_store_n(to, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
  }
  static TUTTI_INLINE Word get_word(const Word* from) {
    return __scoped_atomic_load_n(from, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
  }
  static TUTTI_INLINE Word add_word(Word* to, Word value) {
    return __scoped_atomic_fetch_add(to, value, __ATOMIC_ACQ_REL, __MEMORY_SCOPE_DEVICE);
  }
  static TUTTI_INLINE Unit from_lane_behind(Unit v, Word lane) {
    const int from = static_cast<int>((lane + 1) % kLanes * sizeof(Word));
    Unit result;
    TUTTI_UNROLL
    for (Word word = 0; word < 4; ++word) {
      result[word] =
          static_cast<Word>(__builtin_amdgcn_ds_bpermute(from, static_cast<int>(v[word])));
    }
    return result;
  }
  static TUTTI_INLINE Word join_words(Word low, Word high, Word bytes) {
    return __builtin_amdgcn_alignbyte(high, low, bytes);
  }
  /// That of 100 MHz: 763 ticks a second.
  static TUTTI_INLINE Word ticks() {
    return static_cast<Word>(__builtin_amdgcn_s_memrealtime() >> 17);
  }
};

#else

/// A warp is one lane; a block's warps run one after the other
/// (tests/support/host_device/kernels.cpp).
struct Hardware {
  static constexpr Word kLanes = 1;
  /// Each look gives the core away, and each of a thousand warps has to see it by itself.
  static constexpr Word kLooksBetweenAborts = 16;
  static bool all(bool value) { return value; }
  /// Ranks may be more than cores.
  static void relax() { sched_yield(); }
  static void fence_system() {}
  static void put_word(Wide* to, Wide value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
  static void put_word(Word* to, Word value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }
  static Word get_word(const Word* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
  static Word add_word(Word* to, Word value) {
    return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
  }
  static Word join_words(Word low, Word high, Word bytes) {
    return static_cast<Word>((static_cast<Wide>(high) << 32 | low) >> bytes * 8);
  }
  /// As NVIDIA's.
  static Word ticks() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const Wide ns = static_cast<Wide>(now.tv_sec) * 1000000000 + static_cast<Wide>(now.tv_nsec);
    return static_cast<Word>(ns >> 20);
  }
};

#endif

}  // namespace tutti::device::kernels
