#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Checks and measures the scattered copy on a machine with a GPU, in one go, and builds nothing:
#   tools/gpu_scatter.sh BUILD WHEELS OUT [check|measure|all]
# BUILD: a build directory made elsewhere, of which it takes tests/unit/device/device_test,
# bench/micro/scatter_copy and lib/. WHEELS: a directory with the wheels of the Python packages that
# the machine lacks (msgspec), "-" where it has them all. OUT gets scatter-test.txt, scatter-copy.txt
# and scatter-copy.json.
# SCATTER_ARGS: more arguments for bench/scatter_copy.py (--sweep).
# BENCH_COMMIT: the commit that BUILD is of, for the results of a copy without its history.
set -uo pipefail
case ${4:-all} in
  check | measure | all) ;;
  *)
    echo "$0: '$4' is no part; remedy: check, measure or all" >&2
    exit 2
    ;;
esac
build=$(realpath "$1") wheels=$2 out=$(realpath -m "$3") what=${4:-all}
[[ $wheels == - ]] || wheels=$(realpath "$wheels")
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
mkdir -p "$out"
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
status=0

if [[ $what != measure ]]; then
  TUTTI_TEST_REAL_CUDA=1 timeout 200 "$build/tests/unit/device/device_test" \
    --gtest_filter='Scatter*:device/Scatter.*/cuda:device/Scatter.*/host' >"$out/scatter-test.txt" 2>&1
  code=$?
  echo "scattered copy: rc $code $(grep -E 'PASSED|FAILED|SKIPPED' "$out/scatter-test.txt" | head -n 3 | tr '\n' ' ')"
  ((code == 0)) || status=1
  if grep -q '  SKIPPED' "$out/scatter-test.txt" || ! grep -q '\] device/Scatter.*/cuda' "$out/scatter-test.txt"; then
    echo "scattered copy: cases of the GPU did not run"
    status=1
  fi
fi
if [[ $what != check ]]; then
  packages=${TMPDIR:-/tmp}/tutti-gpu-scatter-packages
  python=$(command -v python3)
  if [[ $wheels != - && ! -d $packages ]]; then
    mapfile -t found < <(find "$wheels" -type f -name 'msgspec-*.whl')
    if ((${#found[@]})); then
      "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
        --target "$packages" "${found[@]}" || exit 1
    fi
  fi
  read -ra arguments <<<"${SCATTER_ARGS:-}"
  PYTHONPATH=$PWD/python:$packages timeout 500 "$python" bench/scatter_copy.py -o "$out/scatter-copy.json" \
    --program "$build/bench/micro/scatter_copy" ${arguments[@]+"${arguments[@]}"} \
    >"$out/scatter-copy.txt" 2>&1 || status=1
  cat "$out/scatter-copy.txt"
fi
exit $status
