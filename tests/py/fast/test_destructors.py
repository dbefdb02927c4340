"""The end of a Buffer: it never waits, never disturbs who caused it, and is exact on any thread and inside a garbage collection."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

import pytest
from support import KIB, MIB, SoftDriver, books_of, filled, run_python, wait_until

import tack_memory
from tack_memory._native import _fast


def test_the_books_fall_at_once_and_the_memory_comes_back_soon(steered: str, soft: SoftDriver) -> None:
    tack_memory.synchronize(steered)
    live = soft.get("live")
    buffer = filled(MIB, steered)
    before = _fast.counters(steered)[0]
    del buffer
    assert _fast.counters(steered)[0] == before - MIB
    # Nobody allocates or waits: the drainer comes by itself.
    wait_until(lambda: soft.get("live") == live, "the dropped memory was not given back")


EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LARGE = 100 * MIB  # more than is kept for reuse where there are no pools


@pytest.mark.parametrize("pools", ["1", "0"])
@pytest.mark.parametrize("way", ["del buffer", "buffer.free()", "buffer.spill()"])
def test_the_last_block_of_a_program_that_goes_idle_is_given_back(simulated: str, pools: str, way: str) -> None:
    """Where frees are in no stream's order somebody has to look, and no call comes any more. The device is still busy with the block when it is freed."""
    done = run_python(
        f"""
        import tack_memory as tm
        from support import SoftDriver, wait_until
        device = "{simulated}:0"
        soft = SoftDriver(device)
        buffer = tm.allocate(1, device)
        del buffer
        tm.synchronize(device)
        other = tm.allocate({LARGE}, device)
        live = soft.live()
        buffer = tm.allocate({LARGE}, device)
        assert soft.live() == live + 1
        soft.set("copy_mib_s", 400)
        buffer.copy_from(other)
        {way}
        wait_until(lambda: soft.get("live") == live, "the memory stays with the driver")
        """,
        TMSOFT_POOLS=pools,
        TMSOFT_CAPACITY=str(4 * LARGE),
    )
    assert done.returncode == 0, done.stderr


def test_memory_of_a_host_that_never_asks_for_room_comes_back(simulated: str) -> None:
    """It allocates by the vendor's own call, has it adopted and drops it: no call of ours makes room or waits, and three times the device goes through it."""
    done = run_python(
        f"""
        import sys
        import tack_memory as tm
        from support import SoftDriver, wait_until
        from tack_memory._native import _fast
        from tack_memory.hosts import sim_library

        sys.path.insert(0, {str(EXAMPLES)!r})
        import minihost

        device, vendor = "{simulated}:0", {{"sim": "cuda", "sim-hip": "hip"}}.get("{simulated}", "level_zero")
        soft = SoftDriver()
        minihost.init(vendor + ":0", library=sim_library(device))
        backend = minihost.current_backend()
        if vendor == "level_zero":
            _fast.set_stream(device, backend.context, 0)
        how = {{"cuda": "cuMemAlloc", "hip": "hipMalloc", "level_zero": "zeMemAllocDevice"}}[vendor]
        soft.set("implicit_sync", 0)
        tm.allocate(1, device).fill(1)
        tm.synchronize(device)
        live, waited = soft.live(), 0
        soft.set("delay_us", 20_000)
        for _ in range(12):
            buffer = tm.adopt(backend._allocate({MIB}), {MIB}, device, how=how)
            buffer.fill(1)
            del buffer
            waited += soft.get("live") > live  # a free of the driver's that did not wait for the fill would be a fault of ours
            wait_until(lambda: soft.get("live") == live and soft.get("deferred") == 0, "the memory stays with the driver")
        print(waited)
        """,
        simulated=simulated,
        TMSOFT_POOLS="0",
        TACK_MEMORY_SIM="4 MiB",
    )
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stdout + done.stderr


def test_an_exception_on_its_way_is_untouched(device: str) -> None:
    class Trouble(Exception):
        pass

    def fail() -> None:
        buffers = [filled(KIB, device) for _ in range(3)]
        held = buffers[0].hold("while it fails")
        held.__enter__()
        buffers[1].spill()
        exported = buffers[2].export("dlpack")
        raise Trouble(len(buffers), exported.nbytes)

    with pytest.raises(Trouble) as caught:
        fail()
    assert caught.value.args == (3, KIB)
    try:
        raise Trouble
    except Trouble as error:
        error.with_traceback(None)
        buffer = filled(KIB, device)
        del buffer
        assert sys.exc_info()[1] is error


