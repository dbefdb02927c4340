"""What the tests of event hooks share: a listener that checks the promises of order, and a module of hooks in C."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tack_memory
from tack_memory import Event

HERE = Path(__file__).parent

NUMPY, DEVICE, PINNED, SHARED = 1, 2, 4, 8
"""Bits of domains, as in tack_memory.h."""
NEW, FREE, RENEW, FAIL = 1, 2, 3, 4
WITHOUT_GIL = 1


class Table:
    """What lives, by address, as a listener keeps it; every event must fit what was told before."""

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.wrong: list[object] = []
        self.events = 0

    def __call__(self, event: Event) -> None:
        self.events += 1
        if event.kind in ("free", "renew"):
            self._gone(event.old, event.old_size, event)
        if event.kind in ("new", "renew"):
            self._there(event.new, event.new_size, event)

    def of_2012(self, old: int, new: int, size: int, data: object) -> None:
        self.events += 1
        if old:
            self._gone(old, None, (old, new, size))
        if new:
            self._there(new, size, (old, new, size))

    def replay(self, records: Iterable[tuple[int, ...]]) -> None:
        """Of c_hooks.take()."""
        for kind, _domain, old, new, size, *_ in records:
            if kind != FAIL:
                self.of_2012(old, new, size, None)

    def _gone(self, address: int | None, size: int | None, event: object) -> None:
        had = self.live.pop(address or 0, None)
        if had is None or (size is not None and had != size):
            self.wrong.append(("was not there, or of another size", had, event))

    def _there(self, address: int | None, size: int, event: object) -> None:
        if not address or address in self.live:
            self.wrong.append(("the address is taken", event))
        self.live[address or 0] = size

    @property
    def bytes(self) -> int:
        return sum(self.live.values())


def compile_module(folder: Path, name: str = "c_hooks") -> Path:
    """Build a test's C module against the installed header, with every warning an error."""
    compiler = os.environ.get("CC") or next(c for c in ("gcc", "clang", "cc") if shutil.which(c))
    out = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = ["-O1", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
    includes = [f"-I{tack_memory.get_include()}", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([*shlex.split(compiler), *flags, *includes, str(HERE / f"{name}.c"), "-o", str(out)], check=True)
    return out


def load(path: Path) -> Any:
    name = path.name.partition(".")[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module: types.ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def together(*functions: Any) -> None:
    """All at a time, each in a thread of its own; the main thread waits in C, and is asked for nothing. The first exception is raised."""
    errors: list[BaseException] = []

    def guarded(function: Any) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
