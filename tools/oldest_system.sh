#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Shows that the wheel works where it promises to: in a bare Debian 11 (glibc 2.31, Python 3.9)
# without a compiler. Installs it there, then runs `tutti info`, `tutti bench` on MPICH and a program
# under `tutti run`. As root; needs mmdebstrap and a network. The system is kept in the cache.
#
#   tools/oldest_system.sh WHEEL [COMMAND]   COMMAND: run this in place of the checks
# The shells inside expand the quoted scripts.
# shellcheck disable=SC2016
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "$0: needs root, for mount namespaces" >&2; exit 2; }
wheel=$(realpath "${1:?a wheel, as make wheel puts it into dist/}")
command=${2:-}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tutti-debian-11.tar
if [[ ! -s $cache ]]; then
  command -v mmdebstrap >/dev/null || { echo "$0: no mmdebstrap; remedy: apt-get install mmdebstrap" >&2; exit 2; }
  mkdir -p "$(dirname "$cache")"
  mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates,python3-venv bullseye "$cache.part" \
    'deb http://deb.debian.org/debian bullseye main'
  mv "$cache.part" "$cache"
fi
checks='
  set -euo pipefail
  python3 -m venv /venv
  . /venv/bin/activate
  pip install --quiet --upgrade pip
  ! command -v cc gcc g++ cmake
  pip install /wheel/*.whl mpich==5.0.2 mpi4py
  ldd --version | head -n 1
  python --version
  tutti --version
  tutti info
  tutti config >/dev/null
  tutti sim network --help >/dev/null
  tutti bench allreduce -b 8 -e 64K -n 2 -i 20
  tutti run --strict --plan allreduce=direct -- mpirun -n 2 python /program.py
  echo "oldest system: ok"
'
program='
from array import array
from mpi4py import MPI

values = array("d", [1.0] * 4096)
MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, values)
assert set(values) == {float(MPI.COMM_WORLD.size)}
print("rank", MPI.COMM_WORLD.rank, "is right")
'
exec unshare --mount --pid --fork --propagation private bash -euo pipefail -c '
  wheel=$1 cache=$2 command=$3 program=$4 root=$(mktemp -d)
  mount -t tmpfs -o size=4G none "$root"
  tar -C "$root" --exclude="./dev/*" -xf "$cache"
  mount --rbind /dev "$root/dev"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mkdir "$root/wheel"
  cp "$wheel" "$root/wheel/"
  printf %s "$program" >"$root/program.py"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  cp -L --remove-destination /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  for file in /etc/pip.conf /root/.config/pip/pip.conf; do
    [[ ! -f $file ]] || { mkdir -p "$root$(dirname "$file")" && cp "$file" "$root$file"; }
  done
  cd "$root" && mkdir .old && pivot_root . .old && umount -l /.old && rmdir /.old && cd /
  exec env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "$command"
' oldest_system "$wheel" "$cache" "${command:-$checks}" "$program"
