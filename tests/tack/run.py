"""Tack itself, plugged in: `make test-tack TACK=path`, where path is a checkout of Tack's sources.

    suites   Tack's own tests: as they are, plugged in without a budget, and with the CPU backend on a simulated device under several budgets, in both address
             modes. Each test must end as it does without us, and under a budget something must have been spilled and brought back. Some of Tack's tests
             measure time, and fail now and then on a machine that is busy with something else: those that ended otherwise are named, and run again, with all
             the tests of their files (which of them goes wrong may depend on the ones before), with us and without. Such a test counts as the same only
             where it passes every time, on both sides.
    hosts    our tests of the field generation, on Tack
    flying   flying edges over 63^3 cells: the same bytes without us and under budgets
    cuda     the buffers of its CUDA backend, over the software CUDA driver
    sweep    a pipeline of Tack's algorithms over a mesh of at least three times the budget
    storm    two threads that launch, one that reads, one that changes the budget, for a minute in each address mode
    launch   what a warm launch costs with us and without, in turns: printed, with the targets beside; it fails only where it would measure something else

Without a checkout it says so and succeeds. Uses this checkout as it is built (`make build`), and makes an environment of its own under build/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "tack"
PACKAGES = ("tack-core", "tack-rendering", "tack-vis")
PARTS = ("suites", "hosts", "flying", "cuda", "sweep", "storm", "launch")

AGAIN = 2
"""How often a file with a test that ended otherwise is run again, on each side."""

PLUGGED = ["--tack-memory-outcomes-plugged"]
MODES: list[tuple[str, list[str]]] = [
    ("plugged in, no budget", PLUGGED),
    *(
        (f"simulated, budget {size}, addresses {mode}", ["--device-memory-simulate", size, "--device-memory-simulate-addresses", mode])
        for mode in ("fresh", "reuse")
        for size in ("0", "64 KiB", "1 MiB")
    ),
]


def main() -> int:
    """Run the parts that are named; 0 where all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="part", help=", ".join(PARTS))
    parser.add_argument("--tack", default=os.environ.get("TACK", ""), help="path of a checkout of Tack's sources")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    tack = Path(options.tack).resolve()
    if not options.tack:
        print("test-tack: skipped: no checkout of Tack's sources is named (make test-tack TACK=path)")
        return 0
    if not (tack / "packages" / "tack-core" / "src" / "tack").is_dir():
        print(f"test-tack: {tack} is no checkout of Tack's sources: it has no packages/tack-core/src/tack", file=sys.stderr)
        return 2
    world = World(tack)
    failed = [part for part in PARTS if part in options.parts and not world.run(part)]
    print(f"test-tack: failed: {', '.join(failed)}" if failed else "test-tack: all is well")
    return 1 if failed else 0


