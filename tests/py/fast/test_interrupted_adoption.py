"""adopt() tells who owns the memory, also where a signal comes while it works: at an error the caller does, at the address that it gave."""

from __future__ import annotations

import pytest
from support import run_python

PREAMBLE = """
    import gc, os, signal, sys, threading, time
    import tack_memory as tm
    from tack_memory._native import _fast
    from support import MIB, SoftDriver, contents, filled, how_of, pattern

    soft = SoftDriver()
    device = "sim:0"
    how = how_of(device)

    def of_the_host(nbytes, seed):
        return _fast.disown(filled(nbytes, device, seed))

    def owned_by_the_caller(pointer, nbytes, seed):
        there = contents(tm.wrap(pointer, nbytes, device, None)) == pattern(nbytes, seed)
        again = tm.adopt(pointer, nbytes, device, how=how)  # frees it, once
        same = again.device_ptr == pointer and contents(again) == pattern(nbytes, seed)
        del again
        tm.synchronize(device)
        return there, same
    """


def test_a_handler_raises_when_the_adoption_is_all_but_done(simulated: str) -> None:
    """While the handler runs, the call in Go comes to its end, and other threads go on: they spill all that can be spilled."""
    done = run_python(
        PREAMBLE
        + """
    pointer = of_the_host(48 * MIB, 1)
    tm.set_memory_budget(64 * MIB, device)
    older = filled(48 * MIB, device, 2)

    class Enough(Exception):
        pass

    def handler(number, frame):
        while not (older.is_spilled and sum(getattr(tm.memory_info(device), name) for name in ("in_use", "reserved")) == 48 * MIB):
            time.sleep(0.01)
        time.sleep(0.1)  # the call has its room, or even the memory; now it ends
        other = threading.Thread(target=_fast.spill_all, args=(device,))
        other.start()
        other.join()
        raise Enough

    signal.signal(signal.SIGUSR1, handler)
    soft.set("copy_mib_s", 96)

    def interrupt():
        while older.state != "spilling":
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=interrupt).start()
    try:
        tm.adopt(pointer, 48 * MIB, device, how=how)
    except Enough:
        print("interrupted")
    soft.set("copy_mib_s", 0)
    info = tm.memory_info(device)
    print(info.in_use, info.reserved, info.spilled == 48 * MIB)
    print(*owned_by_the_caller(pointer, 48 * MIB, 1))
    print(contents(older) == pattern(48 * MIB, 2))
    tm._control.call("Check", tm._devices.resolve(device))
    """,
        simulated=simulated,
    )
    assert done.stdout.split() == ["interrupted", "0", "0", "True", "True", "True", "True"], done.stdout + done.stderr


@pytest.mark.parametrize("reserved", ["nothing", "all of it", "too little"])
def test_ctrl_c_while_room_is_made(reserved: str, simulated: str) -> None:
    """The long part can be ended, and nothing of it is left. A reservation of enough is that part, made before."""
    done = run_python(
        PREAMBLE
        + """
    pointer = of_the_host(48 * MIB, 1)
    room = {"nothing": None, "all of it": 48 * MIB, "too little": MIB}[sys.argv[1]]
    reservation = room and tm.reserve(room, device)
    tm.set_memory_budget(96 * MIB, device)
    older = [filled(16 * MIB, device, seed) for seed in range(2, 6)]
    before = tm.memory_info(device)
    soft.set("copy_mib_s", 24)

    def interrupt():
        deadline = time.monotonic() + 0.5
        while all(one.state != "spilling" for one in older) and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        mine = tm.adopt(pointer, 48 * MIB, device, how=how, reserved=reservation)
        time.sleep(60)
    except KeyboardInterrupt:
        print("mine" in globals())
    soft.set("copy_mib_s", 0)
    if "mine" in globals():
        print(contents(mine) == pattern(48 * MIB, 1), True)
        del mine
    else:
        print(*owned_by_the_caller(pointer, 48 * MIB, 1))
    print(tm.memory_info(device).reserved, all(contents(one) == pattern(16 * MIB, seed) for seed, one in enumerate(older, 2)))
    """,
        reserved,
        simulated=simulated,
    )
    assert done.stdout.split() == [str(reserved == "all of it"), "True", "True", "0", "True"], done.stdout + done.stderr


@pytest.mark.parametrize("handler", ["raises", "looks", "forks"])
def test_a_signal_while_disown_waits_for_another_thread(handler: str, simulated: str) -> None:
    """It waits for the device's lock. A handler that raises ends that, and the buffer is as it was; after any other it goes on."""
    done = run_python(
        PREAMBLE
        + """
    mine, other = filled(MIB, device, 1), filled(12 * MIB, device, 2)
    place = {"pointer": mine}

    class Enough(Exception):
        pass

    def handler(number, frame):
        called.append(other.state)
        if sys.argv[1] == "raises":
            raise Enough
        if sys.argv[1] == "forks" and not os.fork():
            os._exit(0)
        soft.set("copy_mib_s", 0)

    called = []
    signal.signal(signal.SIGUSR1, handler)
    soft.set("copy_mib_s", 8)
    spilling = threading.Thread(target=other.spill)
    spilling.start()
    while other.state != "spilling":
        time.sleep(0.005)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        pointer = _fast.disown(mine, into=(place, "pointer"))
    except Enough:
        print("interrupted", place["pointer"] is mine)
        soft.set("copy_mib_s", 0)
        print(contents(mine) == pattern(MIB, 1), mine.holds, mine.spill() == MIB)
        pointer = _fast.disown(mine, into=(place, "pointer"))
    print(*called, place == {"pointer": pointer}, *owned_by_the_caller(pointer, MIB, 1))
    spilling.join()
    tm._control.call("Check", tm._devices.resolve(device))
    """,
        handler,
        simulated=simulated,
    )
    interrupted = ["interrupted", "True", "True", "{}", "True"] if handler == "raises" else []
    assert done.stdout.split() == [*interrupted, "spilling", "True", "True", "True"], done.stdout + done.stderr
