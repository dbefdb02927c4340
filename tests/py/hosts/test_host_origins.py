"""Where arrays come from: the line of whoever asked the host for one, never a line of the host's own machinery."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

import pytest

import tack_memory
from tack_memory._native import _fast


def test_an_array_comes_from_the_line_that_asked_the_host(host: ModuleType, lines: None) -> None:
    a = host.empty(1000)
    line = sys._getframe().f_lineno - 1
    (holder,) = tack_memory.memory_report().holders
    assert holder.origin == f"{__file__}:{line}"
    del a


def test_without_the_host_its_code_counts_like_any_other(bare: ModuleType, lines: None) -> None:
    tack_memory.install(bare)
    tack_memory.uninstall(bare)
    made = compile("import tack_memory\nbuffer = tack_memory.allocate(64, device)", f"{bare.__path__[0]}/lang/other.py", "exec")
    names = {"device": "cpu"}
    exec(made, names)
    assert names["buffer"].origin == f"{bare.__path__[0]}/lang/other.py:2"


FILTERS = """
class CellSet:
    def point_links(self):
        return self._make()

    def _make(self):
        return [host.empty(100) for _ in range(2)]

def contour(cells):
    cells.links = cells.point_links()
    scratch = _scan()
    def inner():
        return host.empty(300)
    return scratch, inner()

def _scan():
    return host.empty(200)

cells = CellSet()
everything = contour(cells)
whole = _scan()
"""


def run_filters(host: ModuleType, file: str) -> dict[str, object]:
    names: dict[str, object] = {"host": host}
    exec(compile(FILTERS, file, "exec"), names)
    return names


def labels(*_alive: object) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for holder in tack_memory.memory_report().holders:
        found[holder.label] = found.get(holder.label, 0) + holder.count
    return found


def test_what_a_hosts_own_functions_allocate_is_labelled_with_their_names(host: ModuleType, lines: None) -> None:
    """A data set's derived structure, a filter's temporary and its result; not the arrays that a program makes."""
    mine = host.empty(10)
    kept = run_filters(host, f"{host.__path__[0]}/filters.py")
    assert labels(mine, kept) == {None: 2, "CellSet.point_links": 2, "contour": 2}, "and none for what no public function of the host called"


def test_a_label_by_hand_is_kept_and_without_origins_there_is_none(host: ModuleType, lines: None) -> None:
    with tack_memory.label("by hand"):
        kept = run_filters(host, f"{host.__path__[0]}/filters.py")
    assert labels(kept) == {"by hand": 5}
    del kept
    gc.collect()  # functions and their globals
    tack_memory.set_origins("off")
    kept = run_filters(host, f"{host.__path__[0]}/filters.py")
    assert labels(kept) == {None: 5}


def test_functions_that_are_not_the_hosts_name_nothing(host: ModuleType, lines: None) -> None:
    kept = run_filters(host, f"{host.__path__[0]}_of_somebody_else/filters.py")
    assert labels(kept) == {None: 5}


@pytest.mark.parametrize("folders", [["/somewhere/"], (1,), (b"/somewhere/",), None])
def test_what_is_no_folder_is_refused_in_words(folders: object) -> None:
    with pytest.raises(TypeError, match="set_origin_skip: a (tuple of folders|folder is a str), not"):
        _fast.set_origin_skip(folders)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="set_host_folders: a (tuple of folders|folder is a str), not"):
        _fast.set_host_folders(folders)  # type: ignore[arg-type]
