"""The label of what a framework's own code allocates, in code that is made up: tests/py/hosts has it on real hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

import tack_memory
from tack_memory._native import PACKAGE_FOLDER, _fast

pytestmark = pytest.mark.usefixtures("lines")

Run = Callable[..., Any]


@pytest.fixture
def define() -> Iterator[Callable[[str, str], dict[str, Any]]]:
    """Run code as if it lay in a file of a host in /hostx/, whose machinery is in /hostx/lang/."""
    _fast.set_host_folders(("/hostx/",))
    _fast.set_origin_skip((PACKAGE_FOLDER, "/hostx/lang/"))
    names: dict[str, Any] = {"tm": tack_memory}

    def run(file: str, source: str) -> dict[str, Any]:
        exec(compile(source, file, "exec"), names)
        return names

    yield run
    _fast.set_host_folders(())
    _fast.set_origin_skip((PACKAGE_FOLDER,))


def test_machinery_between_the_hosts_functions_is_passed_over(define: Run, any_device: str) -> None:
    define("/hostx/lang/kernel.py", "def run(function):\n    return function()")
    names = define("/hostx/filters.py", f"def _scan(): return tm.allocate(8, {any_device!r})\ndef contour(): return run(_scan)")
    assert names["contour"]().label == "contour", "not the machinery's name"
    assert names["run"](names["_scan"]).label is None, "nobody with a name that people know called"
    assert names["_scan"]().label is None
    within = define(f"{PACKAGE_FOLDER}x.py", "def through(function):\n    return function()")["through"]
    define("/hostx/filters.py", "def contour2(through): return through(_scan)")
    assert names["contour2"](within).label == "contour2"


def test_code_of_somebody_else_between_them_ends_the_search(define: Run, any_device: str) -> None:
    define("/elsewhere/user.py", "def theirs(function):\n    return function()")
    names = define("/hostx/filters.py", f"def _scan(): return tm.allocate(8, {any_device!r})\ndef contour(): return theirs(_scan)")
    assert names["contour"]().label is None


def renamed(function: FunctionType, name: str) -> FunctionType:
    code: CodeType = function.__code__.replace(co_qualname=name)
    return FunctionType(code, function.__globals__)


def test_an_allocation_never_fails_because_of_a_functions_name(define: Run, any_device: str) -> None:
    function = define("/hostx/filters.py", f"def smooth(): return tm.allocate(8, {any_device!r})")["smooth"]
    for _ in range(2):  # the second one is remembered
        assert renamed(function, "x" * 5000)().label == "x" * 1000 + "..."
        assert renamed(function, "\u20ac" * 2000)().label == "\u20ac" * 1000 + "..."
    assert renamed(function, "two\nlines")().label == "two\\nlines"
    assert renamed(function, "\ud800")().label is None
    assert function().label == "smooth"
