"""Builds the wheels that go out, and tries each in a clean environment: `make wheels`.

One for each CPython of PYTHONS, for Linux on x86-64 with glibc 2.28 or newer, and an sdist, into dist/. The compiler is PyPI's ziglang, which has the
headers and symbols of each glibc, so that it does not matter what this machine has. auditwheel names the oldest manylinux tag that fits and must have
nothing to add.

Then, in an environment that has nothing else: the package is installed without an index, `doctor` runs, NumPy and the rest of the demo's needs come, the
README's first example prints what the README says, and the demo runs. Last, the sdist must build the same wheel.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from toolchain import ROOT, fail
from wheel_check import GLIBC

PYTHONS = ("3.11", "3.12", "3.13")
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "wheels"
REQUIREMENTS = ROOT / "buildsystem" / "requirements-wheels.txt"
PLATFORM = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
DEMO_NEEDS = ("matplotlib", "numpy", "rich")


def main() -> int:
    """Make what is asked for; the exit code is 0 where all of it can go out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", default=PYTHONS, metavar="PYTHON", help=f"versions to build for; all, if left out: {', '.join(PYTHONS)}")
    parser.add_argument("--skip-missing", action="store_true", help="leave out a Python that this machine does not have, and say so")
    parser.add_argument("--no-sdist", action="store_true", help="leave out the sdist, and building from it")
    options = parser.parse_args()
    unknown = [version for version in options.pythons if version not in PYTHONS]
    if unknown:
        parser.error(f"no wheels are made for Python {', '.join(unknown)}; they are for {', '.join(PYTHONS)}")
    found = {version: find_python(version) for version in options.pythons}
    missing = [version for version, python in found.items() if python is None]
    if missing and not options.skip_missing:
        fail(f"no Python {', '.join(missing)} with headers was found in PATH, pyenv's folder or /opt/python; install it, or leave it out with --skip-missing")
    for version in missing:
        print(f"wheels: Python {version} is not on this machine: left out")
    if len(missing) == len(found):
        fail("there is no Python to build for")
    DIST.mkdir(exist_ok=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    made = [wheel_of(version, python) for version, python in found.items() if python is not None]
    if not options.no_sdist:
        version, python = next((version, python) for version, python in found.items() if python is not None)
        made.append(sdist(version, python))
    for file in made:
        print(f"wheels: {file.relative_to(ROOT)}  {file.stat().st_size / 2**20:.2f} MiB")
    return 0


def find_python(version: str) -> Path | None:
    """An interpreter of that version which has headers and can make a virtual environment."""
    compact = version.replace(".", "")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True),
        f"/opt/python/cp{compact}-cp{compact}/bin/python",
    ]
    asks = "import ensurepip, os, sys, sysconfig as c, venv; print(sys.version_info[:2], os.path.exists(c.get_path('include') + '/Python.h'), sys.executable)"
    for candidate in filter(None, candidates):
        try:
            answer = subprocess.run([candidate, "-c", asks], capture_output=True, text=True, timeout=60, cwd="/", check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            continue  # a shim of pyenv for a version that is not chosen, for one
        prefix = f"({version.replace('.', ', ')}) True "
        if answer.startswith(prefix):
            return Path(answer.removeprefix(prefix))
    return None


def step(what: str, *command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Say what is done, do it without this shell's Python settings, and show what it printed when it fails."""
    print(f"wheels: {what}", flush=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TACK_MEMORY_", "TMSOFT_")) and name != "VIRTUAL_ENV"}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env={**env, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        fail(f"{what}: failed with exit code {done.returncode}, see above")
    return done.stdout


def new_environment(folder: Path, python: Path) -> Path:
    """Its interpreter."""
    step(f"a clean environment with {python}", python, "-m", "venv", "--clear", folder)
    return folder / "bin" / "python"


def builder(version: str, python: Path) -> Path:
    """The interpreter of an environment that can build; the same one again while its requirements have not changed."""
    folder = BUILD / f"builder-{version}"
    stamp, now = folder / "requirements.txt", f"{python}\n{REQUIREMENTS.read_text()}"
    if not (stamp.exists() and stamp.read_text() == now):
        new_environment(folder, python)
        step(f"what builds for Python {version}", folder / "bin" / "python", "-m", "pip", "install", "-q", "-r", REQUIREMENTS)
        stamp.write_text(now)
    return folder / "bin" / "python"


def compiler(python: Path) -> str:
    """A C compiler for the old C library: one file without blanks in its name, which is what make, Go and the rest want."""
    script = python.parent / "zig-cc"
    script.write_text(f'#!/bin/sh\nexec "{python}" -m ziglang cc -target x86_64-linux-gnu.{GLIBC[0]}.{GLIBC[1]} "$@"\n')
    script.chmod(0o755)
    return str(script)


def built(what: str, python: Path, source: Path) -> Path:
    """A raw wheel, tagged linux_x86_64."""
    with tempfile.TemporaryDirectory(dir=BUILD) as out:
        command = [python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source]
        step(what, *command, CC=compiler(python), PATH=f"{python.parent}:{os.environ['PATH']}")
        (wheel,) = Path(out).glob("*.whl")
        return wheel.rename(BUILD / wheel.name)


def wheel_of(version: str, python: Path) -> Path:
    """Build, tag, check and try one wheel."""
    builds = builder(version, python)
    wheel = tagged(builds, built(f"the wheel for Python {version}", builds, ROOT))
    try_out(version, python, wheel)
    return wheel


def tagged(builds: Path, raw: Path) -> Path:
    """The wheel with its manylinux tag, in dist/. auditwheel would copy libraries in that it needs and a machine may lack: there must be none."""
    with tempfile.TemporaryDirectory(dir=BUILD) as out:
        step("auditwheel", builds, "-m", "auditwheel", "repair", "--plat", PLATFORM, "-w", out, raw, PATH=f"{builds.parent}:{os.environ['PATH']}")
        (repaired,) = Path(out).glob("*.whl")
        print("wheels:", step("nothing in it that other machines lack", builds, ROOT / "buildsystem" / "wheel_check.py", repaired).strip())
        for old in DIST.glob(f"{raw.name.rpartition('-')[0]}-*.whl"):
            old.unlink()
        return Path(shutil.move(repaired, DIST / repaired.name))


def try_out(version: str, python: Path, wheel: Path) -> None:
    """Install it where nothing else is, and use it. Nothing of the checkout can be imported there but the examples, which are copied."""
    with tempfile.TemporaryDirectory(prefix="tack_memory-wheel-") as name:
        folder = Path(name)
        clean = new_environment(folder / "env", python)
        step("install it without an index", clean, "-m", "pip", "install", "-q", "--no-index", wheel, cwd=folder)
        doctor = json.loads(step("doctor", clean, "-m", "tack_memory", "doctor", "--json", cwd=folder))
        if not doctor:
            fail(f"{wheel.name}: doctor --json says nothing")
        step("what the demo needs", clean, "-m", "pip", "install", "-q", *pinned(DEMO_NEEDS), cwd=folder)
        code, shown = first_example()
        printed = step("the README's first example", clean, "-c", code, cwd=folder)
        if without_seconds(printed) != without_seconds(shown):
            fail(f"{wheel.name}: the README's first example prints\n{printed}and the README says\n{shown}")
        shutil.copytree(ROOT / "examples", folder / "examples")
        step(
            "the demo",
            clean,
            folder / "examples" / "sweep.py",
            "--device",
            "sim:0",
            "--cells",
            "20000",
            "--steps",
            "3",
            "--output",
            folder / "demo",
            cwd=folder,
        )
        runs = json.loads((folder / "demo" / "result.json").read_text())["runs"]
        if len(runs) != 4 or len({run["sha256"] for run in runs}) != 1 or not runs[2]["spill_count"]:
            fail(f"{wheel.name}: the demo's runs are not four with one result: {runs}")


def pinned(names: tuple[str, ...]) -> list[str]:
    """As the checkout's own environment has them."""
    lines = (ROOT / "buildsystem" / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line.partition("==")[0] in names]


def first_example() -> tuple[str, str]:
    """The first program of the README, and what it prints."""
    found = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    if found is None:
        fail("README.md has no program with its output")
    return found[1], found[2]


def without_seconds(text: str) -> str:
    return re.sub(r"[0-9.e-]+ s>", "... s>", text)


def sdist(version: str, python: Path) -> Path:
    """The sdist, from which the same wheel must come, file by file."""
    builds = builder(version, python)
    for old in DIST.glob("*.tar.gz"):
        old.unlink()
    step("the sdist", builds, "-m", "hatchling", "build", "-t", "sdist", "-d", DIST)
    (archive,) = DIST.glob("*.tar.gz")
    raw = built("a wheel from the sdist", builds, archive)
    (wheel,) = DIST.glob(f"{raw.name.rpartition('-')[0]}-*.whl")
    for file, other in zip(files_of(raw), files_of(wheel), strict=True):
        if file != other:
            fail(f"the wheel from the sdist has {file}, and that from the checkout {other}")
    return archive


def files_of(wheel: Path) -> list[str]:
    """Names of the files in a wheel; those of folders, which auditwheel adds, are none."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(name for name in archive.namelist() if not name.endswith("/"))


if __name__ == "__main__":
    sys.exit(main())
