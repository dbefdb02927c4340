"""make test-gpu: what it does without a GPU, and the figures that it would write of one (of software drivers here, loaded as a vendor's)."""

from __future__ import annotations

import os
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


def test_without_a_gpu_it_says_so_and_claims_nothing(tmp_path: Path) -> None:
    done = run("tests/gpu/run.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was run on a real device, and nothing is claimed about one" in done.stdout and "passed" not in done.stdout
    done = run("bench/gpu.py", "--output", str(tmp_path / "figures.md"))
    assert done.returncode == 0 and "nothing was measured" in done.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "simulated"), [("cuda", "sim"), ("hip", "sim-hip"), ("level_zero", "sim-level_zero")])
def test_the_figures_of_a_device(kind: str, simulated: str, tmp_path: Path) -> None:
    library = shutil.copy(sim_library_path(simulated), tmp_path / "vendor.so")  # another file: another driver, which this process has not started
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
