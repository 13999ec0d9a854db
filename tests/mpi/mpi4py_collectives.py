# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""An ordinary mpi4py program: the buffer forms of every collective, checked bit for bit.

    mpirun -n 3 python mpi4py_collectives.py [--memory host|hostdevice|mixed]

hostdevice: buffers come from libtutti-host-device.so, which is preloaded, too. mixed: each rank
draws the kind of each buffer anew for each call.
The last line is "collectives: N checks, M failed".
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys

import numpy as np
from mpi4py import MPI

DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16"]
COUNTS = [0, 1, 7, 1009]


class Checker:
    """Makes buffers of the wanted kind of memory and counts what was right."""

    def __init__(self, memory: str, comm: MPI.Comm) -> None:
        self.comm = comm
        self.rank = comm.rank
        self.ranks = comm.size
        self.memory = memory
        self.checks = 0
        self.failures = 0
        self.random = random.Random(1000 + self.rank)
        self.held: list[int] = []
        self.library = None
        if memory != "host":
            self.library = ctypes.CDLL(None)
            self.library.tutti_host_device_alloc.restype = ctypes.c_void_p
            self.library.tutti_host_device_alloc.argtypes = [ctypes.c_size_t]
            self.library.tutti_host_device_free.argtypes = [ctypes.c_void_p]

    def empty(self, count: int, dtype: np.dtype, value: int = 99) -> np.ndarray:
        """An array filled with `value`, on the device when the kind of memory says so."""
        on_device = self.memory == "hostdevice"
        if self.memory == "mixed":
            on_device = self.random.random() < 0.5
        if on_device:
            assert self.library is not None
            size = max(count * dtype.itemsize, 1)
            address = self.library.tutti_host_device_alloc(size)
            self.held.append(address)
            memory = (ctypes.c_char * size).from_address(address)
            array = np.frombuffer(memory, dtype=dtype, count=count)
        else:
            array = np.empty(count, dtype=dtype)
        array[...] = value
        return array

    def put(self, values: np.ndarray) -> np.ndarray:
        """A copy of `values`."""
        array = self.empty(values.size, values.dtype)
        array[...] = values
        return array

    def same(self, what: str, got: np.ndarray, expected: np.ndarray) -> None:
        """Bit for bit."""
        self.checks += 1
        if got.tobytes() == expected.astype(got.dtype).tobytes():
            return
        self.failures += 1
        if self.failures <= 8:
            wrong = np.flatnonzero(got != expected)
            index = int(wrong[0]) if wrong.size else -1
            print(
                f"FAILED {what}, {got.dtype}, count {got.size}, rank {self.rank} of {self.ranks}: "
                f"index {index}: expected {expected[index]}, got {got[index]}",
                file=sys.stderr,
                flush=True,
            )

    def release(self) -> None:
        """Gives back the device memory of one round; its arrays must no longer be used."""
        for address in self.held:
            assert self.library is not None
            self.library.tutti_host_device_free(address)
        self.held.clear()


def values(rank: int, count: int, dtype: np.dtype, salt: int = 0) -> np.ndarray:
    """Small integers: sums over the ranks are exact in every type."""
    return ((np.arange(count) * 3 + rank * 5 + salt) % 11).astype(dtype)


