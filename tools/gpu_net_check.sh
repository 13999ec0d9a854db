#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Checks and measures the network plugin under a real NCCL on a machine with one or more GPUs and
# no network, as root, in one go:
#   tools/gpu_net_check.sh BUILD WHEELS OUT [correctness|measure|trouble|ddp|all]
# BUILD: a build directory (lib/, bench/net/), made elsewhere or here. WHEELS: a directory with the
# wheels of the Python packages that the machine lacks (pyroute2, msgspec; of Tutti's others those
# that are missing too). OUT gets a log, the results and all of NCCL's logs in one archive.
# CHECK_ARGS, MEASURE_ARGS, TROUBLE_ARGS and DDP_ARGS: more arguments for the parts; PART_LIMIT_S:
# the longest that one part may take.
# BENCH_COMMIT: the commit that BUILD is of, for the results of a copy without its history.
set -uo pipefail
case ${4:-all} in
  correctness | measure | trouble | ddp | all) ;;
  *)
    echo "$0: '$4' is no part; remedy: correctness, measure, trouble, ddp or all" >&2
    exit 2
    ;;
esac
build=$(realpath "$1") wheels=$(realpath "$2") out=$(realpath -m "$3") what=${4:-all}
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
mkdir -p "$out" "${TMPDIR:-/tmp}/tutti-gpu-net-logs"
limit=${PART_LIMIT_S:-540}
# A minute of it is for what begins and ends; the rest is shared out among the runs.
if [[ ! $limit =~ ^[0-9]+$ ]] || ((10#$limit <= 60)); then
  echo "$0: PART_LIMIT_S=$limit leaves no time for a run; remedy: a number of seconds above 60" >&2
  exit 2
fi

# NVLink multicast stays off: all published results are without it.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
packages=${TMPDIR:-/tmp}/tutti-gpu-net-packages
logs=${TMPDIR:-/tmp}/tutti-gpu-net-logs
python=$(command -v python3)
if [[ ! -d $packages ]]; then
  mapfile -t found < <(find "$wheels" -type f -name '*.whl')
  if ((${#found[@]})); then
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
      --target "$packages" "${found[@]}" || exit 1
  fi
fi
export PYTHONPATH=$PWD/python:$packages PYTHONUNBUFFERED=1 TUTTI_LIBRARY_DIR=$build/lib
if ! "$python" -c 'import click, matplotlib, msgspec, pyroute2, rich'; then
  echo "a Python package is missing; remedy: its wheel in $wheels"
  exit 1
fi
status=0

part() { # part NAME LINES ARGUMENTS...: one part of the benchmark, its last lines
  local name=$1 lines=$2 begin=$SECONDS code
  shift 2
  echo "== $name" >>"$out/log.txt"
  timeout --kill-after 30 "$limit" "$python" bench/nccl_network.py "$@" \
    --build "$build" --logs "$logs/$name" --budget $((limit - 60)) 2>&1 |
    tee -a "$out/log.txt" >"$logs/$name.log"
  code=${PIPESTATUS[0]}
  echo "== $name: status $code, $((SECONDS - begin)) s"
  tail -n "$lines" "$logs/$name.log" | cut -c 1-300
  tar -C "$logs" -czf "$out/logs.tar.gz" .
  if ((code)); then
    status=1
  fi
}

if [[ $what == correctness || $what == all ]]; then
  read -ra more <<<"${CHECK_ARGS:-}"
  part check 30 check -o "$out/nccl-check.json" ${more[@]+"${more[@]}"}
fi
if [[ $what == measure || $what == all ]]; then
  read -ra more <<<"${MEASURE_ARGS:-}"
  part measure 70 measure -o "$out/nccl-network.json" ${more[@]+"${more[@]}"}
fi
if [[ $what == ddp || $what == all ]]; then
  read -ra more <<<"${DDP_ARGS:-}"
  part ddp 20 ddp --repeats 2 -o "$out/nccl-ddp.json" ${more[@]+"${more[@]}"}
fi
if [[ $what == trouble || $what == all ]]; then
  read -ra more <<<"${TROUBLE_ARGS:-}"
  part trouble 30 trouble -o "$out/nccl-trouble.json" ${more[@]+"${more[@]}"}
fi
exit $status