def test_dropped_on_other_threads_and_in_every_state(device: str) -> None:
    start = books_of(device)
    buffers = [filled(16 * KIB, device, seed) for seed in range(64)]
    for buffer in buffers[::2]:
        buffer.spill()
    queues = [buffers[part::4] for part in range(4)]
    buffers.clear()
    del buffer

    def drop(queue: list[tack_memory.Buffer]) -> None:
        while queue:
            queue.pop()

    threads = [threading.Thread(target=drop, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert books_of(device) == start


def test_a_finalizer_that_allocates_inside_an_allocation_that_spills(device: str) -> None:
    """The budget's ladder collects garbage; what that runs may allocate, spill, launch and fail by itself.

    In a process of its own, in which nothing was collected yet: the first time that a budget would spill it always is."""
    done = run_python(
        """
        import gc, sys
        import tack_memory as tm
        from support import MIB, filled

        device, ran = sys.argv[1], []

        class Cycle:
            def __init__(self):
                self.me = self
                self.buffer = filled(MIB, device)

            def __del__(self):
                more = tm.allocate(MIB, device)
                with tm.launch(more), more.view(0, 1).hold():
                    self.buffer.spill()
                ran.append(len(ran))

        gc.disable()
        with tm.memory_budget(4 * MIB, device):
            for _ in range(4):
                Cycle()
            kept = [tm.allocate(MIB, device) for _ in range(6)]
            assert ran == [0, 1, 2, 3], "the garbage was collected before anything alive was spilled"
        """,
        device,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_cycles_through_views_holds_and_launches_are_found(device: str) -> None:
    class Owner:
        pass

    start = books_of(device)
    for make in (
        lambda view: view,
        lambda view: view.hold("cycle"),
        lambda view: tack_memory.launch(view),
        lambda view: view.export("dlpack"),
        lambda view: view.view(0, 1),
    ):
        owner = Owner()
        owner.buffer = filled(KIB, device)  # type: ignore[attr-defined]
        owner.made = make(tack_memory.wrap(1 << 50, 16, device, owner))  # type: ignore[attr-defined]
        del owner
    slot_owner = Owner()
    slot_owner.slot = _fast.PointerSlot("x", lambda *_, slot_owner=slot_owner: None)  # type: ignore[attr-defined]
    scope_owner = Owner()
    scope_owner.peak = _fast.PeakScope(device, None, lambda _, scope_owner=scope_owner: None)  # type: ignore[attr-defined]
    scope_owner.buffer = filled(KIB, device)  # type: ignore[attr-defined]
    del slot_owner, scope_owner
    gc.collect()
    assert books_of(device) == start


def test_alive_lists_each_once_and_keeps_none(device: str) -> None:
    before = len(_fast.alive())
    buffers = [filled(KIB, device) for _ in range(300)]
    assert len(_fast.alive()) == before + 300
    buffers[0].free()
    del buffers[1]
    assert len(_fast.alive()) == before + 298
    assert {id(buffer) for buffer in buffers[1:]} <= {id(buffer) for buffer in _fast.alive()}


@pytest.mark.parametrize("rounds", [10])
def test_exits_while_tasks_and_destructors_are_under_way(rounds: int) -> None:
    for _ in range(rounds):
        done = run_python(
            """
            import atexit, sys, threading
            import tack_memory as tm
            kept = [tm.allocate("1 MiB", "sim:0") for _ in range(8)]
            kept[0].spill()
            sys.modules["kept_to_the_last"] = kept  # dropped when the interpreter is nearly gone
            exported = kept[1].export("dlpack").__dlpack__()
            atexit.register(lambda: (kept[2].spill(), kept[2].restore(), tm.allocate(10, "sim:0")))

            def churn():
                while True:
                    tm.allocate(1000, "sim:0").spill()

            def launch():
                while True:
                    with tm.launch(*kept[3:6]):
                        kept[6].spill()

            for work in (churn, launch):
                threading.Thread(target=work, daemon=True).start()
            """,
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