def check_movement(c: Checker, count: int, dtype: np.dtype, root: int) -> None:
    comm, rank, ranks = c.comm, c.rank, c.ranks
    everyone = np.concatenate([values(r, count, dtype) for r in range(ranks)])

    buffer = c.put(values(root, count, dtype)) if rank == root else c.empty(count, dtype)
    comm.Bcast(buffer, root=root)
    c.same("Bcast", buffer, values(root, count, dtype))

    mine = c.put(values(rank, count, dtype))
    gathered = c.empty(count * ranks, dtype) if rank == root else None
    comm.Gather(mine, gathered, root=root)
    if gathered is not None:
        c.same("Gather", gathered, everyone)
        gathered[...] = 99
        gathered[rank * count : (rank + 1) * count] = mine
        comm.Gather(MPI.IN_PLACE, gathered, root=root)
        c.same("Gather in place", gathered, everyone)
    else:
        comm.Gather(mine, None, root=root)

    part = c.empty(count, dtype)
    comm.Scatter(c.put(everyone) if rank == root else None, part, root=root)
    c.same("Scatter", part, values(rank, count, dtype))

    everything = c.empty(count * ranks, dtype)
    comm.Allgather(mine, everything)
    c.same("Allgather", everything, everyone)
    everything[...] = 99
    everything[rank * count : (rank + 1) * count] = mine
    comm.Allgather(MPI.IN_PLACE, everything)
    c.same("Allgather in place", everything, everyone)

    def to_each(source: int) -> np.ndarray:
        return np.concatenate([values(source, count, dtype, salt=d) for d in range(ranks)])

    from_each = np.concatenate([values(s, count, dtype, salt=rank) for s in range(ranks)])
    out = c.empty(count * ranks, dtype)
    comm.Alltoall(c.put(to_each(rank)), out)
    c.same("Alltoall", out, from_each)
    in_place = c.put(to_each(rank))
    comm.Alltoall(MPI.IN_PLACE, in_place)
    c.same("Alltoall in place", in_place, from_each)


def check_vectors(c: Checker, count: int, dtype: np.dtype, root: int) -> None:
    """v- and w-forms with holes between the blocks, which must stay as they were."""
    comm, rank, ranks = c.comm, c.rank, c.ranks
    counts = [(count + r) if r % 2 == 0 else 0 for r in range(ranks)]
    places = [sum(counts[:r]) + 2 * r + 1 for r in range(ranks)]
    room = sum(counts) + 2 * ranks + 1
    expected = np.full(room, 99).astype(dtype)
    for r in range(ranks):
        expected[places[r] : places[r] + counts[r]] = values(r, counts[r], dtype)
    mine = c.put(values(rank, counts[rank], dtype))

    out = c.empty(room, dtype)
    comm.Allgatherv(mine, [out, (counts, places)])
    c.same("Allgatherv", out, expected)

    out = c.empty(room, dtype) if rank == root else None
    comm.Gatherv(mine, [out, (counts, places)] if out is not None else None, root=root)
    if out is not None:
        c.same("Gatherv", out, expected)

    part = c.empty(counts[rank], dtype)
    source = [c.put(expected), (counts, places)] if rank == root else None
    comm.Scatterv(source, part, root=root)
    c.same("Scatterv", part, values(rank, counts[rank], dtype))

    # From s to d go counts[(s + d) % ranks] elements.
    out_counts = [counts[(rank + r) % ranks] for r in range(ranks)]
    out_places = [sum(out_counts[:r]) + 2 * r + 1 for r in range(ranks)]
    size = sum(out_counts) + 2 * ranks + 1
    send = np.full(size, 77).astype(dtype)
    wanted = np.full(size, 99).astype(dtype)
    for r in range(ranks):
        place = slice(out_places[r], out_places[r] + out_counts[r])
        send[place] = values(rank, out_counts[r], dtype, salt=r)
        wanted[place] = values(r, out_counts[r], dtype, salt=rank)
    result = c.empty(size, dtype)
    comm.Alltoallv([c.put(send), (out_counts, out_places)], [result, (out_counts, out_places)])
    c.same("Alltoallv", result, wanted)

    if ranks == 1:
        return  # Open MPI 5.0 multiplies alltoallw's displacements by the extent there.
    datatype = MPI._typedict[dtype.char]
    types = [datatype] * ranks
    bytes_at = [place * dtype.itemsize for place in out_places]
    result = c.empty(size, dtype)
    comm.Alltoallw(
        [c.put(send), (out_counts, bytes_at), types], [result, (out_counts, bytes_at), types]
    )
    c.same("Alltoallw", result, wanted)


