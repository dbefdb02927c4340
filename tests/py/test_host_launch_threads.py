"""HostLaunch: launches of several threads at once, Ctrl-C while one waits for its arrays, and forked children."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from standin_host import DEVICE, array, backend, raw, set_up, states
from support import KIB, run_python

import tack_memory
from tack_memory import spill


@pytest.fixture(autouse=True)
def device_of_the_arrays() -> None:
    set_up()


def test_a_launch_of_another_thread_is_no_reason_to_skip() -> None:
    one, host, results = raw(KIB), backend(nested="skip"), []

    def kernel(*_: Any) -> None:
        thread = threading.Thread(target=lambda: results.append(host.execute(lambda a: a.memory.state, [one])))
        thread.start()
        thread.join()

    spill(one.memory)
    host.execute(kernel, [])
    assert results == ["resident"]


@pytest.mark.parametrize("devices", [[], [DEVICE], [DEVICE, "sim:1", "sim-hip:0"]])
def test_after_its_launches_a_thread_waits_for_those_of_others_again(devices: list[str]) -> None:
    """A thread that has something open never waits: here it would fail."""
    host, arrays = backend(), [raw(KIB, device) for device in devices]
    spill(*(one.memory for one in arrays))
    for _ in range(3):
        host.execute(lambda *_: None, arrays)
    del arrays
    one, other, third = (array(KIB) for _ in range(3))
    spill(other.memory, third.memory)
    inside = threading.Event()

    def kernel(_: Any) -> None:
        inside.set()
        time.sleep(0.3)

    thread = threading.Thread(target=lambda: host.execute(kernel, [one]))
    with tack_memory.memory_budget(2 * KIB, DEVICE, strict=True):
        thread.start()
        inside.wait()
        assert host.execute(lambda *args: states(*args), [other, third]) == ["resident"] * 2
        thread.join()


STORM = """
    import random, sys, threading, time
    import tack_memory as tm
    from standin_host import DEVICE, array, backend, set_up

    set_up()
    sys.setswitchinterval(1e-5)
    SIZE, ARRAYS = 64 << 10, 12
    stop, failures, launches = time.monotonic() + float(sys.argv[1]), [], [0, 0, 0]
    arrays = [array(SIZE, fill=place) for place in range(ARRAYS)]
    host = backend()
    kept = []

    def kernel(*args):
        for one, place in zip(args[::2], args[1::2]):
            data = one._buffer._data
            assert data[0] == data[-1] == place and one.memory.spill() == 0, (data[0], place)
            if random.random() < 0.01:
                kept.append((data[1:], place))  # beyond the launch

    def launch(number):
        try:
            while time.monotonic() < stop:
                chosen = random.sample(range(ARRAYS), 4)
                host.execute(kernel, [part for place in chosen for part in (arrays[place], place)])
                launches[number] += 1
        except BaseException as error:
            failures.append(repr(error))
            raise

    def disturb():
        while time.monotonic() < stop:
            random.choice(arrays).memory.spill()
            if len(kept) > 3:
                data, place = kept.pop(0)
                assert data[0] == data[-1] == place
            if random.random() < 0.05:
                tm.set_memory_budget(random.randrange(4, ARRAYS) * SIZE, DEVICE)

    def read():
        while time.monotonic() < stop:
            place = random.randrange(ARRAYS)
            data = arrays[place]._buffer._data  # no launch: an export
            assert data[0] == data[-1] == place

    def guarded(work):
        try:
            work()
        except BaseException as error:
            failures.append(repr(error))
            raise

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(3)]
    threads += [threading.Thread(target=guarded, args=(work,)) for work in (disturb, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.clear()
    tm.set_memory_budget(None, DEVICE)
    info = tm.memory_info(DEVICE)
    for place, one in enumerate(arrays):
        assert one.memory.holds == {} and bytes(one.memory.copy_to_host()) == bytes([place]) * SIZE, place
    print(failures, min(launches) > 20, info.restore_count > 20)
    """


def test_launches_while_other_threads_spill_read_and_change_budgets() -> None:
    done = run_python(STORM, "8")
    assert done.stdout.strip() == "[] True True", done.stdout + done.stderr


def test_ctrl_c_while_a_launch_restores_begins_no_launch(simulated: str) -> None:
    done = run_python(
        """
        import os, signal, threading, time
        import tack_memory as tm
        from standin_host import backend, raw
        from support import SoftDriver

        soft, one = SoftDriver(), raw(256 << 20, "sim:0", 7)
        one.memory.spill()
        soft.set("copy_mib_s", 64)

        def interrupt():
            while one.memory.state != "restoring":
                time.sleep(0.01)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        called = []
        try:
            backend().execute(called.append, [one])
        except KeyboardInterrupt:
            print("interrupted", called, one.memory.holds, one.memory.state)
        soft.set("copy_mib_s", 0)
        print(backend().execute(lambda a: a.memory.copy_to_host(nbytes=1)[0], [one]), one.memory.spill() == one.memory.nbytes)
        """,
        simulated=simulated,
        TACK_MEMORY_SIM="1 GiB",
    )
    assert done.stdout.splitlines() == ["interrupted [] {} spilled", "7 True"], done.stdout + done.stderr


def test_a_forked_child_launches_on_the_cpu_only() -> None:
    done = run_python(
        """
        import os, sys
        import tack_memory as tm
        from standin_host import array, backend, set_up
        set_up()

        host, on_cpu, other = backend(), array(64, "cpu", 3), array(64, fill=4)

        def kernel(a, b):
            kept = a._buffer._data
            child = os.fork()
            if child:
                status = os.waitpid(child, 0)[1]
                return status
            assert int(kept[0]) == int(a._buffer._data[0]) == 3
            try:
                b._buffer._data
                os._exit(1)
            except tm.ForkError:
                pass
            return kept  # the launch ends in the child, too, and is kept beyond it

        result = host.execute(kernel, [on_cpu, other])
        if not isinstance(result, int):
            assert int(result[0]) == 3 and host.execute(lambda a: int(a._buffer._data[1]), [on_cpu]) == 3
            for arguments in ([other], [on_cpu, other]):
                try:
                    host.execute(print, arguments)
                    os._exit(2)
                except tm.ForkError:
                    pass
            os._exit(0)
        print(result, other.memory.spill(), on_cpu.memory.holds)
        """
    )
    assert done.stdout.strip() == "0 64 {}", done.stdout + done.stderr
