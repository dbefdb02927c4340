"""make test-gpu: what it does without a GPU; and with one, which is a software driver under the name by which the vendor's own library is found."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import NO_GPU

from tack_memory._native import sim_library_path

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / script), *arguments]
    return subprocess.run(command, env={**os.environ, **NO_GPU, **environment}, capture_output=True, text=True, timeout=300, check=False)


FILES = {"cuda": ("sim", "libcuda.so.1"), "hip": ("sim-hip", "libamdhip64.so.6"), "level_zero": ("sim-level_zero", "libze_loader.so.1")}
"""The simulated kind of each vendor, and the name of its library that the linker is asked for."""


def run_on(vendors: list[str], folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`make test-gpu` where these vendors' libraries are found. What it writes goes to a folder of the test's, not into bench."""
    libraries = folder / "lib"
    libraries.mkdir()
    for vendor in vendors:
        simulated, file = FILES[vendor]
        shutil.copy(sim_library_path(simulated), libraries / file)
    path = os.pathsep.join(filter(None, [str(libraries), os.environ.get("LD_LIBRARY_PATH")]))
    found = {f"TACK_MEMORY_{vendor.upper()}_LIBRARY": "" for vendor in vendors}
    return run("tests/gpu/run.py", "--quick", "--output", str(folder / "out"), *arguments, LD_LIBRARY_PATH=path, **{**found, **environment})


def test_without_a_gpu_it_says_so_and_claims_nothing(tmp_path: Path) -> None:
    done = run("tests/gpu/run.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was run on a real device, and nothing is claimed about one" in done.stdout and "passed" not in done.stdout
    done = run("tests/gpu/run.py", "--devices", "cuda:0")
    assert done.returncode == 2 and "no GPU cuda:0 whose memory can be spilled works here; there are: none" in done.stderr, "it was asked for"
    done = run("bench/gpu.py", "--output", str(tmp_path / "figures.md"))
    assert done.returncode == 0 and "nothing was measured" in done.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "software"), [("cuda", "sim"), ("hip", "sim-hip"), ("level_zero", "sim-level_zero")])
def test_the_figures_of_a_device(kind: str, software: str, tmp_path: Path) -> None:
    library = shutil.copy(sim_library_path(software), tmp_path / "vendor.so")  # another file: another driver, which this process has not started
    output = tmp_path / "figures.md"
    done = run("bench/gpu.py", "--rounds", "2", "--output", str(output), **{f"TACK_MEMORY_{kind.upper()}_LIBRARY": str(library)})
    assert done.returncode == 0, done.stdout + done.stderr
    text = output.read_text()
    assert f"## {kind}:0: Software" in text and ("without memory pools" if kind == "level_zero" else "with memory pools") in text
    rows = [line.split("|")[1:4] for line in text.splitlines() if line.startswith("| ") and not line.startswith("| what")]
    wanted = ["copy to the device, pageable, 64 MiB", "copy to the host, pinned, 4 KiB", "allocate and free, tack_memory, 4 KiB"]
    wanted += ["spill, 64 MiB", "device_ptr, in a loop"]
    for what in wanted:
        assert any(row[0].strip() == what and float(row[1]) > 0 for row in rows), f"{what} is missing in:\n{text}"
    assert any("vendor's pool" in row[0] for row in rows) == (kind != "level_zero")


RESULTS = ROOT / "bench" / "RESULTS-gpu.md"


@pytest.mark.parametrize("kind", FILES)
def test_all_parts_run_on_the_device_that_is_there(kind: str, tmp_path: Path) -> None:
    before = RESULTS.read_bytes() if RESULTS.exists() else None
    device = f"{kind}:0"
    done = run_on([kind], tmp_path, "--tests", "tests/py/test_examples.py", "tests/py/test_arrays.py")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"test-gpu: {device}: Software ") and lines[-1] == f"test-gpu: on {device}: all passed"
    assert [line.split()[1] for line in lines if re.match("test-gpu: (python|go|sweep|figures): ", line)] == ["python:", "go:", "sweep:", "figures:"]
    assert re.search("^[1-9][0-9]* passed, [0-9]+ deselected", done.stdout, re.MULTILINE), done.stdout
    assert re.search(f"^on {device}: [1-9][0-9]* tests\\. Left out: ", done.stdout, re.MULTILINE), done.stdout
    assert f"--- PASS: TestReal/{device}/Contents" in done.stdout
    result = json.loads((tmp_path / "out" / device / "result.json").read_text())
    assert result["device"] == device and "All 3 runs gave the same results" in done.stdout
    assert f"## {device}: Software" in (tmp_path / "out" / "RESULTS-gpu.md").read_text()
    assert (RESULTS.read_bytes() if RESULTS.exists() else None) == before, "a test has written figures of a device that is none"


def test_only_the_devices_that_were_named(tmp_path: Path) -> None:
    environment = {"TMSOFT_DEVICES": "2"}
    done = run_on(["cuda", "hip"], tmp_path, "--only", "sweep", "--devices", "cuda:1, hip:0", **environment)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "test-gpu: on cuda:1, hip:0: all passed", done.stdout + done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["cuda:1", "hip:0"]
    assert "test-gpu: cuda:0: Software" in done.stdout, "it is there"


def test_a_part_that_fails_fails_the_run_and_the_others_run(tmp_path: Path) -> None:
    """No test of that file is for a device, which is no success; and the device is too small for what the figures allocate, but not for a small sweep."""
    arguments = ("--only", "figures", "sweep", "python", "--tests", "tests/py/test_plan_coverage.py")
    done = run_on(["cuda"], tmp_path, *arguments, TMSOFT_CAPACITY=str(1 << 20))
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "test-gpu: on cuda:0: FAILED: python, figures", done.stdout
    assert "All 3 runs gave the same results" in done.stdout and not (tmp_path / "out" / "RESULTS-gpu.md").exists()


@pytest.mark.parametrize(
    ("script", "passed"),
    [
        ("print('ok')", True),
        ("print('testing: warning: no tests to run')", False),
        ("import sys; print('testing: warning: no tests to run', file=sys.stderr)", False),
        ("raise SystemExit(1)", False),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", False),
    ],
)
def test_what_counts_as_passed(script: str, passed: bool) -> None:
    passes = runpy.run_path(str(ROOT / "tests" / "gpu" / "run.py"))["passes"]
    assert passes([sys.executable, "-c", script], dict(os.environ)) is passed


def test_it_says_what_was_left_out_and_why(tmp_path: Path) -> None:
    """Counted, and nothing twice: with what ran there it is all that pytest has collected."""
    shutil.copy(sim_library_path("sim"), tmp_path / "vendor.so")
    environment = {**os.environ, **NO_GPU, "TACK_MEMORY_CUDA_LIBRARY": str(tmp_path / "vendor.so"), "TACK_MEMORY_TEST_DEVICES": "cuda:0"}
    files = ["tests/py/test_storm.py", "tests/py/test_exit.py", "tests/py/test_fork.py"]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "gpu", *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    told = re.search(r"on cuda:0: (\d+) tests\. Left out: (\d+) are these on other devices, (\d+) steer a software driver, (\d+) are on no device", done.stdout)
    collected = re.search(r"(\d+)/(\d+) tests collected", done.stdout)
    assert told and collected, done.stdout + done.stderr
    chosen, twins, steer, rest = map(int, told.groups())
    assert (chosen, chosen + twins + steer + rest) == tuple(map(int, collected.groups()))
    assert twins == 3 * chosen and steer == 3 and rest > 0, "each of them runs on three simulated devices, too; one test looks into the driver"
