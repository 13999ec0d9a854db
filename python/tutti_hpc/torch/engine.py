# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""A process group's part of Tutti: communicators, the order of calls, the fall-back.

Calls on host tensors block in the C API, which is called without the GIL. One that is waited for
runs in the calling thread when nothing is queued; the others run in the group's thread, first in
first out. Calls on CUDA tensors go to a second communicator on a stream.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import queue
import threading
import time
import weakref
from collections import Counter, deque
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from tutti_hpc.torch import bindings, store_bootstrap
from tutti_hpc.torch.flight_recorder import recorder
from tutti_hpc.torch.store_bootstrap import StoreBootstrap
from tutti_hpc.torch.works import (
    CallStream,
    FinishedWork,
    OrderedWork,
    QueuedWork,
    StreamWork,
)

profiler_is_on = torch.autograd._profiler_enabled
current_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # None: no CUDA.
log = logging.getLogger("tutti_hpc.torch")
# How long the end of the process waits for calls that nobody has waited for, s.
EXIT_WAIT_S = 5.0
# Whether some plan carries calls on host tensors: asked for this call.
PROBE = {
    "collective": "allreduce",
    "bytes": 1024,
    "type": "float32",
    "op": "sum",
    "memory": "host",
    "order": "blocking",
}
# Plans over Tutti's transport, which connects the hosts at a first call.
NET = "net:"
# (communicator, stream) -> status of the C API.
Call = Callable[[int, Any], int]
fallbacks: Counter[str] = Counter()
# Calls on CUDA tensors whose tensors are kept for works that nobody has waited for: at most, and as
# many without a look whether they are over, which every fourth call takes.
KEPT_MAX = 32
KEPT_UNASKED = 4
CALLS_PER_LOOK = 4


class PlainCall:
    """One function of the C API on tensors as they are: nothing of torch's runs in the call.

    It has their addresses alone: who makes the call later keeps the tensors.
    """

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., int], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments

    def __call__(self, comm: int, stream: Any) -> int:
        """The status of the C API."""
        return self.function(comm, *self.arguments, stream)


def is_strict() -> bool:
    """TUTTI_STRICT as the library reads it."""
    return os.environ.get("TUTTI_STRICT", "0").lower() in ("1", "yes", "on", "true", "y")


