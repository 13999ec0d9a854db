/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tutti's C API. Offered by libtutti.so, and by libtutti-mpi.so when it is preloaded.
 * C ABI version: TUTTI_ABI_VERSION; a new number when a function changes its meaning. New
 * functions, enumerators and fields at the end of a sized structure come without one.
 *
 * Functions that return `char*` return a JSON document (UTF-8, NUL-terminated) that the caller
 * gives back to tutti_free; NULL only when there is no memory. A failure is {"error": "..."}.
 */
#ifndef TUTTI_TUTTI_H_
#define TUTTI_TUTTI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_ABI_VERSION 1
#define TUTTI_API __attribute__((visibility("default")))
/* Without a type of its own an enumeration of C++ cannot hold all that C callers may give. */
#ifdef __cplusplus
#define TUTTI_ANY_NUMBER : int
#else
#define TUTTI_ANY_NUMBER
#endif

/* ---- Communicators and collectives (docs/c-api.md) ------------------------------------------ */

/** What a function returns; tutti_error_string() has the words. No exception leaves the library. */
typedef enum tutti_status TUTTI_ANY_NUMBER {
  TUTTI_OK = 0,
  TUTTI_ERROR_INVALID_ARGUMENT = 1, /**< Can never work. By one rank alone: docs/c-api.md. */
  TUTTI_ERROR_INVALID_CONFIG = 2,   /**< A TUTTI_* variable or a file; or ranks differ in them. */
  TUTTI_ERROR_UNSUPPORTED = 3,      /**< Right, but nothing here carries it. */
  TUTTI_ERROR_UNAVAILABLE = 4,      /**< A library or a device is missing. */
  TUTTI_ERROR_OUT_OF_MEMORY = 5,
  TUTTI_ERROR_TIMEOUT = 6,  /**< A peer is gone or did not come within TUTTI_TIMEOUT. */
  TUTTI_ERROR_LIBRARY = 7,  /**< CUDA, HIP, NCCL, RCCL or the bootstrap failed. */
  TUTTI_ERROR_FALLBACK = 8, /**< TUTTI_STRICT=1 made an error of a fall-back. */
  TUTTI_ERROR_INTERNAL = 9
} tutti_status_t;

/** Types of elements. Pairs are a value and an index, as the C structures of MPI_FLOAT_INT etc. */
typedef enum tutti_type TUTTI_ANY_NUMBER {
  TUTTI_BYTE = 0,
  TUTTI_INT8 = 1,
  TUTTI_UINT8 = 2,
  TUTTI_INT16 = 3,
  TUTTI_UINT16 = 4,
  TUTTI_INT32 = 5,
  TUTTI_UINT32 = 6,
  TUTTI_INT64 = 7,
  TUTTI_UINT64 = 8,
  TUTTI_FLOAT16 = 9,
  TUTTI_BFLOAT16 = 10,
  TUTTI_FLOAT32 = 11,
  TUTTI_FLOAT64 = 12,
  TUTTI_COMPLEX64 = 13,  /**< Two float32. */
  TUTTI_COMPLEX128 = 14, /**< Two float64. */
  TUTTI_BOOL = 15,       /**< C bool. */
  TUTTI_LOGICAL32 = 16,  /**< Fortran logical of 4 bytes. */
  TUTTI_INT16_INT = 17,
  TUTTI_INT32_INT = 18,
  TUTTI_INT64_INT = 19,
  TUTTI_FLOAT32_INT = 20,
  TUTTI_FLOAT64_INT = 21,
  TUTTI_FLOAT32_PAIR = 22, /**< float, float (MPI_2REAL). */
  TUTTI_FLOAT64_PAIR = 23  /**< double, double (MPI_2DOUBLE_PRECISION). */
} tutti_type_t;

