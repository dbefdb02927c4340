"""Compiles baseline.c for this Python and loads it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

NAME = "tack_memory_baseline"
BUILD = Path(__file__).resolve().parent.parent / "build" / "bench"


def load() -> ModuleType:
    source = Path(__file__).with_name("baseline.c")
    target = BUILD / (NAME + sysconfig.get_config_var("EXT_SUFFIX"))
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        compiler = shlex.split(os.environ.get("CC") or next(c for c in ("gcc", "clang", "cc") if shutil.which(c)))
        include = sysconfig.get_path("include")
        subprocess.run([*compiler, "-O2", "-fPIC", "-shared", "-w", f"-I{include}", "-o", str(target), str(source), "-ldl"], check=True)
    spec = importlib.util.spec_from_file_location(NAME, target)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
