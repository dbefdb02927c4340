"""Modules of a host that come while it is unplugged, and a signal in what ends that: nothing of ours is left in the host or on its devices."""

from __future__ import annotations

import importlib
import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from flavours import Flavour

import tack_memory
from tack_memory import hosts
from tack_memory._native import _fast
from tack_memory.hosts import _host_devices
from tack_memory.hosts._late_modules import LateModules

LIMIT = 60  # seconds; for a broken program


@pytest.mark.parametrize("unplugged", [True, False])
def test_a_module_that_another_thread_imports_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unplugged: bool) -> None:
    """It has been executed already, and waits to be looked at."""
    (tmp_path / "late_host").mkdir()
    (tmp_path / "late_host" / "__init__.py").write_text("")
    (tmp_path / "late_host" / "backend.py").write_text("import sys; sys.late_host_executes.set()")
    monkeypatch.syspath_prepend(tmp_path)
    executes = threading.Event()
    monkeypatch.setattr(sys, "late_host_executes", executes, raising=False)
    late, came = LateModules("late_host"), list[ModuleType]()
    late.watch("backend", came.append)
    thread = threading.Thread(target=importlib.import_module, args=("late_host.backend",), daemon=True)
    try:
        with late:
            thread.start()
            assert executes.wait(LIMIT)
            thread.join(0.2)
            assert thread.is_alive() and not came
            if unplugged:
                late.stop()
        thread.join(LIMIT)
        assert came == ([] if unplugged else [sys.modules["late_host.backend"]])
    finally:
        late.stop()
        for name in ("late_host.backend", "late_host"):
            sys.modules.pop(name, None)


def test_none_is_looked_at_while_the_host_is_unplugged(bare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    tack_memory.install(bare)
    known = hosts.plugged(bare.__name__)
    assert known is not None
    adapter: Any = known.adapter
    free: list[bool] = []

    def in_detach(then: Callable[[], object]) -> Callable[[], object]:
        def method() -> object:
            thread = threading.Thread(target=lambda: free.append(adapter._late._one_at_a_time.acquire(blocking=False)))
            thread.start()
            thread.join()
            return then()

        return method

    monkeypatch.setattr(adapter._buffers, "give_all_back", in_detach(adapter._buffers.give_all_back))
    monkeypatch.setattr(adapter._patches, "undo", in_detach(adapter._patches.undo))
    tack_memory.uninstall(bare)
    assert free == [False, False]


class Told:
    """Stands for `_fast` where a host's devices are told: notes what each was told last, and raises KeyboardInterrupt after one of the calls."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, object], object] = {}
        self.left = 0

    def _told(self, name: str, device: object, value: object) -> None:
        self.last[name, device] = value
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt

    def set_relief(self, index: int, relief: Any) -> None:
        _fast.set_relief(index, relief)
        self._told("relief", index, relief)

    def set_stream(self, device: str, context: int, stream: int) -> None:
        _fast.set_stream(device, context, stream)
        self._told("stream", device, context or stream or None)


def test_a_signal_while_devices_are_given_up(bare: ModuleType, flavour: Flavour, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    monkeypatch.setattr(_host_devices, "_fast", told)
    for nth in itertools.count(1):
        tack_memory.install(bare)
        kept = [bare.zeros(10, device=flavour.own(n)) for n in (0, 1)]
        assert len([value for value in told.last.values() if value is not None]) == 4
        told.left = nth
        try:
            tack_memory.uninstall(bare)
            came = False
        except KeyboardInterrupt:
            came = True
            told.left = 0
            tack_memory.uninstall(bare)
        assert set(told.last.values()) == {None}, f"call {nth}"
        assert [one[9] for one in kept] == [0, 0]
        del kept
        if not came:
            break
    assert nth == 5