/** Operations, each for the types for which MPI 4.1 section 6.9.2 defines it. */
typedef enum tutti_op TUTTI_ANY_NUMBER {
  TUTTI_SUM = 1,
  TUTTI_PROD = 2,
  TUTTI_MIN = 3,
  TUTTI_MAX = 4,
  TUTTI_LAND = 5,
  TUTTI_LOR = 6,
  TUTTI_LXOR = 7,
  TUTTI_BAND = 8,
  TUTTI_BOR = 9,
  TUTTI_BXOR = 10,
  TUTTI_MINLOC = 11,
  TUTTI_MAXLOC = 12,
  /** The sum divided by the number of ranks, of float16 to complex128; not in MPI. On device memory
      our kernels multiply the sum by 1 / ranks, and NCCL or RCCL may divide first; in host memory
      the sum, which must fit the type, is divided. */
  TUTTI_AVG = 13
} tutti_op_t;

/** A communicator of this process's rank. Used by one thread at a time. */
typedef struct tutti_comm tutti_comm_t;

/**
 * How the ranks meet: while a communicator is made, at the first calls that need something new
 * (another plan, another kind of memory), and, unless the options say what memory is in use, in the
 * 2nd, 4th, 8th, ... and every 8192nd call of a kind that is waited for.
 */
typedef struct tutti_bootstrap {
  size_t size; /**< sizeof(tutti_bootstrap_t) of the caller: set it first. */
  int rank;    /**< 0 to ranks - 1. */
  int ranks;
  void* context; /**< Given to `allgather`; the caller's, who frees it after tutti_comm_destroy. */
  /**
   * Gathers `bytes` from every rank into `recv`, in rank order, on all ranks. Host memory. Called
   * by all ranks in the same order, by the thread that is in a Tutti call. Returns 0; anything else
   * fails the communicator. It should end with an error when a peer is gone: nobody else bounds it.
   */
  int (*allgather)(void* context, const void* send, void* recv, size_t bytes);
} tutti_bootstrap_t;

typedef enum tutti_memory TUTTI_ANY_NUMBER {
  TUTTI_MEMORY_ANY = 0, /**< Ranks agree on what they use, now and then. */
  TUTTI_MEMORY_HOST = 1,
  TUTTI_MEMORY_DEVICE = 2
} tutti_memory_t;

/** Equal on all ranks: what cannot be read, a plan or a memory that differs fails tutti_comm_create
 * on all of them. All zeros but `size` is the default. */
typedef struct tutti_options {
  size_t size;           /**< sizeof(tutti_options_t) of the caller. */
  const char* plan;      /**< A plan list that goes before every rule, as in TUTTI_ALLREDUCE. */
  tutti_memory_t memory; /**< What buffers of calls that are waited for mostly are in, no more. */
  /** Nonzero: calls of other communicators run at the same time on this GPU; launches stay small,
   * on all ranks if one says so. */
  int concurrent;
  /** Most that a call waits for another rank, s; 0: TUTTI_TIMEOUT. Of this rank alone. */
  double timeout_s;
} tutti_options_t;

/**
 * `stream` of a call that returns when its result can be read. Buffers may be in any memory. What
 * fills or still uses them on streams must be complete before the call, as with MPI: nothing is
 * waited for but the communicator's own calls (TUTTI_SYNC_DEVICE=1 waits for the GPU).
 */
#define TUTTI_BLOCKING ((void*)(intptr_t)-2)
/** `send` (scatter: `recv`, at the root) that lies in the other buffer, as with MPI_IN_PLACE. */
#define TUTTI_IN_PLACE ((void*)(intptr_t)-1)

/**
 * Makes a communicator; all ranks together. `options` may be NULL. On failure `*comm` is NULL and
 * tutti_error_string(NULL) tells this thread why.
 */
TUTTI_API tutti_status_t tutti_comm_create(const tutti_bootstrap_t* bootstrap,
                                           const tutti_options_t* options, tutti_comm_t** comm);
