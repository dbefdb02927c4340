"""Generates the C and Python sources of the control plane with gopy, into build/gopy, and mends them.

gopy writes for a program that links libpython and is imported from its own folder; this package needs neither.
Every change below names what it looks for and stops the build when gopy's output no longer has it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import shutil
import sys
from pathlib import Path

from toolchain import ROOT, fail, run

MODULE = "github.com/tack-memory/tack-memory"
GENERATED = ROOT / "build" / "gopy"
PYTHON_FILES = ("go.py", "bindings.py")


def sub(pattern: str, new: str, text: str, what: str, count: int) -> str:
    """re.sub that insists on the number of places changed."""
    text, n = re.subn(pattern, new, text, flags=re.M)
    if n != count:
        fail(f"gopy's output changed: {what}: {n} places found, {count} expected (buildsystem/gopy.py)")
    return text


def patch_go(text: str) -> str:
    """Flags of the building interpreter (libpython, rpath) must not get into the object, nor the command line into a reproducible build."""
    text = sub(r"^#cgo (CFLAGS|LDFLAGS): .*\n", "", text, "#cgo lines", 2)
    return sub(r"^gopy gen .*\n", "", text, "command line", 1)


def patch_build(text: str) -> str:
    """gopy frees the C string of a function that returns one, but not that of a field, of an element, or of a lone error."""
    return re.sub(
        r"^(?:mod\.add_function\(|add_checked_function\(mod, )('\w+', retval\('char\*'\))",
        r"add_checked_string_function(mod, \1",
        text,
        flags=re.M,
    )


def patch_c(text: str) -> str:
    """No generated wrapper enters Go in a forked child: it raises ForkError. DecRef, which __del__ calls, is silent there."""

    def guard(wrapper: re.Match[str]) -> str:
        refuse = "Py_RETURN_NONE;" if wrapper[1] == "DecRef" else "tm_raise_forked();\n        return NULL;"
        return f"{wrapper[0]}\n    if (__builtin_expect(tm_forked, 0)) {{\n        {refuse}\n    }}\n"

    wrappers = len(re.findall(r"^PyObject \*\n_wrap__tm_", text, flags=re.M))
    text, guarded = re.subn(r"^_wrap__tm_(\w+)\([^;{]*\)\n\{\n", guard, text, flags=re.M)
    if not guarded or guarded != wrappers:
        fail(f"gopy's output changed: {guarded} of {wrappers} C wrappers got their fork guard (buildsystem/gopy.py)")
    return text


def patch_py(text: str) -> str:
    """gopy's modules change the process's working directory while they import: not thread safe, and fails in a deleted folder."""
    text = sub(r"^# gopy gen .*\n", "", text, "command line", 1)
    text = sub(r"^cwd = os\.getcwd\(\)\n.*\nos\.chdir\(currentdir\)\n", "", text, "chdir in", 1)
    text = sub(r"^os\.chdir\(cwd\)\n", "", text, "chdir out", 1)
    text = sub(r"^import os,sys,inspect,collections$", "import collections", text, "imports", 1)
    # An object whose __init__ failed has a __del__ all the same.
    return re.sub(r'^class GoClass\(object\):\n\t""".*"""\n', lambda m: m[0] + "\thandle = 0\n", text, flags=re.M)


def _fingerprint() -> str:
    """Of all that the output depends on. Not of where this Python is: pip builds in an environment of its own each time."""
    sources = sorted(f for f in (ROOT / "bindings").glob("*.go") if not f.name.endswith("_test.go"))
    digest = hashlib.sha256(f"{sys.version} pybindgen {importlib.metadata.version('pybindgen')}".encode())
    for f in [*sources, ROOT / "go.mod", Path(__file__)]:
        digest.update(f.name.encode() + b"\0" + f.read_bytes())
    return digest.hexdigest()


def generate(env: dict[str, str]) -> Path:
    """Bring build/gopy up to date and return it.

    gopy emits functions in a random order, which would defeat Go's build cache, so it runs only when its input changed.
    """
    out, stamp = GENERATED, GENERATED / "fingerprint"
    if stamp.exists() and stamp.read_text() == _fingerprint():
        return out
    if not (ROOT / "bindings" / "fast" / "fast.h").exists():
        fail("bindings/fast/fast.h is missing from the source tree")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    gopy = ["go", "tool", "gopy", "gen", f"-vm={sys.executable}", "-name=tm", "-no-make", f"-output={out}", "./bindings"]
    run("generate the control plane (gopy)", *gopy, env=env)
    (out / "tm.go").write_text(patch_go((out / "tm.go").read_text()))
    run("generate: goimports", "go", "tool", "goimports", "-w", str(out / "tm.go"), env=env)
    (out / "build.py").write_text(patch_build((out / "build.py").read_text()))
    run("generate its C wrappers (pybindgen)", sys.executable, "build.py", env=env, cwd=out)
    (out / "tm.c").write_text(patch_c((out / "tm.c").read_text()))
    # tm.c includes this; cgo's own header has the same declarations, so one go build is enough.
    (out / "tm_go.h").write_text('#include "_cgo_export.h"\n#include "fast.h"\n')
    # The blank import of the fast lane is here and not in package bindings: there, 'go test ./bindings' could not link.
    (out / "fast.go").write_text(f'package main\n\n// #cgo CFLAGS: -I${{SRCDIR}}/../../bindings/fast\nimport "C"\n\nimport _ "{MODULE}/bindings/fast"\n')
    (out / "exports.map").write_text("{ global: PyInit__tm; PyInit__fast; local: *; };\n")
    for name in PYTHON_FILES:
        (out / name).write_text(patch_py((out / name).read_text()))
    stamp.write_text(_fingerprint())
    return out
