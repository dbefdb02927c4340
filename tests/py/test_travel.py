"""Buffers that travel: pickled here, unpickled there, byte for byte, with no copy but those that are promised."""

from __future__ import annotations

import concurrent.futures
import copy
import gc
import io
import multiprocessing
import pickle
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import travellers
from support import KIB, MIB, SoftDriver, books_of, contents, filled, how_of, pattern, peek, run_python, settle

import tack_memory
from tack_memory import Buffer, memory_info
from tack_memory._native import _fast

COPIES = {
    "sim:0": ["cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"],
    "sim-hip:0": ["hipMemcpyAsync"],
    "sim-level_zero:0": ["zeCommandListAppendMemoryCopy"],
}
"""The calls that copy: out of the device first, and into it."""


def sent(buffer: Any, protocol: int = 5) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """As a transport gets it: the pickle, and the contents beside it."""
    frames: list[pickle.PickleBuffer] = []
    return pickle.dumps(buffer, protocol, buffer_callback=frames.append if protocol == 5 else None), frames


def arrived(buffer: Any) -> Any:
    """What another process would have of it."""
    message, frames = sent(buffer)
    return pickle.loads(message, buffers=[bytearray(frame) for frame in frames])


class Frame(bytearray):
    """What a message is read into: it can be seen when it goes."""


def test_a_spilled_buffer_is_sent_without_a_restore(steered: str, soft: SoftDriver) -> None:
    buffer = filled(MIB, steered, 1, label="velocity")
    buffer.spill()
    before, calls = memory_info(steered), [soft.calls(function) for function in COPIES[steered]]
    message, frames = sent(buffer)
    assert [soft.calls(function) for function in COPIES[steered]] == calls, "nothing was asked of the device"
    assert buffer.is_spilled and memory_info(steered) == before
    assert len(message) < 200 and [frame.raw().nbytes for frame in frames] == [MIB], "the contents go beside the pickle"
    assert frames[0].raw().readonly
    buffer.fill(0)  # the sender goes on
    buffer.free()
    other = pickle.loads(message, buffers=frames)
    assert (other.state, other.device, other.nbytes, other.label) == ("spilled", steered, MIB, "velocity")
    assert contents(other) == pattern(MIB, 1)


def test_a_resident_buffer_is_copied_out_once(steered: str, soft: SoftDriver) -> None:
    buffer = filled(MIB, steered, 2)
    before, calls = memory_info(steered), soft.calls(COPIES[steered][0])
    message, frames = sent(buffer)
    assert soft.calls(COPIES[steered][0]) == calls + 1
    assert buffer.state == "resident" and memory_info(steered) == before
    assert contents(pickle.loads(message, buffers=frames)) == pattern(MIB, 2)


def test_it_arrives_spilled_and_becomes_resident_when_the_device_first_uses_it(device: str) -> None:
    data = pattern(MIB, 3)
    before = memory_info(device)
    buffer = arrived(filled(MIB, device, 3))
    gc.collect()
    now = memory_info(device)
    assert buffer.state == "spilled"
    assert (now.in_use, now.spilled) == (before.in_use, before.spilled + MIB)
    assert now.received_bytes == before.received_bytes + MIB
    assert (now.spill_count, now.spilled_bytes, now.restore_count) == (before.spill_count, before.spilled_bytes, before.restore_count)
    assert contents(buffer) == data and buffer.is_spilled, "the host reads it where it is"
    assert peek(buffer.device_ptr, MIB, device) == data
    now = memory_info(device)
    assert (now.in_use, now.spilled, now.restored_bytes) == (before.in_use + MIB, before.spilled, before.restored_bytes + MIB)