/**
 * Waits for this rank's calls on streams and frees the communicator, which no rank may use after.
 * NULL is allowed. Ranks may destroy communicators in any order. NCCL and RCCL keep their part of
 * one until all ranks of the node have destroyed it and no graph holds its calls, so destroy graphs
 * before: that is waited for 2 s, then a warning says so and a thread of the library's goes on.
 */
TUTTI_API tutti_status_t tutti_comm_destroy(tutti_comm_t* comm);
/**
 * Ends this rank's calls, from any thread, also while another is in one: that call returns with an
 * error within seconds, and so does every later one. Peers that wait for this rank hear of it from
 * that call, else from its next call or the end of the communicator. A call that is setting
 * something up ends when its bootstrap or its library does. The communicator is still to be
 * destroyed, after the call has returned and this has.
 */
TUTTI_API tutti_status_t tutti_comm_abort(tutti_comm_t* comm);
/** What broke the communicator, also a call on a stream; TUTTI_OK while nothing has. Never waits.
 */
TUTTI_API tutti_status_t tutti_comm_status(tutti_comm_t* comm);
/**
 * Waits until all calls that this rank has put on streams are over; then as tutti_comm_status. One
 * that a failure ends is not waited for: synchronise its stream before its buffers are freed.
 */
TUTTI_API tutti_status_t tutti_comm_wait(tutti_comm_t* comm);
/*
 * A call beside the caller's own work: tutti_comm_order(comm, work, other), the call on `other`,
 * its number by tutti_comm_calls(comm), and tutti_comm_wait_on(comm, number, work) where the result
 * is needed. All four return at once, but for the call and tutti_comm_mark() where calls go through
 * host memory (docs/c-api.md): these return when they are done. Streams are as a collective takes
 * them; one that is being captured is TUTTI_ERROR_UNSUPPORTED, one that is not of this rank's GPU
 * an invalid argument. Calls that are captured in a graph have no number.
 */
/** What is queued on `later` from now on begins after all that `earlier` has now. */
TUTTI_API tutti_status_t tutti_comm_order(tutti_comm_t* comm, void* earlier, void* later);
/** The number of this rank's last call on a stream: 1 is that of the first, 0: there was none. A
 * call that moves nothing has none, one that NCCL carries in part may take two. */
TUTTI_API uint64_t tutti_comm_calls(tutti_comm_t* comm);
/** Gives what `stream` has now a number, as a call's: of copies behind a call, say. Before the
 * first call on a stream it does nothing. */
TUTTI_API tutti_status_t tutti_comm_mark(tutti_comm_t* comm, void* stream);
/**
 * What is queued on `stream` from now on begins when call `number` and those before it are over.
 * From any thread: tutti_error_string(NULL) has the words. After a failure of the communicator it
 * returns that; a number that no call has had yet is an invalid argument.
 */
TUTTI_API tutti_status_t tutti_comm_wait_on(tutti_comm_t* comm, uint64_t number, void* stream);
/** Whether call `number` and those before it are over: `*are_over` is 1, else 0. Never waits.
 * Threads and errors as tutti_comm_wait_on(). */
TUTTI_API tutti_status_t tutti_comm_test(tutti_comm_t* comm, uint64_t number, int* are_over);
/**
 * Place, cause and remedy of the last failure of this communicator; of NULL, of this thread's last
 * call without one. "" when there was none. Valid until the next call with the same `comm`.
 */
TUTTI_API const char* tutti_error_string(tutti_comm_t* comm);
/**
 * The plan that a call would get on this communicator, why, and what was refused. `query` is JSON:
 * {"collective": "allreduce", "bytes": 65536 | null, "type": "float32", "op": "sum", "memory":
 *  "host" | "device", "order": "blocking" | "stream" | "captured"}
 * The answer is that of tutti_explain_json ("plan" is null when nothing carries the call) and
 * "last_plan", that of the last call. Local: what no call has needed yet counts as usable.
 */
