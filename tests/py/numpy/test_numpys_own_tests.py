"""A part of NumPy's own tests, with each allocator in the whole process, as `make test-numpy` runs all of them (tests/numpy_suite)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from numpy_support import ALLOCATORS, OLD

SUITE = Path(__file__).resolve().parents[2] / "numpy_suite"
CORE = "numpy.core" if OLD else "numpy._core"
PART = (f"{CORE}.tests.test_item_selection", f"{CORE}.tests.test_indexing", "numpy.lib.tests.test_shape_base")

_spec = importlib.util.spec_from_file_location("numpy_suite_run", SUITE / "run.py")
assert _spec is not None and _spec.loader is not None
run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(run)


@pytest.mark.skipif(importlib.util.find_spec("hypothesis") is None, reason="NumPy's tests need hypothesis, which is not installed here")
def test_a_part_of_numpys_own_tests() -> None:
    done = subprocess.run([sys.executable, str(SUITE / "run.py"), "--here", *PART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.split(" in ")[0].strip() for line in done.stdout.splitlines() if " passed" in line]
    assert [line.partition(":")[0] for line in told] == ["without us", *run.ALLOCATORS]
    assert len({line.partition(":")[2] for line in told}) == 1 and int(told[0].split()[2]) > 100, told


def test_it_knows_every_allocator() -> None:
    assert set(run.ALLOCATORS) == set(ALLOCATORS)


BOOKS = {
    "told": {"allocations": 10, "frees": 7, "live": 3, "in_use": 300, "unknown_frees": 0},
    "found_blocks": 3, "found_bytes": 300, "wrong": [], "handlers": {},
}  # fmt: skip


def test_right_books_have_no_faults() -> None:
    assert run.faults_of(BOOKS) == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"told": {**BOOKS["told"], "in_use": 299}}, "are alive, and the books have"),
        ({"found_blocks": 4}, "are alive, and the books have"),
        ({"told": {**BOOKS["told"], "allocations": 0}}, "nothing was counted"),
        ({"told": {**BOOKS["told"], "frees": 8}}, "are not the 3 alive"),
        ({"told": {**BOOKS["told"], "unknown_frees": 1}}, "never counted"),
        ({"told": {**BOOKS["told"], "in_use": 300 + 2 * run.UNSEEN_BYTES}}, "could be found"),
        ({"told": {**BOOKS["told"], "live": 3 + 2 * run.UNSEEN_BLOCKS, "allocations": 10 + 2 * run.UNSEEN_BLOCKS}}, "could be found"),
        ({"wrong": ["two sizes"]}, "two sizes"),
    ],
)
def test_wrong_books_are_seen(wrong: dict[str, object], why: str) -> None:
    assert any(why in fault for fault in run.faults_of({**BOOKS, **wrong}))


def test_a_run_that_dies_without_its_books_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    died = {"outcomes": {}, "code": 1, "seconds": 0.0, "books": None}
    monkeypatch.setattr(run.Suite, "outcomes", lambda *_: died)
    assert run.Suite(Path(sys.executable), ["numpy"], None).compare({"outcomes": {"a": "passed"}}, "default") is False
    assert "not all tests were run" in capsys.readouterr().err


def test_a_test_that_ends_otherwise_is_seen() -> None:
    left, right = ({"outcomes": {"a": "passed", "b": end}} for end in ("passed", "failed"))
    assert run.differences(left, right) == ["b"] and run.differences(left, {"outcomes": {"a": "passed"}}) == ["b"]
    file = f"../venv/lib/python3.11/site-packages/{CORE.replace('.', '/')}/tests/test_indexing.py"
    assert run.module_of(file) == f"{CORE}.tests.test_indexing" and numpy.__name__ in run.module_of(file)