def test_what_arrives_is_the_host_copy_itself(device: str) -> None:
    frame = Frame(pattern(MIB, 4))
    gone, host_bytes = weakref.ref(frame), memory_info(device).host_bytes
    buffer = _fast.receive(frame, device)
    assert memory_info(device).host_bytes == host_bytes + MIB, "it is counted once"
    with pytest.raises(BufferError):
        frame.append(0)  # it is in use
    del frame
    settle()
    assert gone() is not None and contents(buffer) == pattern(MIB, 4)
    assert buffer.device_ptr and gone() is None, "the device has it: the frame is let go of at once"
    assert memory_info(device).host_bytes == host_bytes and contents(buffer) == pattern(MIB, 4)


@pytest.mark.parametrize("end", ["drop", "free", "restore", "hold", "launch", "export", "copy"])
def test_a_frame_goes_with_its_buffer(device: str, end: str) -> None:
    frame = Frame(1000)
    gone, buffer = weakref.ref(frame), _fast.receive(frame, device)
    del frame
    match end:
        case "drop":
            del buffer
            settle()
        case "free":
            buffer.free()
        case "restore":
            buffer.restore()
        case "hold":
            with buffer.hold():
                assert gone() is None
        case "launch":
            with tack_memory.launch(buffer):
                assert gone() is None
        case "export":
            buffer.export()
        case "copy":
            filled(1000, device).copy_from(buffer)
    assert gone() is None


def test_a_buffer_that_is_dropped_by_the_main_thread_gives_its_frame_back_by_itself() -> None:
    done = run_python("""
        import time, weakref
        import tack_memory
        from tack_memory._native import _fast

        class Frame(bytearray): pass

        frame = Frame(1000)
        gone, buffer = weakref.ref(frame), _fast.receive(frame, "sim:0")
        del frame, buffer
        end = time.monotonic() + 60
        while gone() is not None and time.monotonic() < end:
            pass
        print(gone())
    """)
    assert done.stdout == "None\n", done.stdout + done.stderr


def test_frames_of_two_devices_go_by_themselves() -> None:
    done = run_python("""
        import time, weakref
        import tack_memory
        from tack_memory._native import _fast

        class Frame(bytearray): pass

        frames = [Frame(1000), Frame(1000)]
        gone, buffers = [weakref.ref(one) for one in frames], [_fast.receive(one, f"sim:{n}") for n, one in enumerate(frames)]
        del frames
        buffers.clear()
        end = time.monotonic() + 60
        while [one for one in gone if one() is not None] and time.monotonic() < end:
            pass
        print([one() for one in gone])
    """)
    assert done.stdout == "[None, None]\n", done.stdout + done.stderr


def test_a_message_that_was_cut_off_is_refused(device: str) -> None:
    message, frames = sent(filled(4000, device, 5))
    for cut in (bytes(frames[0])[:100], b"", bytes(frames[0]) + b"x"):
        with pytest.raises(ValueError, match=f"a buffer of 4000 bytes was sent from {device}, and {len(cut)} bytes have arrived"):
            pickle.loads(message, buffers=[cut])


def test_two_of_one_message_have_nothing_to_do_with_each_other(device: str) -> None:
    message, frames = sent(filled(4000, device, 5))
    one, two = pickle.loads(message, buffers=frames), pickle.loads(message, buffers=frames)
    one.copy_from_host(b"written", 100)
    one.fill(7, 200, 8)
    assert one.is_spilled and contents(two) == pattern(4000, 5) == bytes(frames[0])
    other = filled(16, device, 6)
    other.spill()
    two.copy_from(other, 300)
    assert two.is_spilled and bytes(frames[0]) == pattern(4000, 5)
    wanted = bytearray(pattern(4000, 5))
    wanted[300:316] = pattern(16, 6)
    assert peek(two.device_ptr, 4000, device) == wanted
    wanted = bytearray(pattern(4000, 5))
    wanted[100:107], wanted[200:208] = b"written", bytes([7] * 8)
    assert peek(one.device_ptr, 4000, device) == wanted


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(any_device: str, protocol: int) -> None:
    buffer = filled(5000, any_device, 8)
    other = pickle.loads(pickle.dumps(buffer, protocol))
    assert contents(other) == pattern(5000, 8) and other.device == any_device


