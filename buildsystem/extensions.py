"""Builds the extension modules that are plain C, without Go: what counts NumPy's arrays, and what tells of allocations.

They are objects of their own because they must work in a forked child, where the Go runtime does not, and because NumPy's needs NumPy at run time.
As a script it only compiles them, with every warning an error ('make lint').
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import shlex
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from toolchain import ROOT, environment, fail, python_includes, run

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type")
"""CPython's own method tables are why three warnings are off."""


@dataclass(frozen=True)
class Extension:
    """A module of the package's folder _native: all C files of one folder, compiled at once."""

    name: str
    folder: str
    needs_numpy: bool = False

    def sources(self) -> list[Path]:
        return sorted((ROOT / self.folder).glob("*.c"))


EXTENSIONS = (Extension("_events", "bindings/events"), Extension("_numpy", "bindings/numpy", needs_numpy=True))
FOLDERS = tuple(extension.folder for extension in EXTENSIONS)
HEADERS = ("bindings/fast", "python/tack_memory/include", *FOLDERS)
"""Where their headers are. Of the fast lane they use those that know nothing of Go."""


def numpy_headers() -> str:
    try:
        import numpy
    except ImportError:
        fail(f"building needs NumPy's headers: the package numpy, which is not installed for {sys.executable} ('make develop' installs it)")
    return numpy.get_include()


def compile_command(extension: Extension, out: Path, env: dict[str, str], *options: str) -> list[str]:
    includes = [f"-I{ROOT / folder}" for folder in HEADERS] + python_includes()
    if extension.needs_numpy:
        includes += ["-isystem", numpy_headers()]
    flags = ["-std=gnu17", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", *WARNINGS, *options]
    return [*shlex.split(env["CC"]), *flags, *includes, *map(str, extension.sources()), "-o", str(out)]


def inputs(extension: Extension, command: list[str]) -> str:
    """Fingerprint of all that an extension is made from."""
    digest = hashlib.sha256(repr((sys.version, command)).encode())
    if extension.needs_numpy:
        digest.update(importlib.metadata.version("numpy").encode())
    headers = [header for folder in HEADERS for header in sorted((ROOT / folder).glob("*.h"))]
    for file in [Path(__file__), *extension.sources(), *headers]:
        digest.update(repr((str(file), file.stat().st_mtime_ns, file.stat().st_size)).encode())
    return digest.hexdigest()


def build_extensions(env: dict[str, str], sanitizer: str = "", strip: bool = True) -> list[Path]:
    """Build what changed; returns all files."""
    made = []
    asan = sanitizer == "asan"  # Go's race detector sees no C
    for extension in EXTENSIONS:
        out = ROOT / "build" / ("asan" if asan else "lib") / f"{extension.name}{SUFFIX}"
        options = ["-shared", *(["-fsanitize=address", "-fno-omit-frame-pointer"] if asan else ["-DNDEBUG"]), *(["-s"] if strip and not asan else [])]
        command = compile_command(extension, out, env, *options)
        stamp, now = out.with_suffix(".inputs"), inputs(extension, command)
        if not (out.exists() and stamp.exists() and stamp.read_text() == now):
            out.parent.mkdir(parents=True, exist_ok=True)
            run(f"build {out.name}", *command, env=env)
            stamp.write_text(now)
        made.append(out)
    return made


def check() -> None:
    """Compile with every warning an error, into nothing."""
    env = environment()
    for extension in EXTENSIONS:
        run(f"check the C of {extension.folder}", *compile_command(extension, Path("/dev/null"), env, "-Werror", "-shared"), env=env)


if __name__ == "__main__":
    check()
