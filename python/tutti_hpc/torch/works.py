# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""What a collective returns: work that is done, that a thread will do, or that is on a stream."""

from __future__ import annotations

import functools
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
from torch._C._distributed_c10d import Work

NO_TIMEOUT = timedelta(0)
POLL_S = 20e-6  # Between looks at a call on a GPU.
_futures_lock = threading.Lock()


@functools.cache
def use_quick_extraction() -> None:
    """Futures of lists of tensors at a fraction of their cost, for all of this process.

    Torch asks this function of its own which tensors a future's value holds, once when the future
    is completed and once when DDP reads it. It pickles the value, cold longer than a call takes.
    """
    original = getattr(torch._jit_internal, "_extract_tensors", None)
    if original is None:
        return

    @functools.wraps(original)
    def extract(value: Any) -> list[torch.Tensor]:
        if type(value) is list and all(isinstance(one, torch.Tensor) for one in value):
            return value
        found: list[torch.Tensor] = original(value)
        return found

    # Torch keeps what it finds at its first use: where another backend's futures came before, all
    # stays as it was.
    torch._jit_internal._extract_tensors = extract


def _raise(error: Optional[BaseException]) -> None:
    if error is not None:
        raise error


class FinishedWork(Work):
    """Of a call that returned when its result was there."""

    def __init__(self, tensors: Any) -> None:
        super().__init__()
        self._tensors = tensors

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Nothing to wait for."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def block_current_stream(self) -> None:
        """Nothing to wait for."""

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True."""
        return True

    def exception(self) -> Optional[BaseException]:
        """None."""
        return None

    def result(self) -> Any:
        """The tensors that hold the result."""
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that has its result."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class _AwaitedWork(Work):
    """What works share whose result wait() brings about."""

    _tensors: Any

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def block_current_stream(self) -> None:
        """As wait(), which orders the current stream, or blocks for the host's tensors."""
        self.wait()

    def result(self) -> Any:
        """The tensors that hold the result once a stream, if there is one, has passed the call."""
        return self._tensors