def test_where_device_memory_is_host_memory_it_is_copied_at_once() -> None:
    before = memory_info("cpu")
    frame = Frame(pattern(5000))
    gone, buffer = weakref.ref(frame), _fast.receive(frame, "cpu", label="x")
    del frame
    assert gone() is None and (buffer.state, buffer.label) == ("resident", "x") and contents(buffer) == pattern(5000)
    assert books_of("cpu") == (before.in_use + 5000, 0)


def test_views_empty_buffers_and_foreign_memory(device: str) -> None:
    buffer = filled(KIB, device, 9)
    assert contents(arrived(buffer.view(100, 200))) == pattern(KIB, 9)[100:300]
    assert (arrived(tack_memory.allocate(0, device)).nbytes, arrived(buffer.view(5, 0)).nbytes) == (0, 0)
    with buffer.hold() as pointer:
        assert contents(arrived(tack_memory.wrap(pointer + 8, 16, device, buffer))) == pattern(KIB, 9)[8:24]
    numpy = tack_memory.allocate(16, device)
    pair = arrived([numpy, numpy])
    assert pair[0] is pair[1], "pickle keeps what is one object one object"


def test_what_was_freed_is_not_sent(device: str) -> None:
    buffer = filled(16, device)
    buffer.free()
    with pytest.raises(ValueError, match="was freed"):
        pickle.dumps(buffer)
    with pytest.raises(ValueError, match="was freed"):
        copy.copy(buffer)


def test_memory_in_the_place_of_a_hosts_pointer_does_not_travel_by_itself(steered: str) -> None:
    """The host's object has a context and a stream beside it: a copy of both would be wrong. A host's memory that the program adopts by itself travels."""
    place: dict[str, Any] = {}
    tack_memory.adopt(_fast.disown(filled(100, steered, 3)), 100, steered, how=how_of(steered), into=(place, "pointer"))
    for what in (place["pointer"], place["pointer"].view(0, 10)):
        for refused in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot pickle or copy memory in the place of a framework's own pointer"):
                refused(what)
    ours = tack_memory.adopt(_fast.disown(filled(100, steered, 3)), 100, steered, how=how_of(steered))
    assert contents(arrived(ours)) == pattern(100, 3)


def test_copies_are_made_on_the_device(device: str) -> None:
    buffer = filled(5000, device, 3, label="field")
    one, [two, also] = copy.copy(buffer), copy.deepcopy([buffer, buffer])
    buffer.fill(0)
    assert contents(one) == contents(two) == pattern(5000, 3) and two is also
    assert (one.label, one.device, one.state) == ("field", device, "resident")


def test_what_is_larger_than_the_device_does_not_arrive() -> None:
    frame = Frame(65 * MIB)
    gone = weakref.ref(frame)
    with pytest.raises(tack_memory.DeviceMemoryError, match="more than the whole device has") as caught:
        _fast.receive(frame, "sim:1")
    assert caught.value.reason == "too_large"
    del frame, caught
    gc.collect()
    assert gone() is None and books_of("sim:1") == (0, 0)


def test_it_arrives_where_it_is_said_to(arrival: None) -> None:
    buffer = filled(100, "sim:0", 4)
    assert tack_memory.set_arrival_device("sim:1") is None
    there = arrived(buffer)
    assert there.device == "sim:1" and contents(there) == pattern(100, 4)
    assert tack_memory.set_arrival_device(None) == "sim:1"
    assert arrived(buffer).device == "sim:0"


def test_a_device_that_is_not_here(arrival: None) -> None:
    message = pickle.dumps(filled(100, "sim:0", 4)).replace(b"sim:0", b"gpu:7")
    said = "arrives from gpu:7, which this process does not have; tack_memory.set_arrival_device says where it goes. .*known devices"
    with pytest.raises(ValueError, match=said):
        pickle.loads(message)
    tack_memory.set_arrival_device("sim:0")
    assert contents(pickle.loads(message)) == pattern(100, 4)


