"""NumPy's own test suite, with each allocator of tack_memory.numpy in the whole process: `make test-numpy`.

First as NumPy comes, without tack_memory; then with the default allocator counted, and with each other one. Each test must end as it does without us, but for
those that are named below with their reason. One that ended otherwise is run again, with all the tests of its file, with us and without: it counts as the same
only where it passes every time, on both sides. After each run the books are looked at: what they say is alive must be what Python's objects lead to.

    run.py [--allocator NAME]... [--here] [--logs FOLDER] [TESTS...]

Without TESTS all of NumPy's are run (an hour or two on two cores), and ten million small arrays of each allocator are made, which must leave nothing
behind (leaks.py). Uses this checkout as it is built (`make build`), in an environment of its own under build/;
with --here in the interpreter that runs this, where the tests that need Meson are skipped.
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
HERE = ROOT / "tests" / "numpy_suite"

ALLOCATORS: dict[str, dict[str, object]] = {
    "default": {},
    "aligned-64": {"allocator": "aligned", "align": 64},
    "aligned-4096": {"allocator": "aligned", "align": 4096},
    "hugepage": {"allocator": "hugepage"},
    "shared": {"allocator": "shared"},
    "mmap": {"allocator": "mmap", "path": "arrays"},
}
"""Arguments of tack_memory.numpy.install."""

EVERYTHING = ["numpy"]

SMALL_ARRAYS = 10_000_000

EXCEPTIONS: dict[str, str] = {}
"""Tests that may end otherwise with us, and why."""

AGAIN = 2
"""How often a file with a test that ended otherwise is run again, on each side."""

UNSEEN_BLOCKS, UNSEEN_BYTES = 100, 1 << 20
"""The most that may be alive without being found: what only C code refers to."""


def main() -> int:
    """Run what is asked for; 0 where all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", default=EVERYTHING, metavar="TESTS", help="modules, such as numpy.linalg or numpy._core.tests.test_indexing")
    parser.add_argument("--allocator", action="append", choices=ALLOCATORS, help="this one only; may be given several times")
    parser.add_argument("--here", action="store_true", help="in this interpreter, not in an environment of its own")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep what each run of pytest prints there")
    options = parser.parse_args()
    suite = Suite(Path(sys.executable) if options.here else environment(), options.tests, options.logs)
    plain = suite.outcomes(None)
    print(f"  without us: {told(plain)}", flush=True)
    if not plain["outcomes"] or plain["code"] not in (0, 1):
        print("  NumPy's tests do not run here", file=sys.stderr)
        return 2
    failed = [name for name in options.allocator or ALLOCATORS if not suite.compare(plain, name)]
    if options.tests == EVERYTHING:
        failed += [f"leaks of {name}" for name in options.allocator or (*ALLOCATORS, "capsule") if not suite.leaks_nothing(name)]
    print(f"numpy: failed: {', '.join(failed)}" if failed else "numpy: all is well")
    return 1 if failed else 0


