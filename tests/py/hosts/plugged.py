"""Scripts for processes of their own, with minihost plugged in."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from types import ModuleType

from flavours import Flavour

from tack_memory.hosts import sim_library

_START = """
    import sys
    sys.path.insert(0, {examples!r})
    import numpy as np, minihost as mh, tack_memory, tack_memory.hosts
    device = {device!r}
    tack_memory.memory_info(device)
    mh.init({own!r}, library={library!r}, host_readable=True)
    tack_memory.install(mh)
"""


def plugged_script(host: ModuleType, flavour: Flavour, script: str, *, library: str | None = None, device: str | None = None) -> str:
    """A script after the lines that start minihost on a software driver and plug it in. It finds our name of the device in `device`."""
    examples = str(Path(str(host.__file__)).parents[1])
    start = dedent(_START).format(examples=examples, device=device or flavour.device(), own=flavour.own(), library=library or sim_library(flavour.kind))
    return start + dedent(script)