def test_a_scheduler_of_dask_passes_on_what_it_has_no_device_for(arrival: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It unpickles what a client submits. A machine of its own needs no GPU for that."""

    class Scheduler:
        _instances = ("one",)

    message, frames = sent(filled(100, "sim:0", 4, label="mesh"))
    foreign = message.replace(b"sim:0", b"gpu:7")
    module = type(pickle)("distributed.scheduler")
    module.Scheduler = Scheduler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "distributed.scheduler", module)
    passing = pickle.loads(foreign, buffers=frames)
    assert (passing.nbytes, passing.device, passing.label) == (100, "gpu:7", "mesh") and "in transit" in repr(passing)
    with pytest.raises(AttributeError, match="no 'device_ptr' here: a buffer arrives from gpu:7, which this process does not have; tack_memory.set_arrival"):
        passing.device_ptr  # noqa: B018
    assert not hasattr(passing, "__array__")
    for protocol in (2, 5):
        again, frames = sent(passing, protocol)
        assert protocol == 2 or (len(frames) == 1 and len(again) < 200)
        buffer = pickle.loads(again.replace(b"gpu:7", b"sim:0"), buffers=frames)
        assert (contents(buffer), buffer.label) == (pattern(100, 4), "mesh")


@pytest.fixture
def arrival() -> Iterator[None]:
    yield
    tack_memory.set_arrival_device(None)


def test_peak_scopes_and_reports_count_what_arrives(lines: None, device: str) -> None:
    message, frames = sent(filled(MIB, device, 1, label="pressure"))
    with tack_memory.memory_peak(device) as peak:
        buffer = pickle.loads(message, buffers=frames)
        assert (peak.bytes - peak.start, peak.own, peak.footprint - peak.start) == (0, MIB, MIB)
        [holder] = [one for one in tack_memory.memory_report(device).holders if one.label == "pressure"]
        assert (holder.resident, holder.spilled) == (0, MIB) and __file__ in (holder.origin or "")
        buffer.restore()
    assert (peak.bytes - peak.start, peak.own, peak.restored_bytes, peak.spilled_bytes) == (MIB, MIB, MIB, 0)


def test_a_timeline_and_hooks_tell_of_arrivals(device: str, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    source = filled(1000, device)
    with tack_memory.record_timeline(device) as timeline, tack_memory.event_hook(lambda event: told.append((event.kind, event.old, event.new)), {"device"}):
        buffer = arrived(source)
        buffer.fill(1)
        pointer = buffer.device_ptr
        del buffer
        settle()
        tack_memory.flush_events()
    assert [point.event for point in timeline.points] == ["start", "receive", "restore", "free"]
    timeline.to_html(tmp_path / "timeline.html")
    (new, _, at), (moved, lay, own), (up, before, there), (end, last, _) = told
    assert (new, moved, up, end) == ("new", "renew", "renew", "free") and (lay, before, there, last) == (at, own, pointer, pointer)


def test_a_message_does_not_hold_the_sender_up(device: str) -> None:
    """What is sent is a copy: the sender may write, spill, and drop."""
    buffers = [filled(10_000, device, n) for n in range(20)]
    for buffer in buffers[::2]:
        buffer.spill()
    messages = [sent(buffer) for buffer in buffers]
    for n, buffer in enumerate(buffers):
        buffer.fill(0)
        if n % 3:
            buffer.spill()
    del buffers, buffer
    for n, (message, frames) in enumerate(messages):
        assert contents(pickle.loads(message, buffers=frames)) == pattern(10_000, n)


def test_threads_that_send_and_receive_under_a_budget(device: str) -> None:
    def work(seed: int) -> int:
        for n in range(60):
            buffer = arrived(filled(20_000, device, seed + n))
            with tack_memory.launch(buffer) as [pointer]:
                assert peek(pointer, 20_000, device) == pattern(20_000, seed + n)
            buffer.copy_from_host(b"x")
            assert contents(arrived(buffer))[:1] == b"x"
        return seed

    with tack_memory.memory_budget(50_000, device), concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [0, 1, 2, 3]


def test_ten_thousand_buffers_between_processes_under_forced_spilling() -> None:
    """There and back, out of band, through a pipe. Both ends count right, and no copy is made but the sender's one and the way to the device."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=travellers.echo, args=(there,))
    process.start()
    there.close()
    driver, sizes, number = SoftDriver("sim:0"), [0, 1, 100, 5_000, 20_000, 70_000], 10_000
    try:
        with tack_memory.memory_budget(200_000, "sim:0"):
            start = memory_info("sim:0")
            received = 0
            for first in range(0, number, 100):
                buffers = [filled(sizes[n % len(sizes)], "sim:0", n) for n in range(first, first + 100)]
                out_now = driver.calls(COPIES["sim:0"][0])
                resident = sum(not buffer.is_spilled and buffer.nbytes > 0 for buffer in buffers)
                counts = memory_info("sim:0")
                travellers.send(here, buffers)
                assert driver.calls(COPIES["sim:0"][0]) == out_now + resident, "one for each that was resident"
                after = memory_info("sim:0")
                assert (after.spill_count, after.restore_count) == (counts.spill_count, counts.restore_count)
                del buffers
                if not here.poll(120):
                    pytest.fail("the other process does not answer")
                back = travellers.receive(here)
                for n, buffer in enumerate(back, first):
                    received += buffer.nbytes
                    assert buffer.is_spilled or not buffer.nbytes
                    assert contents(buffer) == pattern(sizes[n % len(sizes)], n)
                del back, buffer
            end = memory_info("sim:0")
            assert end.received_bytes - start.received_bytes == received > 150 * MIB
            assert end.spill_count > start.spill_count and end.over_budget_count == start.over_budget_count
        here.send(None)
        told = here.recv()
        assert told["received_bytes"] == received and told["restored_bytes"] >= received and told["spill_count"] > 0, told
        assert (told["in_use"], told["spilled"], told["over_budget_count"]) == (0, 0, 0), told
    finally:
        here.close()
        process.join(60)
        process.kill()
    assert process.exitcode == 0


def test_pickle_of_a_file_and_of_an_older_package(device: str) -> None:
    """What a pickle calls stays where it is: one that was written now is read by later versions."""
    file = io.BytesIO()
    pickle.dump({"a": filled(10, device, 1)}, file)
    assert b"tack_memory._travel" in file.getvalue() and b"arrive" in file.getvalue()
    file.seek(0)
    assert contents(pickle.load(file)["a"]) == pattern(10, 1)


def test_in_a_forked_child() -> None:
    done = run_python("""
        import os, pickle
        import tack_memory as tm
        from tack_memory._native import _fast

        buffer, frame = tm.allocate(100, "sim:0"), bytearray(b"abc")
        arrived = _fast.receive(frame, "sim:0")
        message = pickle.dumps(buffer)
        if os.fork() == 0:
            for call in (lambda: pickle.dumps(buffer), lambda: pickle.loads(message), lambda: pickle.dumps(arrived)):
                try:
                    call()
                except tm.ForkError:
                    print("ForkError", flush=True)
            print(bytes(_fast.receive(frame, "cpu").copy_to_host()), flush=True)
            del arrived
            os._exit(0)
        os.wait()
        print(bytes(arrived.copy_to_host()))
    """)
    assert done.stdout.split() == ["ForkError"] * 3 + [str(b"abc")] * 2, done.stdout + done.stderr


def test_buffers_are_not_pickled_by_their_addresses(device: str) -> None:
    assert Buffer.__reduce_ex__ is not object.__reduce_ex__
    buffer = filled(16, device)
    function, arguments = buffer.__reduce_ex__(4)
    assert isinstance(arguments[0], bytearray) and contents(function(*arguments)) == contents(buffer)
