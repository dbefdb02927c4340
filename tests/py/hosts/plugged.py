"""Scripts for processes of their own, with minihost plugged in."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from types import ModuleType

from tack_memory.hosts import sim_library

_START = """
    import sys
    sys.path.insert(0, {examples!r})
    import numpy as np, minihost as mh, tack_memory, tack_memory.hosts
    tack_memory.memory_info({device!r})
    mh.init("cuda:0", library={library!r}, host_readable=True)
    tack_memory.install(mh)
"""


def plugged_script(host: ModuleType, script: str, *, library: str | None = None, device: str = "sim:0") -> str:
    """A script after the lines that start minihost on a software driver and plug it in."""
    examples = str(Path(str(host.__file__)).parents[1])
    return dedent(_START).format(examples=examples, device=device, library=library or sim_library()) + dedent(script)
