# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
"""The C API (include/tutti/tutti.h) through ctypes. Documents come back as Python values."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from pathlib import Path
from typing import Any, Callable, Optional, cast

from tutti_hpc import paths
from tutti_hpc.errors import TuttiError

ABI_VERSION = 1
Document = dict[str, Any]


def _query(query: Document) -> bytes:
    """A query as JSON, which is UTF-8 and cannot hold a file name that is not."""
    text = json.dumps(query, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        wrong = text[error.start : text.find('"', error.start)]
        raise TuttiError(
            f"...{wrong!a}: a name that is not UTF-8; remedy: a symbolic link with another name"
        ) from None


def load(path: Path) -> ctypes.CDLL:
    """A libtutti.so of our C ABI version; a TuttiError names the remedy."""
    try:
        library = ctypes.CDLL(str(path))
        library.tutti_version.restype = ctypes.c_char_p
        abi = library.tutti_abi_version()
    except (OSError, AttributeError) as error:
        raise TuttiError(f"{path} cannot be used: {error}") from None
    if abi != ABI_VERSION:
        raise TuttiError(
            f"{path} has C ABI version {abi}, this command needs {ABI_VERSION}; remedy: "
            "install the command and the library from one build"
        )
    return library


ALLGATHER_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)


class Bootstrap(ctypes.Structure):
    """tutti_bootstrap_t."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("context", ctypes.c_void_p),
        ("allgather", ALLGATHER_CALLBACK),
    )


def native_functions(path: Path) -> Callable[[str], Optional[Callable[..., int]]]:
    """Finds functions of the library as functions of this interpreter, which take integers alone.

    A call of one costs less than by ctypes, above all where the processor's caches are cold.
    """
    make = getattr(ctypes.PyDLL(str(path)), "tutti_python_function", None)

    def find(name: str) -> Optional[Callable[..., int]]:
        if make is None:
            return None
        make.argtypes, make.restype = [ctypes.c_char_p], ctypes.c_void_p
        # None: there is no such function, or the process shows no functions of the interpreter's.
        # Not py_object, for which Python 3.11 crashes on null. One reference is never given back.
        address = make(name.encode())
        return ctypes.cast(address, ctypes.py_object).value if address else None

    return find


class Library:
    """One loaded libtutti.so. It reads this process's environment at each call."""

    def __init__(self, path: Path) -> None:
        """Loads `path` and checks its C ABI version."""
        self.path = path
        self._library = load(path)
        self._library.tutti_free.argtypes = [ctypes.c_void_p]
        self._library.tutti_free.restype = None

    def _document(self, name: str, *arguments: bytes) -> Any:
        """Calls a function that returns a document; TuttiError when it holds an error."""
        try:
            function = self._library[name]
        except AttributeError:
            raise TuttiError(f"{self.path} has no {name}") from None
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_char_p] * len(arguments)
        address = function(*arguments)
        if not address:
            raise TuttiError(f"{name} returned nothing: out of memory")
        try:
            value = json.loads(ctypes.string_at(address).decode(errors="replace"))
        finally:
            self._library.tutti_free(address)
        if isinstance(value, dict) and "error" in value:
            raise TuttiError(str(value["error"]))
        return value

    def version(self) -> str:
        """The library's version, for example `0.1.0`."""
        return cast(bytes, self._library.tutti_version()).decode()

    def config(self) -> list[Document]:
        """Every knob."""
        return cast(list[Document], self._document("tutti_config_json"))

    def config_problems(self) -> list[Document]:
        """Complaints about TUTTI_* variables."""
        return cast(list[Document], self._document("tutti_config_problems_json"))

    def explain(self, query: Document) -> Document:
        """Which plan a call would get and why."""
        text = _query(query)
        return cast(Document, self._document("tutti_explain_json", text))

    def algorithms(self) -> list[Document]:
        """What the simulator can be asked about."""
        return cast(list[Document], self._document("tutti_algorithms_json"))

    def simulate(self, query: Document) -> Document:
        """Predicted times of one algorithm."""
        text = _query(query)
        return cast(Document, self._document("tutti_simulate_json", text))

    def simulate_network(self, query: Document) -> Document:
        """One run of traffic on a packet network."""
        text = _query(query)
        return cast(Document, self._document("tutti_simulate_network_json", text))

    def check_schedule(self, query: Document) -> Document:
        """The proof of one algorithm on a layout."""
        text = _query(query)
        return cast(Document, self._document("tutti_schedule_check_json", text))

    def tuning_check(self, path: str) -> Document:
        """Checks a tuning file."""
        return cast(Document, self._document("tutti_tuning_check_json", os.fsencode(path)))

    def tuning_import(self, path: str) -> Document:
        """Converts MPICH's selection JSON."""
        return cast(Document, self._document("tutti_tuning_import_json", os.fsencode(path)))

    def tuning_schema(self) -> Document:
        """A JSON schema of tuning files."""
        return cast(Document, self._document("tutti_tuning_schema_json"))

    def tuning_show(self) -> Document:
        """The effective table."""
        return cast(Document, self._document("tutti_tuning_show_json"))

    def topology(self, file: str = "", root: str = "") -> Document:
        """Nodes by a topology file, a recorded machine, or (neither given) as discovered."""
        arguments = (os.fsencode(file), os.fsencode(root))
        return cast(Document, self._document("tutti_topology_json", *arguments))

    def machine(self) -> Document:
        """Devices and the CCL library of this machine."""
        return cast(Document, self._document("tutti_machine_json"))


@functools.cache
def library() -> Library:
    """The installed library."""
    return Library(paths.require(paths.LIBRARY))
