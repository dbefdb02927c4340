"""Where arrays come from: the line of whoever asked the host for one, never a line of the host's own machinery."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import tack_memory
from tack_memory._native import _fast


@pytest.fixture
def lines() -> None:
    before = tack_memory.set_origins("line")
    yield
    tack_memory.set_origins(before)


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


@pytest.mark.parametrize("folders", [["/somewhere/"], (1,), (b"/somewhere/",), None])
def test_what_is_no_folder_is_refused_in_words(folders: object) -> None:
    with pytest.raises(TypeError, match="set_origin_skip: a (tuple of folders|folder is a str), not"):
        _fast.set_origin_skip(folders)  # type: ignore[arg-type]
