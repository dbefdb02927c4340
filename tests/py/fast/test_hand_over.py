"""Who has a buffer, when threads, finalizers and other threads' ends come in between."""

from __future__ import annotations

import threading

import pytest
from support import KIB, MIB, SoftDriver, filled, how_of, pattern, run_python, wait_until

import tack_memory
from tack_memory._native import _fast


def test_two_threads_may_free_one_buffer(steered: str, soft: SoftDriver) -> None:
    slow, buffer = filled(16 * MIB, steered), filled(KIB, steered)
    soft.set("copy_mib_s", 16)
    mover = threading.Thread(target=slow.spill)
    mover.start()
    wait_until(lambda: slow.state == "spilling", "nothing is spilled")
    other = threading.Thread(target=buffer.free)  # waits for the lock that the spill has
    other.start()
    wait_until(lambda: buffer.state == "freed", "the other thread has not begun")
    buffer.free()
    assert buffer.state == "freed"
    with pytest.raises(ValueError, match="was freed"):
        buffer.copy_to_host()
    soft.set("copy_mib_s", 0)
    mover.join()
    other.join()


def test_free_in_a_handler_beneath_a_free_does_not_wait_for_it(simulated: str) -> None:
    done = run_python(
        """
        import os, signal, threading, time
        import tack_memory as tm
        from support import SoftDriver, filled, wait_until
        soft = SoftDriver()
        slow, buffer = filled(16 << 20, "sim:0"), filled(1024, "sim:0")
        soft.set("copy_mib_s", 16)

        def handler(number, frame):
            try:
                buffer.free()
            except BufferError as error:
                print("another thread is using it" in str(error))

        signal.signal(signal.SIGINT, handler)
        mover = threading.Thread(target=slow.spill)
        mover.start()
        wait_until(lambda: slow.state == "spilling", "nothing is spilled")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        buffer.free()
        mover.join()
        print(buffer.state)
        """,
        simulated=simulated,
    )
    assert done.stdout.split() == ["True", "freed"], done.stdout + done.stderr


def test_a_finalizer_of_what_was_kept_before_finds_the_adopted_buffer(device: str) -> None:
    seen = []

    class Before:
        def __del__(self) -> None:
            seen.append(place["pointer"].nbytes)

    mine = filled(KIB, device)
    pointer = _fast.disown(mine)
    place = {"pointer": Before()}
    adopted = tack_memory.adopt(pointer, KIB, device, how=how_of(device), into=(place, "pointer"))
    assert seen == [KIB] and place["pointer"] is adopted


def test_wrapped_memory_of_a_buffer_marked_for_a_waiting_launch_is_a_view_of_it(device: str) -> None:
    """What a launch of another thread waits for is marked as being spilled. It stays where it is until it is let go, and the view follows it then."""
    mine, theirs = filled(6 * MIB, device), filled(6 * MIB, device)
    theirs.spill()
    reached: list[str] = []

    def launch() -> None:
        with tack_memory.launch(theirs):
            reached.append(mine.state)

    with tack_memory.memory_budget(8 * MIB, device, strict=True):
        other = threading.Thread(target=launch)
        with mine.hold("used by its address") as pointer:
            other.start()
            wait_until(lambda: mine.state == "spilling", "the launch does not wait for the held buffer")
            whole, part = tack_memory.wrap(pointer, 6 * MIB, device, None), tack_memory.wrap(pointer + MIB, KIB, device, None)
            assert whole.base is mine and whole.offset == 0
            assert part.base is mine and part.offset == MIB and part.device_ptr == pointer + MIB
        other.join()
    assert reached == ["spilled"]
    assert bytes(whole.copy_to_host()) == pattern(6 * MIB)
    assert bytes(part.copy_to_host()) == pattern(6 * MIB)[MIB : MIB + KIB]


def test_wrapped_memory_is_never_another_buffers() -> None:
    """A buffer is freed and another made, under the same index and elsewhere, after wrap() has found the first and before it looks at it: its address is
    nobody's then."""
    done = run_python(
        """
        import tack_memory as tm
        from support import doomed
        from tack_memory import _logging
        from tack_memory._native import _fast

        lost = doomed()
        _fast.configure(notify=lambda: None)
        del lost
        tm.synchronize("sim:0")  # from now on each call brings word of it
        buffers = [tm.allocate(8192, "sim:0")]
        asked = buffers[0].device_ptr

        def change():
            if len(buffers) == 1:
                buffers.clear()
                buffers.extend(tm.allocate(65536, "sim:0") for _ in range(2))

        _fast.configure(notify=change)
        try:
            print("a view at", tm.wrap(asked, 1024, "sim:0", None).device_ptr)
        except ValueError as error:
            print(len(buffers), hex(asked) in str(error), error)
        _fast.configure(notify=_logging.drain)
        """,
        TMSOFT_QUARANTINE="1",
    )
    assert done.stdout.startswith("2 True wrap() found a buffer of ours at 0x"), done.stdout + done.stderr
    assert "on sim:0 that was moved or freed meanwhile; hold it for as long as its address is in use" in done.stdout


def test_python_code_at_the_very_end_of_a_thread(simulated: str) -> None:
    """A thread ends between enter_launch and leave_launch, and a destructor of another library then runs Python code on it: that has nothing open, so a
    launch of its waits for others, where one inside another launch would fail."""
    done = run_python(
        """
        import ctypes, threading, time
        import tack_memory as tm
        from tack_memory._native import _fast
        left, used, other = (tm.allocate(1024, "sim:0") for _ in range(3))
        libc, said = ctypes.CDLL(None), []

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def at_end(value):
            try:
                with tm.launch(used) as (pointer,), used.hold("late"):
                    said.append(pointer == used.device_ptr)
            except Exception as error:
                said.append(error)

        key = ctypes.c_uint()
        assert libc.pthread_key_create(ctypes.byref(key), at_end) == 0  # after ours: its destructor comes later

        def work():
            _fast.enter_launch([left])
            libc.pthread_setspecific(key, ctypes.c_void_p(1))

        used.spill()
        tm.set_memory_budget("2 KiB", "sim:0", strict=True)
        thread = threading.Thread(target=work)
        with tm.launch(other):  # with `left`, all that the budget has room for
            thread.start()
            time.sleep(0.3)  # the destructor runs after join() has returned
        while not said:
            time.sleep(0.001)
        _fast.leave_launch([left])
        print(said, left.holds, used.holds, _fast.still_open()["launches and holds"])
        """,
        simulated=simulated,
    )
    assert done.stdout.strip() == "[True] {} {} 0", done.stdout + done.stderr


def test_a_launch_on_the_devices_own_stream_ends_at_once(device: str) -> None:
    buffer = filled(KIB, device)
    with tack_memory.launch(buffer, stream=tack_memory.stream(device)):
        assert buffer.holds == {"launch": 1}
    assert buffer.holds == {} and buffer.spill() == KIB
    assert bytes(buffer.copy_to_host()) == pattern(KIB)