TUTTI_API char* tutti_comm_plan_json(tutti_comm_t* comm, const char* query);

/*
 * Collectives, as MPI defines them. Counts and displacements are elements; counts that all ranks
 * must know are equal on all of them. Buffers that MPI ignores on a rank may be NULL, as may those
 * of nothing.
 *
 * `stream`: TUTTI_BLOCKING, or the stream (cudaStream_t, hipStream_t; NULL: the default stream) of
 * this rank's GPU that the call takes its turn on. Then the call returns at once (when done, if it
 * goes through host memory: docs/c-api.md), buffers are memory of that GPU, and the result is there
 * for what is queued later on the stream. All ranks must do the same: wait or not, record the call
 * in a graph or not. Calls of one communicator run in the order in which they were made, whatever
 * their streams.
 *
 * Not between the caller's own ncclGroupStart and ncclGroupEnd: NCCL would put off what is NCCL's
 * of the call until the group ends, and the call would return before it has begun.
 *
 * After an error other than TUTTI_ERROR_INVALID_ARGUMENT, _UNSUPPORTED, _UNAVAILABLE and _FALLBACK
 * the communicator refuses all calls with that error.
 */
TUTTI_API tutti_status_t tutti_allreduce(tutti_comm_t* comm, const void* send, void* recv,
                                         int64_t count, tutti_type_t type, tutti_op_t op,
                                         void* stream);
TUTTI_API tutti_status_t tutti_reduce(tutti_comm_t* comm, const void* send, void* recv,
                                      int64_t count, tutti_type_t type, tutti_op_t op, int root,
                                      void* stream);
TUTTI_API tutti_status_t tutti_bcast(tutti_comm_t* comm, void* buffer, int64_t count,
                                     tutti_type_t type, int root, void* stream);
/** `count`: of each rank. In place: the own block lies in `recv`. */
TUTTI_API tutti_status_t tutti_allgather(tutti_comm_t* comm, const void* send, void* recv,
                                         int64_t count, tutti_type_t type, void* stream);
/** `recv_displs` NULL here and below: block after block. */
TUTTI_API tutti_status_t tutti_allgatherv(tutti_comm_t* comm, const void* send, int64_t send_count,
                                          void* recv, const int64_t* recv_counts,
                                          const int64_t* recv_displs, tutti_type_t type,
                                          void* stream);
/** In place: the input is in `recv`, the result at its beginning. */
TUTTI_API tutti_status_t tutti_reduce_scatter(tutti_comm_t* comm, const void* send, void* recv,
                                              const int64_t* recv_counts, tutti_type_t type,
                                              tutti_op_t op, void* stream);
/** `count`: of the result. */
TUTTI_API tutti_status_t tutti_reduce_scatter_block(tutti_comm_t* comm, const void* send,
                                                    void* recv, int64_t count, tutti_type_t type,
                                                    tutti_op_t op, void* stream);
/** `count`: to each rank. */
TUTTI_API tutti_status_t tutti_alltoall(tutti_comm_t* comm, const void* send, void* recv,
                                        int64_t count, tutti_type_t type, void* stream);
/** In place: `send_counts` and `send_displs` are ignored. */
TUTTI_API tutti_status_t tutti_alltoallv(tutti_comm_t* comm, const void* send,
                                         const int64_t* send_counts, const int64_t* send_displs,
                                         void* recv, const int64_t* recv_counts,
                                         const int64_t* recv_displs, tutti_type_t type,
                                         void* stream);
TUTTI_API tutti_status_t tutti_gather(tutti_comm_t* comm, const void* send, void* recv,
                                      int64_t count, tutti_type_t type, int root, void* stream);
TUTTI_API tutti_status_t tutti_gatherv(tutti_comm_t* comm, const void* send, int64_t send_count,
                                       void* recv, const int64_t* recv_counts,
                                       const int64_t* recv_displs, tutti_type_t type, int root,
                                       void* stream);
