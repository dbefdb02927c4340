"""The device that a framework's CPU backend computes on under `install(host, simulate=...)`: "sim-cpu:0"."""

from __future__ import annotations

import contextlib
import ctypes
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from support import KIB, MIB, books_of, contents, crashed, filled, pattern, run_python

import tack_memory as tm
from tack_memory._control import call
from tack_memory._native import _fast
from tack_memory.hosts._simulate import DEVICE, configure

STALE = 0x7B  # what memory that may be handed out again is overwritten with


@pytest.fixture(params=["fresh", "reuse"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both address modes."""
    yield str(request.param)
    tm.set_memory_budget(None, DEVICE)


@pytest.fixture(autouse=True, scope="module")
def large_and_fresh_for_others() -> Iterator[None]:
    """Tests in other files of this process find the device as it is by default."""
    yield
    with contextlib.suppress(ValueError):  # a test that failed has kept a buffer
        configure("1 GiB", mode="fresh")
    tm.set_memory_budget(None, DEVICE)


@pytest.fixture
def fresh() -> Iterator[None]:
    configure("1 GiB", mode="fresh")
    yield
    tm.set_memory_budget(None, DEVICE)


def at(pointer: int, nbytes: int) -> Any:
    """Memory of the device, which is the host's, too."""
    return (ctypes.c_ubyte * nbytes).from_address(pointer)


def check() -> None:
    call("Check", tm._devices.resolve(DEVICE))


# ---- what it is


def test_it_exists_only_once_it_was_asked_for() -> None:
    done = run_python(
        """
        import subprocess, sys
        import tack_memory as tm
        for name in ("sim-cpu:0", "sim-cpu"):
            try:
                tm.memory_info(name)
            except ValueError as error:
                print("install(host, simulate=" in str(error) and "known devices: " in str(error))
        print([name for name in tm.devices() if name.startswith("sim-cpu")])
        from tack_memory.hosts._simulate import configure
        print(configure("64 KiB"), [name for name in tm.devices() if name.startswith("sim-cpu")], tm.memory_info().device)
        try:
            tm.memory_info("sim-cpu:1")
        except ValueError as error:
            print("1 of this kind" in str(error))
        """,
        TACK_MEMORY_SIM="",
        TACK_MEMORY_CUDA_LIBRARY="/nonexistent",
        TACK_MEMORY_HIP_LIBRARY="/nonexistent",
        TACK_MEMORY_LEVEL_ZERO_LIBRARY="/nonexistent",
    )
    assert done.stdout.splitlines() == ["True", "True", "[]", "sim-cpu:0 ['sim-cpu:0'] cpu", "True"], done.stderr


def test_doctor_says_how_it_comes_to_be() -> None:
    done = run_python("import sys; from tack_memory.__main__ import main; sys.exit(main(['doctor', 'sim-cpu:0']))")
    assert done.returncode == 1
    assert "sim-cpu:0: it comes to be in a process that calls tack_memory.install(host, simulate=" in done.stdout


def test_doctor_describes_it(mode: str) -> None:
    from tack_memory import _doctor

    configure(simulate_capacity="1 MiB", mode=mode)
    examined = _doctor.examine(["sim-cpu"])
    (device,) = [found for found in examined["devices"] if found["name"] == DEVICE]
    assert (device["total"], device["spills"], device["pools"], examined["refused"]) == (MIB, True, None, {})
    text = _doctor.to_text(examined)
    assert "sim-cpu: simulated, for the CPU backend of a framework" in text
    assert {"fresh": "addresses are never used again", "reuse": "addresses are reused at once"}[mode] in text


def test_its_memory_is_read_and_written_by_the_host_at_its_address(mode: str) -> None:
    configure("1 MiB", mode=mode)
    buffer = filled(1000, DEVICE)
    with tm.launch(buffer) as (pointer,):
        assert pointer % 64 == 0
        assert bytes(at(pointer, 1000)) == pattern(1000)
        at(pointer, 1000)[:3] = [7, 8, 9]
    assert contents(buffer)[:4] == bytes([7, 8, 9, pattern(4)[3]])
    buffer.spill()
    buffer.copy_from_host(b"abc")  # on the host copy
    assert buffer.is_spilled
    assert bytes(at(buffer.device_ptr, 4)) == b"abc" + pattern(4)[3:]


def test_a_consumer_of_dlpack_uses_it_in_place(fresh: None) -> None:
    buffer = filled(4096, DEVICE)
    exported = buffer.export("dlpack")
    array = numpy.from_dlpack(exported)
    assert array.tobytes() == pattern(4096)
    assert array.ctypes.data == buffer.device_ptr
    assert buffer.spill() == 0  # somebody has it
    del exported, array
    assert buffer.spill() == 4096


def test_the_hosts_own_memory_is_counted_and_stays_where_it_is(mode: str) -> None:
    configure(0, mode=mode)
    memory = numpy.full(100, 3, numpy.uint8)
    with pytest.raises(ValueError, match="unmovable"):
        tm.adopt(memory.ctypes.data, 100, DEVICE, how="host")
    with pytest.raises(ValueError, match="cuMemAlloc"):
        tm.adopt(memory.ctypes.data, 100, DEVICE, how="cuMemAlloc")
    adopted = tm.adopt(memory.ctypes.data, 100, DEVICE, how="host", movable=False, reason="MPI")
    other = filled(50, DEVICE)
    with tm.launch(other):
        assert books_of(DEVICE) == (150, 0)
    assert adopted.spill() == 0
    assert contents(adopted) == bytes([3]) * 100
    del adopted
    assert memory.tobytes() == bytes([3]) * 100, "it is the host's"


# ---- figures


def test_a_device_without_a_capacity_knows_no_total(mode: str) -> None:
    configure(100_000, mode=mode)
    info = tm.memory_info(DEVICE)
    assert (info.device_total, info.device_free, info.available, info.budget, info.strict) == (None, None, None, 100_000, False)
    with pytest.raises(ValueError, match="share of the total memory of sim-cpu:0, which is unknown"):
        tm.set_memory_budget("80%", DEVICE)


def test_figures_are_exact(mode: str) -> None:
    configure(100_000, mode=mode)
    tm.reset_peak_memory(DEVICE)
    with tm.memory_peak(DEVICE) as peak:
        buffers = [filled(40_001, DEVICE, seed) for seed in range(3)]
        info = tm.memory_info(DEVICE)
        assert (info.in_use, info.spilled, info.footprint, info.peak, info.over_budget) == (80_002, 40_001, 120_003, 80_002, 0)
        with tm.launch(*buffers):
            assert books_of(DEVICE) == (120_003, 0)
            assert tm.memory_info(DEVICE).over_budget == 20_003
        buffers[1].spill()
        assert books_of(DEVICE) == (80_002, 40_001)
        buffers[1].free()
        assert books_of(DEVICE) == (80_002, 0)
    assert (peak.bytes, peak.own, peak.footprint) == (120_003, 120_003, 120_003)
    assert [contents(buffer) for buffer in (buffers[0], buffers[2])] == [pattern(40_001, 0), pattern(40_001, 2)]
    check()


def test_a_capacity_is_counted_to_the_byte(mode: str) -> None:
    configure(simulate_capacity=100_000, mode=mode)
    first, second = filled(60_001, DEVICE, 1), filled(39_999, DEVICE, 2)
    info = tm.memory_info(DEVICE)
    assert (info.in_use, info.spilled, info.device_free, info.device_total, info.budget) == (100_000, 0, 0, 100_000, None)
    third = filled(1, DEVICE, 3)
    assert (first.is_spilled, second.is_spilled) == (True, False)
    assert tm.memory_info(DEVICE).available == 60_000
    with pytest.raises(tm.DeviceMemoryError) as error:
        tm.allocate(100_001, DEVICE)
    assert error.value.reason == "too_large"
    with pytest.raises(tm.DeviceMemoryError) as error, tm.launch(first, second, third):
        pass
    assert error.value.reason == "too_large"
    with tm.launch(first, third):
        assert second.is_spilled
        with pytest.raises(tm.DeviceMemoryError) as error, tm.launch(second):
            pass
        assert (error.value.reason, error.value.in_use, error.value.device_free, error.value.requested) == ("device", 60_002, 39_998, 39_999)
        assert "ENOMEM" in str(error.value)
    assert [contents(buffer) for buffer in (first, second, third)] == [pattern(60_001, 1), pattern(39_999, 2), pattern(1, 3)]
    check()


# ---- spilling


@pytest.mark.parametrize("budget", [0, 1, 64 * KIB])
def test_pressure(mode: str, budget: int) -> None:
    """Launches of random buffers: each finds what the one before has left, and what does not fit in the budget is spilled."""
    configure(budget, mode=mode)
    sizes = [1 + 1999 * place % (24 * KIB) for place in range(40)]
    buffers = [filled(size, DEVICE, place) for place, size in enumerate(sizes)]
    expected = [bytearray(pattern(size, place)) for place, size in enumerate(sizes)]
    choose = random.Random(4)
    for step in range(200):
        restored = tm.memory_info(DEVICE).restore_count
        chosen = choose.sample(range(len(sizes)), 1 + step % 3)
        with tm.launch(*(buffers[place] for place in chosen)) as pointers:
            for place, pointer in zip(chosen, pointers, strict=True):
                there = at(pointer, sizes[place])
                assert bytes(there) == expected[place]
                there[step % sizes[place]] = expected[place][step % sizes[place]] = step & 255
        resident = sum(buffer.nbytes for buffer in buffers if not buffer.is_spilled)
        needed = sum(sizes[place] for place in chosen)
        assert books_of(DEVICE) == (resident, sum(sizes) - resident)
        if tm.memory_info(DEVICE).restore_count != restored:  # else they were there, with what the launch before had
            assert resident <= max(budget, needed)
    check()
    assert [contents(buffer) for buffer in buffers] == [bytes(data) for data in expected]
    info = tm.memory_info(DEVICE)
    assert info.spill_count is not None and info.restore_count is not None and min(info.spill_count, info.restore_count) > 50


def test_at_a_budget_of_0_one_launch_has_all_its_buffers(mode: str) -> None:
    configure(0, mode=mode)
    assert tm.get_memory_budget(DEVICE) == 0
    buffers = [filled(5000 + place, DEVICE, place) for place in range(6)]
    assert [buffer.is_spilled for buffer in buffers] == [True] * 5 + [False]  # the one that was made last
    before = tm.memory_info(DEVICE).over_budget_count
    with tm.launch(*buffers[:4]) as pointers:
        assert len(set(pointers)) == 4
        assert [bytes(at(pointer, buffer.nbytes)) for pointer, buffer in zip(pointers, buffers, strict=False)] == [pattern(5000 + n, n) for n in range(4)]
        assert [buffer.is_spilled for buffer in buffers] == [False] * 4 + [True] * 2
        other = tm.allocate(10, DEVICE)  # spills nothing of the launch
        assert not any(buffer.is_spilled for buffer in buffers[:4])
    del other
    assert tm.memory_info(DEVICE).over_budget_count > before
    assert [contents(buffer) for buffer in buffers] == [pattern(5000 + n, n) for n in range(6)]
    with tm.memory_budget("1 MiB", DEVICE):
        assert tm.get_memory_budget(DEVICE) == MIB
    assert tm.get_memory_budget(DEVICE) == 0, "a budget of 0 comes back"
    with pytest.raises(ValueError, match="0"):
        tm.set_memory_budget(0, DEVICE)  # it is a simulation's, and nobody else's


def test_fresh_addresses_are_never_used_again(fresh: None) -> None:
    seen = set()
    buffer = filled(10_000, DEVICE)
    for _ in range(200):
        pointer = buffer.device_ptr
        assert pointer not in seen
        seen.add(pointer)
        buffer.spill()
        other = tm.allocate(10_000, DEVICE)
        assert other.device_ptr not in seen
        seen.add(other.device_ptr)
    assert contents(buffer) == pattern(10_000)


def test_reused_addresses_are_handed_out_at_once() -> None:
    configure("1 GiB", mode="reuse")
    buffer = filled(10_000, DEVICE)
    pointer = buffer.device_ptr
    buffer.spill()
    assert bytes(at(pointer, 10_000)) == bytes([STALE]) * 10_000, "what a stale pointer reads"
    other = tm.allocate(9_000, DEVICE, zero=False)
    assert other.device_ptr == pointer
    assert contents(other) == bytes([STALE]) * 9_000, "nobody may rely on what memory has that was not written"
    assert buffer.device_ptr != pointer
    assert contents(buffer) == pattern(10_000)
    tm.set_memory_budget(None, DEVICE)


@pytest.mark.parametrize("gone", ["buffer.spill()", "buffer.free()"])
def test_a_stale_pointer_crashes(gone: str) -> None:
    done = run_python(
        f"""
        import ctypes
        import tack_memory as tm
        from tack_memory.hosts._simulate import configure
        buffer = tm.allocate(1000, configure("1 MiB", mode="fresh"))
        pointer = buffer.device_ptr
        print(ctypes.string_at(pointer, 1000) == bytes(1000), flush=True)
        {gone}
        print(ctypes.string_at(pointer, 1), flush=True)
        """
    )
    assert done.stdout.splitlines() == ["True"]
    assert crashed(done.returncode, done.stderr), done.stderr
    assert "string_at" in done.stderr, "faulthandler shows who has read it"


def test_an_overrun_by_one_element_crashes() -> None:
    done = run_python(
        """
        import ctypes
        import tack_memory as tm
        from tack_memory.hosts._simulate import configure
        buffer = tm.allocate(8 * 1000, configure("1 MiB", mode="fresh"))
        array = (ctypes.c_double * 1001).from_address(buffer.device_ptr)
        array[999] = 1
        print(array[999], flush=True)
        array[1000] = 1
        print("written", flush=True)
        """
    )
    assert done.stdout.splitlines() == ["1.0"]
    assert crashed(done.returncode, done.stderr), done.stderr


def test_spilled_memory_is_unmapped(fresh: None) -> None:
    n = 32 * MIB
    buffer = filled(n, DEVICE)
    pointer = buffer.device_ptr
    assert mapped(pointer) == "rw-p"
    buffer.spill()
    assert mapped(pointer) == "---p"


def mapped(pointer: int) -> str | None:
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, access = line.split()[:2]
            begin, end = (int(part, 16) for part in span.split("-"))
            if begin <= pointer < end:
                return access
    return None


@pytest.mark.parametrize("budget", [0, 64 * KIB])
def test_storm(mode: str, budget: int) -> None:
    """Four threads launch, allocate and free; each finds its own bytes."""
    configure(budget, mode=mode)
    wrong: list[object] = []

    def work(worker: int) -> None:
        choose = random.Random(worker)
        try:
            mine = [(filled(size, DEVICE, worker), bytearray(pattern(size, worker))) for size in (900, 20_000, 30_000)]
            for step in range(150):
                pair = choose.sample(mine, 2)
                with tm.launch(pair[0][0], pair[1][0]) as pointers:
                    for (_, expected), pointer in zip(pair, pointers, strict=True):
                        there = at(pointer, len(expected))
                        if bytes(there) != expected:
                            wrong.append((worker, step))
                        there[step] = expected[step] = choose.randrange(256)
                if step % 10 == 0:
                    size = choose.randrange(1, 40_000)
                    mine[choose.randrange(3)] = filled(max(size, 200), DEVICE, worker), bytearray(pattern(max(size, 200), worker))
            wrong.extend((worker, "end") for buffer, expected in mine if contents(buffer) != expected)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    check()


# ---- setting it up


def test_it_can_be_set_up_again_while_nothing_is_allocated(mode: str) -> None:
    configure(1000, mode="fresh")
    buffer = tm.allocate(500, DEVICE)
    with pytest.raises(ValueError, match=r"cannot be set up anew while memory is allocated on it \(500 B\)"):
        configure(simulate_capacity=2000, mode=mode)
    buffer.spill()
    with pytest.raises(ValueError, match=r"\(500 B spilled\)"):
        configure(simulate_capacity=2000, mode=mode)
    assert (tm.get_memory_budget(DEVICE), tm.memory_info(DEVICE).device_total) == (1000, None), "as before"
    cycle: list[object] = [buffer]
    cycle.append(cycle)
    del buffer, cycle  # only the collector finds it
    for capacity in (2000, 500_000, 100):
        assert configure(simulate_capacity=capacity, mode=mode) == DEVICE
        assert (tm.get_memory_budget(DEVICE), tm.memory_info(DEVICE).device_total) == (None, capacity)
        assert tm.allocate(capacity, DEVICE).nbytes == capacity
        with pytest.raises(tm.DeviceMemoryError):
            tm.allocate(capacity + 1, DEVICE)
    tm.set_memory_budget(5, DEVICE, strict=True)
    configure("3 KiB", mode=mode)
    info = tm.memory_info(DEVICE)
    assert (info.budget, info.strict, info.device_total) == (3 * KIB, False, None)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({}, ValueError, "give either simulate"),
        ({"simulate": 1, "simulate_capacity": 1}, ValueError, "give either simulate"),
        ({"simulate_capacity": 0}, ValueError, "cannot be 0"),
        ({"simulate": "80%"}, ValueError, "a percentage is not possible here"),
        ({"simulate": "2G"}, ValueError, "two ways"),
        ({"simulate": -1}, ValueError, "negative"),
        ({"simulate": True}, TypeError, "bool"),
        ({"simulate": 1.5}, TypeError, "float"),
        ({"simulate_capacity": 2**63}, ValueError, "below"),
        ({"simulate": 1, "mode": "stale"}, ValueError, "fresh, reuse"),
    ],
)
def test_wrong_arguments(fresh: None, given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        configure(**given)
    assert tm.get_memory_budget(DEVICE) == 2**30, "as before"


@pytest.mark.parametrize(("switch", "same"), [("", False), ("fresh", False), ("reuse", True), (" Reuse ", True)])
def test_a_switch_chooses_the_mode_where_none_is_given(switch: str, same: bool) -> None:
    done = run_python(
        """
        import tack_memory as tm
        from tack_memory.hosts._simulate import configure
        for given in (None, "fresh", "reuse"):
            device = configure("1 MiB", mode=given)
            buffer = tm.allocate(10, device)
            first = buffer.device_ptr
            buffer.spill()
            print(buffer.device_ptr == first)
            del buffer
        """,
        TACK_MEMORY_SIMULATE_ADDRESSES=switch,
    )
    assert done.stdout.split() == [str(same), "False", "True"], done.stderr


def test_a_budget_of_the_environment_is_for_a_device_with_a_capacity_only() -> None:
    done = run_python(
        """
        import tack_memory as tm
        from tack_memory.hosts._simulate import configure
        print(tm.get_memory_budget(configure(simulate_capacity="1 MiB")), tm.get_memory_budget(configure(5000)), tm.get_memory_budget(configure(0)))
        print(tm.get_memory_budget(configure(simulate_capacity="2 MiB")))
        """,
        TACK_MEMORY_BUDGET="sim-cpu=50%",
    )
    assert done.stdout.split() == [str(MIB // 2), "5000", "0", str(MIB)], done.stderr


def test_in_a_forked_child_it_is_refused() -> None:
    done = run_python(
        """
        import os
        import tack_memory as tm
        from tack_memory.hosts._simulate import configure
        buffer = tm.allocate(1000, configure("1 MiB"))
        child = os.fork()
        if not child:
            for work in (lambda: tm.allocate(1, "sim-cpu:0"), buffer.spill, lambda: configure(0)):
                try:
                    work()
                except tm.ForkError as error:
                    print("spawn" in str(error), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(buffer.spill())
        """
    )
    assert done.stdout.split() == ["True", "True", "True", "1000"], done.stderr


def test_stale_is_what_go_says() -> None:
    """The test's own constant, from the device: memory that nobody has written."""
    configure("1 MiB", mode="reuse")
    assert contents(tm.allocate(1, DEVICE, zero=False)) == bytes([STALE])
    assert contents(tm.allocate(1, DEVICE)) == b"\0"
    assert _fast.get_strict(DEVICE) is False
    tm.set_memory_budget(None, DEVICE)