class Suite:
    """Some of NumPy's tests, and an interpreter that has what they need."""

    def __init__(self, python: Path, tests: list[str], logs: Path | None) -> None:
        self.python, self.tests, self.logs = python, tests, logs
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TACK_MEMORY_", "PYTEST_"))},
            "PATH": os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath))),  # meson
            "PYTHONPATH": os.pathsep.join((str(ROOT / "python"), str(HERE))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NPY_AVAILABLE_MEM": "4 GB",  # else it depends on the moment which of the tests of large arrays are skipped
        }

    def compare(self, plain: dict, name: str) -> bool:
        """Whether NumPy's tests end with this allocator as they do without us, and the books are right afterwards."""
        found = self.outcomes(ALLOCATORS[name])
        print(f"  {name}: {told(found)}", flush=True)
        if found["code"] not in (0, 1) or found["books"] is None:
            print(f"  {name}: pytest ended with {found['code']}: not all tests were run", file=sys.stderr)
            return False
        wrong = faults_of(found["books"])
        for fault in wrong:
            print(f"  {name}: {fault}", file=sys.stderr)
        differing = differences(plain, found)
        for test in differing:
            excuse = EXCEPTIONS.get(test)
            print(f"    ended otherwise: {test}: {ended(plain, test)} without us, {ended(found, test)} with us{f' ({excuse})' if excuse else ''}", flush=True)
        return not wrong and self.same_when_run_again(name, [test for test in differing if test not in EXCEPTIONS])

    def leaks_nothing(self, name: str) -> bool:
        """Whether very many small arrays leave resident memory where it was."""
        done = subprocess.run(
            [str(self.python), str(HERE / "leaks.py"), name, str(SMALL_ARRAYS)], env=self.environment, check=False, capture_output=True, text=True
        )
        print(f"  {done.stdout.strip()}", flush=True)
        if done.returncode:
            print(f"  {name}: leaks.py ended with {done.returncode} {done.stderr[-4000:]}", file=sys.stderr)
        return done.returncode == 0

    def same_when_run_again(self, name: str, differing: list[str]) -> bool:
        if not differing:
            return True
        files = sorted({test.partition("::")[0] for test in differing})
        without = [self.outcomes(None, files) for _ in range(AGAIN)]
        with_us = [self.outcomes(ALLOCATORS[name], files) for _ in range(AGAIN)]
        wrong = [test for test in differing if any(ended(found, test) != "passed" for found in (*without, *with_us))]
        for test in differing:
            ends = " and ".join(f"{', '.join(ended(one, test) for one in runs)} {side}" for side, runs in (("without us", without), ("with us", with_us)))
            print(f"    {'differs' if test in wrong else 'is the same when run again'}: {test}: {ends}", flush=True)
        return not wrong

    def outcomes(self, allocator: dict[str, object] | None, files: list[str] | None = None) -> dict:
        """How each test ends, and the books. files: of NumPy's folder."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "outcomes.json"
            options = ["-p", "allocator_plugin", "--outcomes", str(file), *([] if allocator is None else ["--allocator", json.dumps(allocator)])]
            tests = ["--pyargs", *(self.tests if files is None else [module_of(file) for file in files])]
            begun = time.monotonic()
            done = subprocess.run(
                [str(self.python), "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options, *tests],
                cwd=folder, env={**self.environment, "TMPDIR": folder}, check=False, capture_output=True, text=True,
            )  # fmt: skip
            if not file.exists():
                print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
                return {"outcomes": {}, "code": done.returncode, "seconds": 0.0, "books": None}
            found = {**json.loads(file.read_text()), "code": done.returncode, "seconds": time.monotonic() - begun}
            if self.logs is not None:
                self.logs.mkdir(parents=True, exist_ok=True)
                (self.logs / f"{len(os.listdir(self.logs))}.txt").write_text(f"{allocator}\n{done.stdout}{done.stderr}")
            return found


def faults_of(books: dict) -> list[str]:
    """What is wrong with the books at the end."""
    told, blocks, nbytes = books["told"], books["found_blocks"], books["found_bytes"]
    faults = list(books["wrong"])
    if not told["allocations"]:
        faults.append("nothing was counted: this shows nothing")
    if told["live"] < blocks or told["in_use"] < nbytes:
        faults.append(f"{blocks:,} counted arrays of {nbytes:,} bytes are alive, and the books have {told['live']:,} of {told['in_use']:,} bytes")
    if told["live"] - blocks > UNSEEN_BLOCKS or told["in_use"] - nbytes > UNSEEN_BYTES:
        faults.append(f"the books have {told['live']:,} arrays of {told['in_use']:,} bytes, and only {blocks:,} of {nbytes:,} bytes could be found")
    if told["allocations"] - told["frees"] != told["live"]:
        faults.append(f"{told['allocations']:,} allocations less {told['frees']:,} frees are not the {told['live']:,} alive")
    if told["unknown_frees"]:
        faults.append(f"{told['unknown_frees']:,} frees of memory that was never counted")
    return faults


def module_of(file: str) -> str:
    """The module of one of NumPy's test files, by its path as pytest tells it."""
    parts = Path(file).with_suffix("").parts
    last = len(parts) - 1 - parts[::-1].index("numpy")
    return ".".join(parts[last:])


def differences(left: dict, right: dict) -> list[str]:
    """The tests that do not end in the same way."""
    return sorted(test for test in left["outcomes"].keys() | right["outcomes"].keys() if left["outcomes"].get(test) != right["outcomes"].get(test))


def ended(found: dict, test: str) -> str:
    """How a test ended."""
    return str(found["outcomes"].get(test, "not run"))


def told(found: dict) -> str:
    ends = list(found["outcomes"].values())
    counts = ", ".join(f"{ends.count(end)} {end}" for end in ("passed", "failed", "error", "skipped", "expected failure") if end in ends)
    books = found["books"]
    alive = ""
    if books is not None:
        alive = f"; alive by the books {books['told']['live']:,} arrays of {books['told']['in_use']:,} bytes"
        alive += f", of which {books['found_blocks']:,} of {books['found_bytes']:,} bytes were found"
        alive += f"; {books['told']['allocations']:,} allocations, {books['told']['resizes']:,} resizes, {books['told']['failed']:,} failed"
    return f"{counts} in {found['seconds']:.0f} s{alive}"


def environment() -> Path:
    """An interpreter with what NumPy's tests need, of the same version as this one: the native part was built for it."""
    folder, wanted = ROOT / "build" / "numpy-suite" / f"python{sys.version_info.major}.{sys.version_info.minor}", HERE / "requirements.txt"
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted.read_text():
        print(f"numpy: installing {wanted.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(wanted)], check=True)
        installed.write_text(wanted.read_text())
    return python


if __name__ == "__main__":
    sys.exit(main())