class Engine:
    """Of one process group. `timeout` bounds each call and each wait."""

    def __init__(self, store: Any, rank: int, ranks: int, timeout: timedelta, name: str) -> None:
        self.rank = rank
        self.ranks = ranks
        self.timeout = timeout
        self.name = name
        # Torch's functions take None for the work of a call on a GPU that is not async.
        self.takes_none = False
        self.functions = bindings.functions()
        self.lock = threading.Lock()  # Around calls on the host communicator.
        self._handle_lock = threading.Lock()  # Around their addresses.
        self._device_lock = threading.Lock()  # Around those on the device communicator.
        self.host = 0  # Communicators; 0: not made yet, or gone.
        self.device = 0
        self.pending = 0  # Calls queued or running in the group's thread.
        self.sequence = 0
        self.recorded_as: Optional[tuple[str, str]] = None  # Name and description in dumps.
        self.is_dumped = False
        self.fallbacks: Counter[str] = Counter()
        self._store = store
        self._bootstraps: dict[str, StoreBootstrap] = {}
        self.host_refusal = ""  # Why no plan carries calls on host tensors; "": one does.
        self._broken: Optional[BaseException] = None
        self._device_broken: Optional[BaseException] = None
        self._queue: queue.SimpleQueue[Optional[QueuedWork]] = queue.SimpleQueue()
        self._pending_lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._streams: dict[int, CallStream] = {}
        # By number, of works that are out: tensors that the allocator must keep.
        self._kept: deque[tuple[int, list[torch.Tensor], CallStream]] = deque()
        self._calls_before_look = 0
        self._gloo: Any = None
        self._nccl: Any = None
        self._process = os.getpid()
        self._barriers = 0  # Monitored ones.
        # Here, where all ranks are: at a first call some may be in that of another group.
        self._make_host()
        _engines.add(self)

    # ---- Host tensors ---------------------------------------------------------------------------

    def run_host(self, what: str, call: Call) -> None:
        """Makes one call on host tensors and waits for it; by one thread at a time."""
        with self.lock:
            comm = self.host
            status = call(comm, bindings.BLOCKING)
        if status:
            self.fail(what, comm, status)

    def submit_host(
        self, what: str, call: Call, tensors: Any, is_async: bool, used: list[torch.Tensor]
    ) -> Any:
        """A call on host tensors in its turn. Not async: the work that is returned is over.

        `used`: the tensors that the call reads or writes, kept until it was made.
        """
        if profiler_is_on():
            # Torch has no events of its own for a group that is a Python class.
            with torch.profiler.record_function(f"tutti:{what}"):
                return self._submit_host(what, call, tensors, is_async, used)
        return self._submit_host(what, call, tensors, is_async, used)

    def _submit_host(
        self, what: str, call: Call, tensors: Any, is_async: bool, used: list[torch.Tensor]
    ) -> Any:
        self._refuse_if_closed()
        self.sequence += 1
        if not is_async and self.pending == 0:
            self.run_host(what, call)
            return FinishedWork(tensors)

        def run(_kept: list[torch.Tensor] = used) -> None:
            self.run_host(what, call)

        work = self.enqueue(run, what, tensors)
        if not is_async:
            work.wait()
        return work

    def enqueue(self, run: Callable[[], None], what: str, tensors: Any) -> QueuedWork:
        """`run` in the group's thread."""
        work = QueuedWork(run, tensors, self.timeout.total_seconds(), f"{what} of {self}")
        if recorder is not None:
            work.on_timeout = functools.partial(recorder.dump_once, self)
        with self._pending_lock:
            self._refuse_if_closed()
            self.pending += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_serve, args=(self._queue, weakref.ref(self)), daemon=True
                )
                self._thread.name = f"tutti-{self.name}"
                self._thread.start()
            self._queue.put(work)  # Under the lock: nothing comes behind the end of the queue.
        return work

    def _make_host(self) -> None:
        self.host = self._make_communicator("host", bindings.MEMORY_HOST)
        plan = self.functions.plan(self.host, PROBE)
        if (plan.get("plan") or "").startswith(NET):
            # Its messages show whether a network lets any through, for some pairs of ranks.
            status = self.functions.barrier(self.host, bindings.BLOCKING)
            if status:
                try:
                    self.fail("the first barrier", self.host, status)
                finally:
                    self._destroy()  # No group will.
            plan = self.functions.plan(self.host, PROBE)
        if plan.get("plan") is None:
            self.host_refusal = f"collectives on host tensors: {_first_reason(plan)}"
        log.info("%s: host tensors by %s", self, plan.get("plan") or "gloo")
        if not self.functions.is_native:
            log.info("%s: the C API is called by ctypes, which is slower", self)

    # ---- CUDA tensors ---------------------------------------------------------------------------

    def submit_device(
        self,
        what: str,
        call: Call,
        tensors: Any,
        is_async: Optional[bool],
        device: int,
        used: list[torch.Tensor],
    ) -> Any:
        """A call on the current stream, or (async) on one of ours that waits for it.

        `is_async`: None where the caller, not torch's function, waits for the work. `used`: the
        tensors that the call reads or writes, in a list of their own, so that the allocator keeps
        them.
        """
        if self._broken is not None:
            raise self._broken
        self.sequence += 1
        # Objects for streams and events cost as much as all else of a call.
        current = current_raw_stream(device)
        # In a graph calls of a group follow each other: nobody orders those of two streams there.
        if not is_async or torch.cuda.is_current_stream_capturing():
            with self._device_lock:
                comm = self.device or self._make_device()
                status = call(comm, current)
            if status:
                self.fail(what, comm, status)
            if is_async is False and self.takes_none:
                return None
            return OrderedWork(tensors, device, current)
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = CallStream(device)
        functions, own = self.functions, stream.number
        with self._device_lock:
            comm = self.device or self._make_device()
            status = functions.order(comm, current, own)
            if type(call) is PlainCall:
                status = status or call(comm, own)
            else:
                caller = stream.make_current()  # What the call copies goes there, too.
                try:
                    status = status or call(comm, own) or functions.mark(comm, own)
                except BaseException:  # A part of it may be under way.
                    stream.keep(used)
                    raise
                finally:
                    stream.restore(caller)
            number = functions.calls(comm)
            self._keep(comm, number, used, stream)
        if status:
            self.fail(what, comm, status)
        return StreamWork(self, tensors, stream, number, used, current)

    def _keep(self, comm: int, number: int, used: list[torch.Tensor], stream: CallStream) -> None:
        """Tensors of a call, until it is over or its work is waited for, which empties the list."""
        kept = self._kept
        kept.append((number, used, stream))
        while not kept[0][1] and len(kept) > 1:
            kept.popleft()
        self._calls_before_look -= 1
        if len(kept) > KEPT_UNASKED and self._calls_before_look <= 0:
            self._calls_before_look = CALLS_PER_LOOK
            while len(kept) > KEPT_UNASKED and (
                not kept[0][1] or self.functions.test(comm, kept[0][0])[1]
            ):
                kept.popleft()[1].clear()
        if len(kept) > KEPT_MAX:
            _, oldest, on = kept.popleft()
            on.keep(oldest)
            oldest.clear()

    def wait_on_stream(self, what: str, number: int, stream: int) -> None:
        """What the stream gets from now on is behind a call; raises what ended it."""
        with self._handle_lock:
            failure = self._device_broken
            if self.device:  # Else the end of the group has waited for its calls.
                status = self.functions.wait_on(self.device, number, stream)
                failure = self._error(what, None, status) if status else None
                if status and status not in bindings.HARMLESS:
                    self._device_broken = failure
        if failure is not None:
            raise failure

    def is_over(self, number: int) -> bool:
        """A call on a stream has its result, or will get none."""
        with self._handle_lock:
            if not self.device:
                return True
            status, is_over = self.functions.test(self.device, number)
        return is_over or status != 0

    def _make_device(self) -> int:
        self.device = self._make_communicator("device", bindings.MEMORY_DEVICE)
        log.info("%s: CUDA tensors by Tutti on streams", self)
        return self.device

    def device_failure(self) -> Optional[BaseException]:
        """What broke the communicator on the GPU, as far as it is known during a call."""
        if self._device_lock.acquire(blocking=False):
            try:
                with self._handle_lock:
                    if self._device_broken is None and self.device:
                        status = self.functions.status(self.device)
                        if status:
                            error = self._error("a call on a stream", self.device, status)
                            self._device_broken = error
            finally:
                self._device_lock.release()
        return self._device_broken

    # ---- Both -----------------------------------------------------------------------------------

    def _make_communicator(self, kind: str, memory: int) -> int:
        self._refuse_if_closed()
        store = c10d.PrefixStore(f"tutti-{kind}/", self._store)
        bootstrap = StoreBootstrap(store, self.rank, self.ranks, self.timeout)
        self._bootstraps[kind] = bootstrap
        # What an operator says goes before what a script says.
        limit_s = 0.0 if "TUTTI_TIMEOUT" in os.environ else self.timeout.total_seconds()
        options = bindings.options(memory, limit_s)
        status, comm = self.functions.create(bootstrap.structure, options)
        if status:
            error = self._error("making a communicator", None, status, bootstrap.error)
            self._broken = self._broken or error
            raise error
        if self._broken is not None:  # Aborted meanwhile.
            self.functions.abort(comm)
            self.functions.destroy(comm)
            raise self._broken
        return comm

    def _refuse_if_closed(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _error(
        self, what: str, comm: Optional[int], status: int, cause: Optional[BaseException] = None
    ) -> BaseException:
        words = self.functions.error(comm)
        known = status < len(bindings.STATUS_NAMES)
        name = bindings.STATUS_NAMES[status] if known else f"status {status}"
        text = f"tutti: {what} of {self}: {name} ({words.removeprefix(f'{name}: ')})"
        if cause is not None:
            text += f" ({cause})"
        if status == bindings.INVALID_ARGUMENT:
            return ValueError(text)
        if recorder is not None and self._broken is None:  # Not what an abort ends.
            recorder.dump_once(self)
        failure: BaseException = dist.DistBackendError(text)
        return failure

    def fail(self, what: str, comm: int, status: int) -> None:
        """Raises what the C API said about a call."""
        if comm == 0:
            self._refuse_if_closed()
        kind = "device" if comm == self.device else "host"
        bootstrap = self._bootstraps.get(kind)
        raise self._error(what, comm, status, bootstrap.error if bootstrap else None)

    def __str__(self) -> str:
        return f"group {self.name!r} (rank {self.rank} of {self.ranks})"

    def monitored_barrier(self, timeout: Optional[timedelta], wait_all_ranks: bool) -> None:
        """Rank 0 waits for all others, who wait for it; a RuntimeError names who has not come."""
        self._refuse_if_closed()
        limit = self.timeout if timeout is None else timeout
        self._barriers += 1
        store = c10d.PrefixStore(f"tutti-barrier/{self._barriers}/", self._store)
        store_bootstrap.monitored_barrier(store, self.rank, self.ranks, limit, wait_all_ranks)

    # ---- Fall-back ------------------------------------------------------------------------------

    def fall_back(self, reason: str) -> Any:
        """The gloo group that carries what Tutti does not; counted, logged once for a reason."""
        self._count_fall_back(reason, "gloo")
        with self._pending_lock:
            self._refuse_if_closed()
            if self._gloo is None:
                store = c10d.PrefixStore("tutti-gloo/", self._store)
                options = c10d.ProcessGroupGloo._Options()
                options._timeout = self.timeout
                options._devices = _gloo_devices()
                self._gloo = c10d.ProcessGroupGloo(store, self.rank, self.ranks, options)
                self._gloo._set_sequence_number_for_group()
            return self._gloo

    def fall_back_cuda(self, reason: str) -> Any:
        """The NCCL group that carries messages between CUDA tensors."""
        self._count_fall_back(reason, "NCCL")
        with self._pending_lock:
            self._refuse_if_closed()
            if self._nccl is None:
                store = c10d.PrefixStore("tutti-nccl/", self._store)
                options = c10d.ProcessGroupNCCL.Options()
                options._timeout = self.timeout
                self._nccl = c10d.ProcessGroupNCCL(store, self.rank, self.ranks, options)
                self._nccl._set_sequence_number_for_group()
            return self._nccl

    def _count_fall_back(self, reason: str, carrier: str) -> None:
        if is_strict():
            raise dist.DistBackendError(
                f"tutti: {self}: {reason}; TUTTI_STRICT=1 makes an error of this fall-back"
            )
        if reason not in self.fallbacks:
            log.warning("%s: fall-back to %s: %s", self, carrier, reason)
        self.fallbacks[reason] += 1
        fallbacks[reason] += 1

    # ---- End ------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Later calls are refused; queued ones and one that runs fail."""
        self._stop("was aborted")
        with self._handle_lock:  # They are not freed meanwhile.
            for comm in (self.host, self.device):
                if comm:
                    self.functions.abort(comm)
        while True:
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                break
            if work is not None:
                work.complete(self._broken)
                self.done()
        self._queue.put(None)

    def close(self, wait_s: Optional[float] = None) -> None:
        """Ends the group: what is queued is done first, for `wait_s` (unset: the time-out)."""
        if self._process != os.getpid():
            return  # A child that was forked has no part in it.
        self._stop("was shut down")
        limit_s = self.timeout.total_seconds() if wait_s is None else wait_s
        if self._thread is not None and self._thread is not threading.current_thread():
            self._queue.put(None)
            self._thread.join(limit_s)
            if self._thread.is_alive():
                log.warning("%s: a call is not over after %g s; left as it is", self, limit_s)
                return
        if not self.lock.acquire(timeout=limit_s):
            return
        try:
            with self._device_lock:
                self._destroy()
        finally:
            self.lock.release()
        if self._gloo is not None:
            # Gloo's thread takes the interpreter's lock for its last work, and gloo's destructor
            # waits for the thread with the lock held (torch 2.13): sleeping gives the lock away.
            time.sleep(0.02)
        self._gloo = self._nccl = None
        # A store that lives on would give its old keys to the process's next world.
        self._store = None
        self._bootstraps.clear()

    def _destroy(self) -> None:
        with self._handle_lock:
            comms = [comm for comm in (self.host, self.device) if comm]
            device, self.host, self.device = self.device, 0, 0
        for comm in comms:
            status = self.functions.destroy(comm)
            if status:  # A call on a stream that nobody has asked about.
                log.error("%s: its last calls failed: %s", self, self.functions.error(None))
            if status and comm == device:
                self._device_broken = self._device_broken or self._error("a call", None, status)
                for _, used, stream in self._kept:  # They may run on for a while.
                    stream.keep(used)
        self._kept.clear()

    def _stop(self, what: str) -> None:
        with self._pending_lock:
            if self._broken is None:
                self._broken = dist.DistBackendError(f"tutti: {self} {what}")

    def done(self) -> None:
        """A queued call is over."""
        with self._pending_lock:
            self.pending -= 1


def _serve(calls: queue.SimpleQueue[Optional[QueuedWork]], owner: weakref.ref[Engine]) -> None:
    """The group's thread. It does not keep the group alive while it has nothing to do."""
    while True:
        work = calls.get()
        if work is None:
            return
        error = work.perform()
        engine = owner()
        if engine is not None:
            engine.done()  # First: who waits for this work must not find it queued still.
        work.complete(error)
        del work, engine, error


def _gloo_devices() -> list[Any]:
    """As torch's own group has them: interfaces of GLOO_SOCKET_IFNAME, else the host name's.

    Lazy: a pair connects at its first message, so two ranks need no others.
    """
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    gloo = c10d.ProcessGroupGloo
    if not names:
        return [gloo.create_default_device(lazy_init=True)]
    return [gloo.create_device(interface=name, lazy_init=True) for name in names]


def _first_reason(plan: dict[str, Any]) -> str:
    """Why nothing carries a call, of the plan document."""
    refused = plan.get("refused") or plan.get("passed_over") or []
    if isinstance(refused, list) and refused:
        last = refused[-1]
        return str(last.get("reason", last)) if isinstance(last, dict) else str(last)
    return str(plan.get("error") or plan.get("reason") or "no plan carries them")


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for engine in list(_engines):
        engine.close(EXIT_WAIT_S)