def check_reductions(c: Checker, count: int, dtype: np.dtype, root: int) -> None:
    comm, rank, ranks = c.comm, c.rank, c.ranks
    operations = [("SUM", MPI.SUM, np.add), ("PROD", MPI.PROD, np.multiply)]
    if dtype.kind != "c":
        operations += [("MIN", MPI.MIN, np.minimum), ("MAX", MPI.MAX, np.maximum)]
    if dtype.kind in "iu":
        operations += [("BXOR", MPI.BXOR, np.bitwise_xor), ("BOR", MPI.BOR, np.bitwise_or)]
    for name, operation, function in operations:
        # A product's factors: 2 on one rank, 1 elsewhere, so that eight bits hold it.
        def of(r: int, n: int, is_product: bool = name == "PROD") -> np.ndarray:
            if is_product:
                return np.where((np.arange(n) + r) % max(ranks, 2) == 0, 2, 1).astype(dtype)
            return values(r, n, dtype)

        def total(first: int, last: int, n: int, f=function, of=of) -> np.ndarray:
            result = of(first, n)
            for r in range(first + 1, last + 1):
                result = f(result, of(r, n)).astype(dtype)
            return result

        mine = c.put(of(rank, count))
        out = c.empty(count, dtype)
        comm.Allreduce(mine, out, op=operation)
        c.same(f"Allreduce {name}", out, total(0, ranks - 1, count))
        again = c.put(of(rank, count))
        comm.Allreduce(MPI.IN_PLACE, again, op=operation)
        c.same(f"Allreduce {name} in place", again, total(0, ranks - 1, count))

        out = c.empty(count, dtype) if rank == root else None
        comm.Reduce(mine, out, op=operation, root=root)
        if out is not None:
            c.same(f"Reduce {name}", out, total(0, ranks - 1, count))

        out = c.empty(count, dtype)
        comm.Scan(mine, out, op=operation)
        c.same(f"Scan {name}", out, total(0, rank, count))
        out = c.empty(count, dtype)
        comm.Exscan(mine, out, op=operation)
        if rank > 0:
            c.same(f"Exscan {name}", out, total(0, rank - 1, count))

        whole = total(0, ranks - 1, count * ranks)
        out = c.empty(count, dtype)
        comm.Reduce_scatter_block(c.put(of(rank, count * ranks)), out, op=operation)
        c.same(f"Reduce_scatter_block {name}", out, whole[rank * count : (rank + 1) * count])

        counts = [count + r for r in range(ranks)]
        whole = total(0, ranks - 1, sum(counts))
        start = sum(counts[:rank])
        out = c.empty(counts[rank], dtype)
        comm.Reduce_scatter(c.put(of(rank, sum(counts))), out, recvcounts=counts, op=operation)
        c.same(f"Reduce_scatter {name}", out, whole[start : start + counts[rank]])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", choices=["host", "hostdevice", "mixed"], default="host")
    memory = parser.parse_args().memory
    world = MPI.COMM_WORLD
    checks = failures = 0
    reverse = world.Split(0, -world.rank)
    for comm in (world, reverse, MPI.COMM_SELF):
        checker = Checker(memory, comm)
        for turn, name in enumerate(DTYPES):
            for count in COUNTS if comm is world else COUNTS[2:3]:
                dtype = np.dtype(name)
                root = (turn + count) % comm.size
                check_movement(checker, count, dtype, root)
                check_vectors(checker, count, dtype, root)
                check_reductions(checker, count, dtype, root)
                checker.release()
        comm.Barrier()
        checks += checker.checks
        failures += checker.failures
    reverse.Free()
    total = world.allreduce(np.array([checks, failures]))
    if world.rank == 0:
        print(f"collectives: {total[0]} checks, {total[1]} failed", flush=True)
    return int(total[1] != 0 or failures != 0)


if __name__ == "__main__":
    sys.exit(main())