class World:
    """One checkout of Tack, and an interpreter that has what it needs."""

    def __init__(self, tack: Path) -> None:
        self.tack = tack
        self.python = environment()
        ours = [ROOT / "python", HERE]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TACK_MEMORY_")},
            "PYTHONPATH": os.pathsep.join(str(path) for path in (*ours, *(tack / "packages" / name / "src" for name in PACKAGES))),
            "PYTHONDONTWRITEBYTECODE": "1",  # the checkout stays as it is
        }

    def run(self, part: str) -> bool:
        print(f"test-tack: {part}", flush=True)
        if part == "suites":
            return self.suites()
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
        commands = {
            "hosts": [*tests, "-k", "tack and not fieldhost", "tests/py/hosts/field"],
            "flying": [*tests, "tests/tack/test_flying_edges.py"],
            "cuda": [*tests, "tests/tack/test_cuda_buffers.py"],
            "sweep": ["tests/tack/sweep.py"],
            "storm": ["tests/tack/storm.py"],
            "launch": ["tests/tack/launch.py"],
        }
        return self.start(commands[part], ROOT).returncode == 0

    def start(self, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([str(self.python), "-X", "faulthandler", *arguments], cwd=folder, env=self.environment, check=False)

    # ---- Tack's own tests

    def suites(self) -> bool:
        plain = self.outcomes([])
        print(f"  plain: {told(plain)}", flush=True)
        if not plain["outcomes"] or plain["code"] not in (0, 1):
            print("  Tack's tests do not run here", file=sys.stderr)
            return False
        return all([self.compare(plain, name, options) for name, options in MODES])

    def compare(self, plain: dict, name: str, options: list[str]) -> bool:
        """Whether Tack's tests end with us as they do without."""
        found = self.outcomes(options)
        print(f"  {name}: {told(found)}", flush=True)
        if found["code"] not in (0, 1):
            print(f"  {name}: pytest ended with {found['code']}: not all tests were run", file=sys.stderr)
            return False
        if found["deselected"] != plain["deselected"]:
            print(f"  {name}: {found['deselected']} tests were deselected, and {plain['deselected']} without us", file=sys.stderr)
            return False
        moved = found["memory"]
        if options != PLUGGED and (moved is None or not moved["spills"] or not moved["restores"]):
            print(f"  {name}: nothing was spilled and brought back: this shows nothing", file=sys.stderr)
            return False
        differing = differences(plain, found)
        if not differing:
            return True
        for test in differing:
            print(f"    ended otherwise: {test}: {ended(plain, test)} without us, {ended(found, test)} with us", flush=True)
        files = files_of(differing)
        without, with_us = [self.outcomes([], files) for _ in range(AGAIN)], [self.outcomes(options, files) for _ in range(AGAIN)]
        wrong = [test for test in differing if not same_each_time(test, without, with_us)]
        for test in differing:
            ends = " and ".join(f"{', '.join(ended(one, test) for one in runs)} {side}" for side, runs in (("without us", without), ("with us", with_us)))
            print(f"    {'differs' if test in wrong else 'is the same when run again'}: {test}: {ends}", flush=True)
        print(f"  {name}: {len(differing)} ended otherwise and were run again {AGAIN} times on each side: {len(wrong)} of them differ", flush=True)
        return not wrong

    def outcomes(self, options: list[str], tests: list[str] | None = None) -> dict:
        """How each of Tack's tests ends."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "outcomes.json"
            loaded = (
                ["-p", "_tack_memory_pytest", "-p", "outcomes", "--tack-memory-outcomes", str(file)]
                if options
                else ["-p", "outcomes", "--tack-memory-outcomes", str(file)]
            )
            begun = time.monotonic()
            done = subprocess.run(
                [str(self.python), "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider", *loaded, *options, *(tests or [])],
                cwd=self.tack, env=self.environment, check=False, capture_output=True, text=True,
            )  # fmt: skip
            if not file.exists():
                print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
                return {"outcomes": {}, "code": done.returncode, "seconds": 0.0, "memory": None, "deselected": 0}
            return {**json.loads(file.read_text()), "code": done.returncode, "seconds": time.monotonic() - begun}


def differences(left: dict, right: dict) -> list[str]:
    """The tests that do not end in the same way."""
    return sorted(test for test in left["outcomes"].keys() | right["outcomes"].keys() if left["outcomes"].get(test) != right["outcomes"].get(test))


def files_of(tests: list[str]) -> list[str]:
    """The files that these tests are in."""
    return sorted({test.partition("::")[0] for test in tests})


def ended(found: dict, test: str) -> str:
    """How a test ended."""
    return str(found["outcomes"].get(test, "not run"))


def same_each_time(test: str, without: list[dict], with_us: list[dict]) -> bool:
    """Whether a test that was run again passed every time, on both sides. One that fails without us, too, shows nothing, and so counts as one that differs."""
    return all(ended(found, test) == "passed" for found in (*without, *with_us))


def told(found: dict) -> str:
    ends = list(found["outcomes"].values())
    counts = ", ".join(f"{ends.count(end)} {end}" for end in ("passed", "failed", "error", "skipped") if end in ends)
    moved = found["memory"]
    spilled = f"; {moved['spills']} spills, {moved['restores']} restores, peak {moved['peak']} bytes" if moved else ""
    return f"{counts}, {found['deselected']} deselected in {found['seconds']:.0f} s{spilled}"


def environment() -> Path:
    """An interpreter with what Tack needs, of the same version as this one: the native part was built for it."""
    folder, wanted = ROOT / "build" / "tack" / f"python{sys.version_info.major}.{sys.version_info.minor}", HERE / "requirements.txt"
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted.read_text():
        print(f"test-tack: installing {wanted.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(wanted)], check=True)
        installed.write_text(wanted.read_text())
    return python


if __name__ == "__main__":
    sys.exit(main())