class QueuedWork(_AwaitedWork):
    """Of a call that the group's thread makes in its turn. `timeout_s`: of wait() without one."""

    def __init__(
        self, run: Callable[[], None], tensors: Any, timeout_s: float, description: str
    ) -> None:
        super().__init__()
        self._run: Optional[Callable[[], None]] = run
        self._tensors = tensors
        self._timeout_s = timeout_s
        self._description = description
        self._is_over = False
        self.on_timeout: Optional[Callable[[], None]] = None  # Of a wait as long as the group's.
        self._error: Optional[BaseException] = None
        self._future: Optional[torch.futures.Future[Any]] = None
        self._latch = threading.Lock()  # Held until the call is over.
        self._latch.acquire()

    def perform(self) -> Optional[BaseException]:
        """Makes the call; by the group's thread, which calls complete() next."""
        run, self._run = self._run, None
        try:
            if run is not None:
                run()
        except Exception as caught:  # It belongs to whoever waits.
            return caught.with_traceback(None)
        except BaseException as caught:  # A future takes no other kind.
            return RuntimeError(f"tutti: {self._description}: {caught!r}")
        return None

    def complete(self, error: Optional[BaseException]) -> None:
        """Wakes whoever waits.

        A future's callbacks may wait for calls of the same group (PowerSGD's do), so they run in a
        thread of their own.
        """
        self._run = None
        self._error = error
        with _futures_lock:
            self._is_over = True
            future = self._future
        self._latch.release()
        if future is not None:
            threading.Thread(target=self._tell, args=(future,), daemon=True).start()

    def _tell(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._tensors)
        else:
            future.set_exception(self._error)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Returns when the result is there; raises what ended the call, or at the time-out."""
        if not self._is_over:
            limit_s = timeout.total_seconds() if timeout > NO_TIMEOUT else self._timeout_s
            if not self._latch.acquire(timeout=limit_s):
                if self.on_timeout is not None and limit_s >= self._timeout_s:
                    self.on_timeout()
                raise torch.distributed.DistBackendError(
                    f"tutti: {self._description} is not over after {limit_s:g} s; remedy: look for "
                    "a rank that has not made this call, or raise the group's time-out"
                )
            self._latch.release()
        _raise(self._error)
        return True

    def is_completed(self) -> bool:
        """The call is over, with a result or an error."""
        return self._is_over

    def is_success(self) -> bool:
        """The call is over and has a result."""
        return self._is_over and self._error is None

    def exception(self) -> Optional[BaseException]:
        """What ended the call."""
        return self._error

    def result(self) -> Any:
        """The tensors that hold the result; waits for it."""
        self.wait()
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """Completed by the thread that makes the call."""
        with _futures_lock:
            if self._future is None:
                self._future = torch.futures.Future()
                is_over = self._is_over
            else:
                return self._future
        if is_over:
            self._tell(self._future)
        return self._future


class OrderedWork(_AwaitedWork):
    """Of a call on the caller's CUDA stream, `number`: what comes there next is behind it."""

    def __init__(self, tensors: Any, device: int, number: int) -> None:
        super().__init__()
        self._tensors = tensors
        self._device = device
        self._number = number

    def _stream(self) -> Any:
        if self._number == 0:  # Which ExternalStream takes for any of torch's own.
            return torch.cuda.default_stream(self._device)
        return torch.cuda.ExternalStream(self._number, self._device)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Orders the current stream; with a time-out it blocks the host, as in-tree NCCL does."""
        if torch._C._cuda_getCurrentRawStream(self._device) != self._number:
            torch.cuda.current_stream(self._device).wait_stream(self._stream())
        if timeout is not NO_TIMEOUT and timeout > NO_TIMEOUT:
            self._stream().synchronize()
        return True

    def is_completed(self) -> bool:
        """The GPU has passed the call."""
        return bool(self._stream().query())

    def is_success(self) -> bool:
        """As is_completed(): what fails on the GPU is the error of the next call."""
        return self.is_completed()

    def exception(self) -> Optional[BaseException]:
        """None: see is_success()."""
        return None

    def get_future(self) -> torch._C.Future:
        """A future whose callbacks are ordered behind the call."""
        with torch.cuda.stream(self._stream()):
            return _stream_future([torch.device("cuda", self._device)], self._tensors)


def _stream_future(devices: list[torch.device], tensors: Any) -> torch._C.Future:
    """Of what the current stream of the one device has done when it is there."""
    future = torch._C.Future(devices)  # As works of torch's own have it.
    future.set_result(tensors)
    return future


class CallStream:
    """A stream for calls that go on beside the caller's."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.number = self.stream.cuda_stream
        self._devices = [torch.device("cuda", device)]

    def make_current(self) -> Any:
        """For this thread; what restore() takes. Without the objects of a torch.cuda.stream()."""
        if torch._C._cuda_getDevice() != self.device:
            context = torch.cuda.stream(self.stream)
            context.__enter__()
            return context
        caller = torch._C._cuda_getCurrentStream(self.device)
        stream = self.stream
        torch._C._cuda_setStream(stream.stream_id, stream.device_index, stream.device_type)
        return caller

    @staticmethod
    def restore(caller: Any) -> None:
        """The stream, and device, before make_current()."""
        if isinstance(caller, tuple):
            torch._C._cuda_setStream(*caller)
        else:
            caller.__exit__(None, None, None)

    def keep(self, tensors: list[torch.Tensor]) -> None:
        """The allocator gives their memory to nobody before the stream has done what it has now."""
        for tensor in tensors:
            tensor.record_stream(self.stream)

    def future(self, tensors: Any) -> torch._C.Future:
        """Whose callbacks are ordered behind what the stream has now."""
        caller = self.make_current()
        try:
            return _stream_future(self._devices, tensors)
        finally:
            self.restore(caller)


class StreamWork(_AwaitedWork):
    """Of a call of the C API on a stream of ours; its number tells it.

    A program that is bound by its processor, as small steps of DDP are, gets no events of torch's:
    the communicator has some, and making one costs as much as a launch. `used`: what the allocator
    must keep until the stream of the call's caller, `origin`, is behind the call.
    """

    def __init__(
        self,
        engine: Any,
        tensors: Any,
        stream: CallStream,
        number: int,
        used: list[torch.Tensor],
        origin: int,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._tensors = tensors
        self._stream = stream
        self._number = number
        self._used = used
        self._origin = origin

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Orders the current stream; with a time-out it blocks the host, as in-tree NCCL does."""
        stream = self._stream
        current = torch._C._cuda_getCurrentRawStream(stream.device)
        self._engine.wait_on_stream("a call on a stream", self._number, current)
        if current != self._origin:
            stream.keep(self._used)
        self._used.clear()
        if timeout is not NO_TIMEOUT and timeout > NO_TIMEOUT:
            while not self._engine.is_over(self._number):
                time.sleep(POLL_S)
            _raise(self._engine.device_failure())
        return True

    def is_completed(self) -> bool:
        """The GPU has passed the call, or the communicator has failed."""
        return bool(self._engine.is_over(self._number))

    def is_success(self) -> bool:
        """The GPU has passed the call and nothing has failed."""
        return self.is_completed() and self._engine.device_failure() is None

    def exception(self) -> Optional[BaseException]:
        """What broke the communicator."""
        failure: Optional[BaseException] = self._engine.device_failure()
        return failure

    def get_future(self) -> torch._C.Future:
        """A future whose callbacks are ordered behind the call, and maybe others behind it."""
        return self._stream.future(self._tensors)
