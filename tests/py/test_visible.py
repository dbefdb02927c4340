"""The vendors' variables that hide devices: what is hidden is no device, and what is left is counted from 0.

A copy of a software driver stands in for the vendor's own library; its setting "masks" makes it obey the variable.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tack_memory._native import sim_library_path

VENDORS = ("CUDA", "HIP", "LEVEL_ZERO")
UNSET = "-"
CASES = [
    ("cuda", "CUDA_VISIBLE_DEVICES", {UNSET: [0, 1, 2], "2,0": [2, 0], "1": [1], "0,9,1": [0], "": []}),
    ("hip", "HIP_VISIBLE_DEVICES", {UNSET: [0, 1, 2], "2,0": [2, 0], "1": [1], "0,9,1": [0], "": [0, 1, 2]}),
    ("level_zero", "ZE_AFFINITY_MASK", {UNSET: [0, 1, 2], "2,0": [0, 2], "1": [1], "9": [], "": [0, 1, 2]}),
]
"""For each kind its variable, and for each value the machine's devices that are left, in the order of their ordinals."""


@pytest.mark.parametrize(("kind", "variable", "cases"), CASES, ids=[kind for kind, _, _ in CASES])
def test_devices_are_those_that_are_not_hidden(kind: str, variable: str, cases: dict[str, list[int]], tmp_path: Path) -> None:
    library = shutil.copy(sim_library_path("sim" if kind == "cuda" else f"sim-{kind}"), tmp_path / "vendor.so")
    environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_VISIBLE_DEVICES", variable)}
    environment |= {f"TACK_MEMORY_{vendor}_LIBRARY": "/nonexistent/library.so" for vendor in VENDORS}
    environment |= {f"TACK_MEMORY_{kind.upper()}_LIBRARY": str(library), "TACK_MEMORY_SIM": "", "TMSOFT_DEVICES": "3", "TMSOFT_MASKS": "1"}

    def told(value: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        hiding = {} if value == UNSET else {variable: value}
        return subprocess.run([sys.executable, *arguments], env=environment | hiding, capture_output=True, text=True, timeout=60, check=False)

    def doctor(value: str) -> tuple[int, list[dict[str, Any]]]:
        done = told(value, "-m", "tack_memory", "doctor", "--json", kind)
        return done.returncode, [device for device in json.loads(done.stdout)["devices"] if device["kind"] == kind and device["usable"]]

    _, all_devices = doctor(UNSET)
    uuids = [device["uuid"] for device in all_devices]
    assert len(set(uuids)) == 3
    for value, left in cases.items():
        names = [f"{kind}:{ordinal}" for ordinal in range(len(left))]
        done = told(value, "-c", "import tack_memory; print(*tack_memory.devices())")
        assert done.stdout.split() == [*names, "cpu"], f"{variable}={value!r}: {done.stderr}"
        code, devices = doctor(value)
        assert code == (0 if left else 1), "a kind that was asked for, and is hidden, is not usable"
        assert [(device["name"], device["uuid"]) for device in devices] == [(f"{kind}:{i}", uuids[number]) for i, number in enumerate(left)]
        hidden = told(value, "-c", f"import tack_memory; tack_memory.allocate(1, device='{kind}:{len(left)}')")
        assert hidden.returncode == 1 and f"unknown device '{kind}:{len(left)}'" in hidden.stderr, hidden.stderr
