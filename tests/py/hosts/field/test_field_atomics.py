"""Kernels with atomic operations: before each launch the host reads the arrays' addresses, to see that their elements are aligned."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support import crashed, run_python
from worlds import VENDORS, Vendor, cpu_script, gpu_script

import tack_memory
from tack_memory.hosts import plugged

Seen = tuple[int, str, dict[str, int]]
"""An address, our Buffer's state, and what holds it."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """What fieldhost's check finds, each time that it runs."""
    import fieldhost

    utils, found = fieldhost.runtime.kernel_utils, []
    check: Callable[..., None] = utils.check_atomic_alignment

    def watched(kernel: Any, args: Any) -> None:
        known = plugged("fieldhost")
        assert known is not None
        for place in kernel.atomic:
            (mine,) = known.adapter.buffers_of(args[place]) or ()
            state, holds = mine.state, mine.holds  # before an address is read: that may bring something back
            found.append((args[place]._buffer.address, state, holds))
        check(kernel, args)

    monkeypatch.setattr(utils, "check_atomic_alignment", watched)
    return found


def histogram(host: ModuleType) -> Any:
    @host.kernel(atomic="out")
    def count(values: Any, out: Any) -> None:
        host.atomic_add(out, values, 1)

    return count


def check_that_it_is_there(host: ModuleType, seen: list[Seen]) -> None:
    count = histogram(host)
    values, out = host.field_like(np.array([1, 3, 3, 0], np.int64)), host.zeros(host.i64, (4,))
    for launches in (1, 2):  # cold, where the kernel is compiled; and warm
        tack_memory.spill(values, out)
        count(values, out)
        assert len(seen) == launches
        address, state, holds = seen[-1]
        assert (address % 8, state, holds) == (0, "resident", {"launch": 1})
    assert out.to_numpy().tolist() == [2, 2, 0, 4]


def test_an_address_is_read_of_what_is_there_and_held(gpu: ModuleType, seen: list[Seen]) -> None:
    with gpu.memory_budget(1):
        check_that_it_is_there(gpu, seen)


@pytest.mark.parametrize("cpu_host", ["fieldhost"], indirect=True)
def test_an_address_is_read_of_what_is_there_and_held_on_a_simulated_cpu(simulated: ModuleType, seen: list[Seen]) -> None:
    check_that_it_is_there(simulated, seen)


def test_what_an_object_brings_is_held_too(gpu: ModuleType, seen: list[Seen]) -> None:
    @gpu.data_oriented
    class Bins:
        def __init__(self) -> None:
            self.counts = gpu.zeros(gpu.i64, (4,))

    @gpu.kernel(atomic="counts")
    def count(values: Any, counts: Any) -> None:
        gpu.atomic_add(counts, values, 1)

    values, bins = gpu.field_like(np.array([2, 2], np.int64)), Bins()
    tack_memory.spill(values, bins.counts)
    with gpu.memory_budget(1):
        count(values, bins)
    assert [one[1:] for one in seen] == [("resident", {"launch": 1})]
    assert bins.counts.to_numpy().tolist() == [0, 0, 2, 0]


def test_the_hosts_refusal_is_the_hosts_and_ends_the_holds(gpu: ModuleType) -> None:
    """Memory of somebody else, and not where its elements would have to be."""
    count = histogram(gpu)
    owner, values = gpu.zeros(gpu.u8, 100), gpu.field_like(np.array([1], np.int64))
    with tack_memory.hold(owner):
        odd = gpu.field_from_ptr(owner._buffer.address + 1, gpu.i64, 4)
    with pytest.raises(ValueError, match="count: atomic operations need elements of 8 bytes"):
        count(values, odd)
    assert tack_memory.spill(owner, values) == 108


LOOKS = """
    utils = fh.runtime.kernel_utils
    check = utils.check_atomic_alignment
    def looks_there(kernel, args):
        # What a host may do there that reads all addresses before it uses one.
        check(kernel, args)
        addresses = [args[place]._buffer.address for place in kernel.atomic]
        for address, place in zip(addresses, kernel.atomic):
            found = utils.values_at(address, np.dtype("i8"), args[place].shape)
            assert (found == place).all(), f"{found} in the place of {place}"
    utils.check_atomic_alignment = looks_there

    @fh.kernel(atomic="a b")
    def count(a, b):
        fh.atomic_add(a, 0, 1)
        fh.atomic_add(b, 0, 1)

    fields = [fh.full(fh.i64, 100_000, n) for n in range(2)]
    tack_memory.set_memory_budget(800_000, device)  # one of them
    tack_memory.spill(*fields)
    count(*fields)
    assert [field.to_numpy()[0] for field in fields] == [1, 2]
    print("right")
"""


@pytest.mark.parametrize("vendor", [*VENDORS, None], ids=lambda vendor: vendor.arch if vendor else "cpu")
def test_hold_ablation_of_the_addresses_of_atomics(vendor: Vendor | None) -> None:
    """It is the hold of the whole launch that keeps them: without it, the second address that is read sends the first one's memory away."""

    def run(left_out: str) -> Any:
        script = cpu_script(LOOKS, left_out=left_out) if vendor is None else gpu_script(vendor, LOOKS, left_out=left_out)
        return run_python(script, TMSOFT_QUARANTINE="1")

    done = run("")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    done = run("launch")
    assert done.returncode != 0 and done.stdout == "", "nothing went wrong without the launch hold: this shows nothing"
    assert crashed(done.returncode, done.stderr) or "in the place of" in done.stderr, done.stderr