TUTTI_API tutti_status_t tutti_scatter(tutti_comm_t* comm, const void* send, void* recv,
                                       int64_t count, tutti_type_t type, int root, void* stream);
TUTTI_API tutti_status_t tutti_scatterv(tutti_comm_t* comm, const void* send,
                                        const int64_t* send_counts, const int64_t* send_displs,
                                        void* recv, int64_t recv_count, tutti_type_t type, int root,
                                        void* stream);
/** On a stream: what is queued later on it, on any rank, begins after all ranks' streams came here.
 */
TUTTI_API tutti_status_t tutti_barrier(tutti_comm_t* comm, void* stream);

/* ---- Questions --------------------------------------------------------------------------------
 */

/** Version of the library, for example "0.1.0". Static; do not free. */
TUTTI_API const char* tutti_version(void);
/** TUTTI_ABI_VERSION the library was built with. */
TUTTI_API int tutti_abi_version(void);
/** Frees a document. NULL is allowed. */
TUTTI_API void tutti_free(char* document);

/** Every knob: [{"name","type","unit","range","default","value","origin","effect","since"}]. */
TUTTI_API char* tutti_config_json(void);
/** Complaints about TUTTI_* variables: [{"error": bool, "text"}]. */
TUTTI_API char* tutti_config_problems_json(void);

/**
 * Which plan a call would get and why. `query` is JSON:
 * {"collective": "allreduce", "bytes": 65536 | null, "ranks": 8, "nodes": 2, "memory": "device",
 *  "op": "sum", "type": "float32", "ccl": true, "ccl_name": "nccl", "mpi_device_aware": false,
 *  "mpi": true, "mpi_name": "mpich" | "openmpi" | "", "oversubscribed": false,
 *  "net": true (whether the ranks reach each other over our transport),
 *  "order": "blocking" | "stream" | "captured"}
 * Uses the effective tuning table of this process's environment. Of the answer "plan" and
 * "parameters" carry the call (null: nothing does), "rule" decided (null: none, native); "refused",
 * "passed_over" (optional rules) and "plans" say why not; "fallback": something was refused, or the
 * call goes through the host ("through": "host").
 */
TUTTI_API char* tutti_explain_json(const char* query);

/** Algorithms of ours and what the simulator compares them with: [{"collective","name",
 * "summary","simulated_only"}]. */
TUTTI_API char* tutti_algorithms_json(void);
/**
 * Predicted time of a collective on a cluster (docs/simulation.md). `query` is JSON:
 * {"cluster": path, "collective": "allgather", "algorithm": "rings", "ranks": 64,
 *  "bytes": [2097152, ...], "element_bytes": 1, "radix": 0, "segments": 0, "steps": false,
 *  "network": "fluid" | "packet", "topology": "fat-tree:64" (packet; else of the ranks),
 *  "paths": 64, "spray": "mixed", "seed": 1 (packet)}
 * `bytes`: the vector, or the ranks' blocks together. {"cluster", "nodes", "refusal": why the
 * algorithm cannot | null, "rows": [{"bytes","block_bytes","time_ps","time_ps_min",
 * "program_steps","links":[...],"steps":[...] when asked for}]}
 */
