"""Threads that launch, read and spill at once: right results, and wrong ones as soon as the holds are left out.

For longer, set HOST_STORM_SECONDS; `make test-tack` does the same over Tack itself for a minute in each address mode.
"""

from __future__ import annotations

import re
from types import ModuleType

import pytest
from storms import storm_on_cpu, storm_on_gpu
from support import crashed, run_python
from worlds import VENDORS, Vendor, cpu_script, gpu_script


def test_two_threads_launch_one_reads_and_one_spills(gpu: ModuleType, vendor: Vendor) -> None:
    assert storm_on_gpu(gpu, vendor.device)


def test_the_same_on_a_simulated_cpu(simulated: ModuleType, simulated_device: str) -> None:
    assert storm_on_cpu(simulated, simulated_device)


WRONG = re.compile(r"AssertionError: .* in the place of |RuntimeError: .*(error: |ze_result_t )")
"""What a storm without holds ends with, where it does not crash: wrong numbers, or a driver that was given memory which is gone."""


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.arch)
@pytest.mark.parametrize("kind", ["launch", "reduce"])
def test_hold_ablation_of_a_storm(vendor: Vendor, kind: str) -> None:
    """Freed memory is unmapped, and never used again. The same script is right with all holds."""
    script = """
        import storms
        print("right:", storms.storm_on_gpu(fh, device, seconds=20), flush=True)
    """
    done = run_python(gpu_script(vendor, script, left_out=kind), TMSOFT_QUARANTINE="1")
    assert done.returncode != 0 and not done.stdout, f"nothing went wrong without the {kind} holds: {done.stdout}"
    assert crashed(done.returncode, done.stderr) or WRONG.search(done.stderr), done.stderr


def test_hold_ablation_of_a_storm_on_a_simulated_cpu() -> None:
    script = """
        import storms
        tack_memory.set_memory_budget("1 MiB", device)  # until the storm begins, nothing is spilled
        print("right:", storms.storm_on_cpu(fh, device, seconds=20), flush=True)
    """
    done = run_python(cpu_script(script, left_out="launch dispatch"))
    assert done.returncode != 0 and not done.stdout, f"nothing went wrong without holds: {done.stdout}"
    assert crashed(done.returncode, done.stderr) or WRONG.search(done.stderr), done.stderr
