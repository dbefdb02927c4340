"""What the tests of NumPy's memory share: a process in which nothing stays installed, exact books, and a handler of another extension."""

from __future__ import annotations

import ctypes
import gc
import os
import shlex
import shutil
import subprocess
from collections.abc import Generator, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="NumPy is not installed: nothing of tack_memory.numpy can be tested")

import tack_memory.numpy as tn
from tack_memory._native import _numpy
from tack_memory.numpy import _scopes

HERE = Path(__file__).parent
failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[failed] = report.failed
    return report


def is_set_here() -> bool:
    """Whether somebody has set a handler in this context, if only NumPy's own."""
    return _numpy.context_variable() in copy_context()


@pytest.fixture(autouse=True)
def nothing_stays(request: pytest.FixtureRequest, books_are_exact_and_nothing_leaks: None) -> Iterator[None]:
    """Each test ends with NumPy's own handler in force, and with every array that it made gone from the books."""
    gc.collect()
    before, handler, was_set = tn.statistics(), _numpy.current_handler(), is_set_here()
    yield
    installed = _scopes._process._installed is not None or bool(_scopes._process._blocks)
    if installed:
        _scopes._process._blocks.clear()
        _scopes._process.uninstall()
    if request.node.stash.get(failed, False):
        return  # its traceback keeps arrays alive
    gc.collect()
    after = tn.statistics()
    assert not installed, "the test left something installed"
    assert _numpy.current_handler() is handler
    assert is_set_here() == was_set, "the test left a handler set in the context of all tests: what is installed in the process does not reach it any more"
    assert (after.in_use, after.live, after.overhead) == (before.in_use, before.live, before.overhead)
    assert after.unknown_frees == before.unknown_frees


class OtherHandler:
    """A handler that knows nothing of us (other_handler.c), as an extension module would have it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for figure in ("other_live", "other_wrong", "other_without_gil"):
            getattr(library, figure).restype = ctypes.c_long

    def capsule(self, name: bytes = b"mem_handler") -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        self._name = name  # a capsule does not copy it
        return new(ctypes.addressof(ctypes.c_char.in_dll(self._library, "other_handler")), name, None)

    @property
    def live(self) -> int:
        """Blocks that it gave and has not back."""
        return int(self._library.other_live())

    @property
    def wrong(self) -> int:
        """Frees whose size was not the one that was asked for."""
        return int(self._library.other_wrong())

    @property
    def without_gil(self) -> int:
        """Calls of its malloc and calloc without the GIL."""
        return int(self._library.other_without_gil())


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> OtherHandler:
    compiler = shlex.split(os.environ.get("CC", "")) or [name for name in ("gcc", "clang", "cc") if shutil.which(name)][:1]
    if not compiler:
        pytest.skip("no C compiler to build a handler of another extension with")
    library = tmp_path_factory.mktemp("other") / "other_handler.so"
    subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", str(HERE / "other_handler.c"), "-o", str(library)], check=True)
    return OtherHandler(ctypes.CDLL(str(library)))
