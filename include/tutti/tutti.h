/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tutti's C API. Offered by libtutti.so, and by libtutti-mpi.so when it is preloaded.
 * C ABI version: TUTTI_ABI_VERSION; a new number when a function changes its meaning.
 *
 * Functions that return `char*` return a JSON document (UTF-8, NUL-terminated) that the caller
 * gives back to tutti_free; they never return NULL. A failure is {"error": "..."}.
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
 *  "op": "sum", "type": "float32", "ccl": true, "ccl_name": "nccl", "mpi_device_aware": false}
 * Uses the effective tuning table of this process's environment.
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

/**
 * Memory of the host device (TUTTI_DEVICE=host), for tests and programs on machines without a
 * GPU: the CPU may read and write it, Tutti treats it as device memory. NULL when out of memory.
 */
TUTTI_API void* tutti_host_device_alloc(size_t bytes);
TUTTI_API void tutti_host_device_free(void* pointer);

#ifdef __cplusplus
}
#endif
#endif /* TUTTI_TUTTI_H_ */
