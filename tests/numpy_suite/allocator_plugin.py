"""A pytest plug-in for NumPy's own tests: installs an allocator for the whole process before anything is collected, and writes down how each test ended
and whether the books were right at the end."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

_outcomes: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", required=True, help="the file to write")
    parser.addoption("--allocator", help="arguments of tack_memory.numpy.install, as JSON; without it NumPy is as it comes")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    given = early_config.known_args_namespace.allocator
    if given is not None:
        import tack_memory.numpy

        tack_memory.numpy.install("process", **json.loads(given))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        ended = "error" if report.when != "call" and report.failed else report.outcome
        _outcomes[report.nodeid] = "expected failure" if hasattr(report, "wasxfail") and ended == "skipped" else ended


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != "passed":
        _outcomes[report.nodeid] = "error" if report.failed else report.outcome


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    books = None if session.config.getoption("--allocator") is None else _compared_books()
    Path(session.config.getoption("--outcomes")).write_text(json.dumps({"outcomes": _outcomes, "books": books}))


def _compared_books() -> dict[str, Any]:
    """What the books say is alive, and what is: every array that Python's objects lead to, looked at one by one.

    Arrays that only C code refers to cannot be found so (and objects that the collector cannot look into): they are the difference, which must be small. The
    other way round there is none: an array that is found and was counted must be in the books with its size.
    """
    from tack_memory.numpy import owner, statistics

    for _ in range(3):
        gc.collect()
    arrays = _all_arrays()
    blocks: dict[int, int] = {}
    wrong = []
    names: dict[str, int] = {}
    for array in arrays:
        root = _root(array)
        found = None if root is None else owner(root)
        if found is None:
            continue
        names[found.handler] = names.get(found.handler, 0) + 1
        if found.bytes is None or found.seq is None:
            continue  # older than the handler, or made under somebody else's
        if blocks.setdefault(found.seq, found.bytes) != found.bytes:
            wrong.append(f"two sizes of block {found.seq}")
        if found.bytes < root.nbytes:
            wrong.append(f"an array of {root.nbytes} bytes is counted with {found.bytes}")
    del arrays
    told = statistics()
    return {
        "told": told._asdict(),
        "found_blocks": len(blocks),
        "found_bytes": sum(blocks.values()),
        "wrong": wrong[:20],
        "handlers": names,
    }


def _root(array: Any) -> Any:
    """The array that owns the memory, found without tack_memory; None: it is no array's."""
    import numpy

    while isinstance(array, numpy.ndarray):
        if array.flags.owndata:
            return array
        array = array.base
    return None


def _all_arrays() -> list[Any]:
    """Every array that is reached from what the garbage collector knows, also through what it does not look into."""
    import numpy

    arrays: dict[int, Any] = {}
    seen: set[int] = set()
    known = gc.get_objects()
    seen.update((id(known), id(arrays), id(seen)))
    waiting: list[Any] = []

    def meet(one: Any) -> None:
        kind = type(one)
        if issubclass(kind, numpy.ndarray):
            if id(one) not in arrays:
                arrays[id(one)] = one
                waiting.append(one)  # one of objects leads to others
        elif not gc.is_tracked(one) and id(one) not in seen and not issubclass(kind, (str, bytes, int, float, type(None))):
            seen.add(id(one))
            waiting.append(one)

    for one in known:
        if id(one) in seen:
            continue
        if issubclass(type(one), numpy.ndarray):
            meet(one)
        for reached in gc.get_referents(one):
            meet(reached)
    while waiting:
        one = waiting.pop()
        for reached in gc.get_referents(one):
            meet(reached)
        if type(one) is numpy.flatiter:
            meet(one.base)
        elif type(one) is numpy.ndarray and one.base is not None:
            meet(one.base)
    return list(arrays.values())