TUTTI_API char* tutti_simulate_json(const char* query);
/**
 * One run of traffic on a simulated packet network (docs/network-simulation.md). `query` is JSON,
 * each key may be left out:
 * {"topology": "fat-tree:1024", "traffic": "permutation" | "incast:15" | "alltoall" |
 *  "allreduce" | "incast+permutation:15", "goal": path of a GOAL trace in place of traffic,
 *  "bytes", "messages", "in_flight", "traffic_seed", "protocol": "transport" | "go-back-n",
 * "congestion": "nscc", "spray": "mixed", "paths", "window_groups", "ack": "dense" | "sparse",
 * "window_bytes_max", "rate_control": false, "mbit_per_s", "latency_ns", "chunk_bytes",
 * "mtu_bytes", "header_bytes", "forwarding": "chunk" | "mtu", "trim": true, "lossless": false,
 * "ecn_on_last_hop": true, "queue_bytes", "ecn_low_bytes", "ecn_high_bytes", "loss_ppb",
 * "burst_loss_ppb", "burst_begins_ppb", "burst_ends_ppb", "seed", "threads", "until_ps", "flows":
 * true}
 * {"hosts", "links", "base_rtt_ps", "bdp_bytes", "queue_bytes", "ecn_low_bytes", "ecn_high_bytes",
 *  "ideal_ps" | null, "floor_ps" | null, "floor_reason": null | why there is none, "end_ps",
 *  "unfinished", "failed", "packets_sent", "retransmissions", "spurious", "timeouts", "acks_sent",
 *  "events", "trace_hash", "tiers": [{"from", "to", ...}],
 *  "flows": [[src, dst, bytes, group, start_ps, end_ps | null]]}
 * Errors besides a query's: a run in which nothing moves any more, with what waits.
 */
TUTTI_API char* tutti_simulate_network_json(const char* query);

/**
 * Proves an algorithm on a layout: generates all ranks' programs and carries them out on symbols.
 * `query` is JSON: {"collective": "allgather", "algorithm": "rings", "nodes": [5, 4, 3] (ranks of
 * each), "sockets": 1, "count": 16 (elements of a block), "root": 0, "in_place": false, "radix": 0,
 * "segments": 0, "rank": 3 (whose steps to list; may be left out)}
 * {"ranks", "nodes", "refusal": why it cannot} or {"ranks", "nodes", "ok", "errors": [...],
 * "rounds", "sent_max", "messages_max", "scratch_max", "steps_max", "network_out": [by node],
 * "formula": {"rounds","sent_max","exact"} on equal nodes, "steps": [{"text","after":[...]}]}.
 * Counts are elements.
 */
TUTTI_API char* tutti_schedule_check_json(const char* query);

/** Checks a tuning file: {"ok": true, "rules": N} or {"error": "file:line: key: ..."}. */
TUTTI_API char* tutti_tuning_check_json(const char* path);
/** Converts MPICH's selection JSON: {"tuning": {...}, "not_carried": ["..."]}. */
TUTTI_API char* tutti_tuning_import_json(const char* path);
/** A JSON schema of tuning files (draft 2020-12), for editors. */
TUTTI_API char* tutti_tuning_schema_json(void);
/** The effective table, in order: {"file": path | null, "rules": [...]}. */
TUTTI_API char* tutti_tuning_show_json(void);

/**
 * This machine as Tutti sees it: {"device": {"name","library","reason","devices":[{"ordinal",
 * "name","identity"}]}, "ccl": {"name","path","version","found_by"} | {"reason"}}.
 * Initialises the GPU driver (no context is created).
 */
TUTTI_API char* tutti_machine_json(void);

/**
 * Nodes: sockets, GPUs, NICs and what joins them. `file`: a topology file; else `root`: a recorded
 * machine (a directory that holds sys/, or a listing); else TUTTI_TOPOLOGY_FILE; else this machine.
 * NULL and "" are none. {"schema", "nodes": [...], "derived": [{"devices", "matrix": [["X",
 * "PIX"]], "nics_of_gpus": [[0]], "rail_nics": [0], "rails": N | null}], "unavailable": ["..."]};
 * without the last two it is a topology file (docs/topology.md).
 */
TUTTI_API char* tutti_topology_json(const char* file, const char* root);

/**
 * Counters of this process since start: {"communicators":N, "plans": {"mpi-gamma": calls, ...},
 * "fallbacks": [{"text","count"}], "staged_bytes":N, "agreements":N}.
 */
TUTTI_API char* tutti_counters_json(void);

#ifdef __cplusplus
}
#endif
#endif /* TUTTI_TUTTI_H_ */
