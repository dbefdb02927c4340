"""Buffers: every method, resident and spilled, views, freeing early, and what stays readable afterwards."""

from __future__ import annotations

import array
import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy
import pytest
from support import KIB, MIB, contents, filled, pattern

import tack_memory
from tack_memory import Buffer, BufferView, allocate, memory_info

STATES = ["resident", "spilled"]


def make(nbytes: int, device: str, state: str, seed: int = 1) -> Buffer:
    buffer = filled(nbytes, device, seed)
    if state == "spilled":
        assert buffer.spill() == nbytes
    assert buffer.state == state and buffer.is_spilled is (state == "spilled")
    return buffer


# ---- allocation


def test_new_memory_is_zero_unless_asked_otherwise(any_device: str) -> None:
    dirty = filled(MIB, any_device)
    dirty.free()
    buffer = allocate(MIB, any_device)
    assert contents(buffer) == bytes(MIB)
    assert allocate(MIB, any_device, zero=False).nbytes == MIB


@pytest.mark.parametrize(("size", "nbytes"), [(5, 5), ("1 KiB", 1024), ("1.5kB", 1500), (numpy.int16(9), 9), (0, 0)])
def test_a_size_is_what_sizes_are(any_device: str, size: Any, nbytes: int) -> None:
    assert allocate(size, any_device).nbytes == nbytes


def test_a_percentage_is_a_share_of_the_device(device: str) -> None:
    total = memory_info(device).device_total
    assert total is not None
    assert allocate("1%", device, zero=False).nbytes == total // 100


def test_its_properties(any_device: str) -> None:
    buffer = allocate(100, any_device, label="mesh")
    assert (buffer.nbytes, buffer.device, buffer.state, buffer.is_spilled) == (100, any_device, "resident", False)
    assert (buffer.label, buffer.origin, buffer.holds) == ("mesh", None, {})
    assert type(buffer.device_ptr) is int and buffer.device_ptr > 0
    assert "100 bytes" in repr(buffer) and any_device in repr(buffer) and "mesh" in repr(buffer)
    buffer.label = None
    assert buffer.label is None
    buffer.label = "other"
    assert buffer.label == "other"


def test_it_can_only_be_made_by_allocate_and_adopt() -> None:
    for kind in (Buffer, BufferView, tack_memory.Exported, tack_memory.Reservation):
        with pytest.raises(TypeError):
            kind()


def test_an_address_lies_in_nobody_elses_memory(any_device: str) -> None:
    buffers = [allocate(4 * KIB, any_device) for _ in range(16)]
    ranges = sorted((buffer.device_ptr, buffer.device_ptr + buffer.nbytes) for buffer in buffers)
    assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:], strict=False))


def test_memory_that_cannot_move_is_never_spilled_and_says_why(device: str) -> None:
    buffer = allocate(MIB, device, movable=False, reason="MPI")
    assert buffer.spill() == 0 and not buffer.is_spilled
    with tack_memory.memory_budget(KIB, device):
        assert not buffer.is_spilled
    assert tack_memory.memory_report(device).holds == {"unmovable: MPI": MIB}


def test_a_reason_is_only_for_what_cannot_move(any_device: str) -> None:
    with pytest.raises((TypeError, ValueError), match="reason"):
        allocate(1, any_device, reason="MPI")


# ---- contents


@pytest.mark.parametrize("state", STATES)
def test_host_access_works_on_whichever_copy_is_true_and_moves_nothing(device: str, state: str) -> None:
    buffer = make(64 * KIB, device, state)
    before = memory_info(device)
    expected = bytearray(pattern(64 * KIB))
    assert contents(buffer) == expected
    buffer.copy_from_host(b"hello", 1000)
    expected[1000:1005] = b"hello"
    buffer.fill(7, 10, 20)
    expected[10:30] = bytes([7]) * 20
    buffer.fill(b"abc", 50, 8)
    expected[50:58] = b"abcabcab"
    assert buffer.copy_to_host(nbytes=100) == expected[:100]
    assert buffer.copy_to_host(None, 990, 30) == expected[990:1020]
    assert contents(buffer) == expected
    after = memory_info(device)
    assert buffer.state == state
    assert (after.spill_count, after.restore_count) == (before.spill_count, before.restore_count)
    assert (after.in_use, after.spilled) == (before.in_use, before.spilled)
    if state == "spilled":
        assert buffer.device_ptr and buffer.state == "resident"
        assert contents(buffer) == expected, "a write to the host copy is the newer one"


@pytest.mark.parametrize("state", STATES)
def test_reading_into_the_callers_memory(device: str, state: str) -> None:
    buffer = make(KIB, device, state)
    out = bytearray(KIB)
    assert buffer.copy_to_host(out) is out and out == pattern(KIB)
    part = memoryview(bytearray(10))
    buffer.copy_to_host(part, 5, 10)
    assert part == pattern(KIB)[5:15]
    values = numpy.zeros(KIB // 8, dtype=numpy.float64)
    buffer.copy_to_host(values)
    assert values.tobytes() == pattern(KIB)
    smaller = bytearray(100)
    assert buffer.copy_to_host(smaller) is smaller and smaller == pattern(KIB)[:100], "as many bytes as out has"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "source", [b"12345678", bytearray(b"12345678"), memoryview(b"0123456789")[1:9], array.array("d", [1.5]), numpy.arange(2, dtype="f4").reshape(1, 2)]
)
def test_any_contiguous_buffer_can_be_written(device: str, state: str, source: Any) -> None:
    buffer = make(16, device, state)
    buffer.copy_from_host(source, 8)
    assert contents(buffer) == pattern(16)[:8] + bytes(memoryview(source).cast("B"))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("value", [0, 255, b"x", b"ab", b"abc", b"0123", b"12345", b"01234567", bytes(range(15)), bytes(range(16))])
def test_filling_repeats_the_pattern(device: str, state: str, value: Any) -> None:
    one = bytes([value]) if isinstance(value, int) else value
    for nbytes in (1, 7, 16, 33, 4099):
        buffer = make(nbytes, device, state)
        buffer.fill(value)
        assert contents(buffer) == (one * nbytes)[:nbytes]


def test_filling_a_part_leaves_the_rest(any_device: str) -> None:
    buffer = filled(100, any_device)
    buffer.fill(b"xyz", 3, 10)
    buffer.fill(1, 100, 0)
    buffer.fill(2, 100)
    assert contents(buffer) == pattern(100)[:3] + b"xyzxyzxyzx" + pattern(100)[13:]


@pytest.mark.parametrize("target_state", STATES)
@pytest.mark.parametrize("source_state", STATES)
def test_copying_between_buffers(device: str, target_state: str, source_state: str) -> None:
    target, source = make(1000, device, target_state, 1), make(500, device, source_state, 2)
    before = memory_info(device).restore_count
    target.copy_from(source, 100, 50, 200)
    expected = bytearray(pattern(1000, 1))
    expected[100:300] = pattern(500, 2)[50:250]
    moved = (target_state == "spilled") != (source_state == "spilled")
    assert memory_info(device).restore_count - before == moved, "both spilled: on the host; one of them: it is made resident"
    assert contents(target) == expected and contents(source) == pattern(500, 2)
    target.copy_from(source)
    expected[:500] = pattern(500, 2)
    assert contents(target) == expected


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("to", "start"), [(0, 10), (10, 0), (5, 5), (1, 0), (0, 1), (500, 0)])
def test_overlapping_copies_are_as_memmove(device: str, state: str, to: int, start: int) -> None:
    buffer = make(1000, device, state)
    expected = bytearray(pattern(1000))
    expected[to : to + 500] = pattern(1000)[start : start + 500]
    buffer.copy_from(buffer, to, start, 500)
    assert contents(buffer) == expected


def test_a_copy_stays_on_one_device() -> None:
    with pytest.raises(ValueError, match="device"):
        allocate(8, "sim:0").copy_from(allocate(8, "sim:1"))
    with pytest.raises(ValueError, match="device"):
        allocate(8, "sim:0").copy_from(allocate(8, "cpu"))


RANGES = [(-1, 1), (0, -1), (101, 0), (100, 1), (0, 101), (50, 51), (2**62, 2**62), (2**63, 1), (0, 2**64)]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("offset", "nbytes"), RANGES)
def test_a_range_outside_is_a_value_error_and_changes_nothing(device: str, state: str, offset: int, nbytes: int) -> None:
    buffer, other = make(100, device, state), make(300, device, state, 2)
    attempts = [
        lambda: buffer.copy_to_host(None, offset, nbytes),
        lambda: buffer.fill(0, offset, nbytes),
        lambda: buffer.view(offset, nbytes),
        lambda: buffer.copy_from(other, offset, 0, nbytes),
        lambda: other.copy_from(buffer, 0, offset, nbytes),
    ]
    if 0 <= nbytes < 1000:
        attempts.append(lambda: buffer.copy_from_host(bytes(nbytes), offset) if (offset, nbytes) != (0, 0) else None)
    for attempt in attempts:
        with pytest.raises(ValueError):
            attempt()
    assert contents(buffer) == pattern(100) and contents(other) == pattern(300, 2)


def test_more_than_fits_is_refused(any_device: str) -> None:
    buffer = filled(10, any_device)
    with pytest.raises(ValueError):
        buffer.copy_from_host(bytes(11))
    with pytest.raises(ValueError):
        buffer.copy_to_host(bytearray(5), 0, 6)
    with pytest.raises(ValueError):
        buffer.copy_from(filled(11, any_device))
    assert contents(buffer) == pattern(10)


# ---- spilling and restoring


def test_spilling_frees_and_restoring_brings_back(device: str) -> None:
    buffer = filled(MIB, device)
    assert buffer.spill() == MIB and buffer.state == "spilled"
    assert buffer.spill() == 0
    buffer.restore()
    assert buffer.state == "resident"
    buffer.restore()
    assert contents(buffer) == pattern(MIB)


def test_a_restore_at_another_address_is_seen_by_every_later_use(steered: str, soft: Any) -> None:
    """Freed addresses are never used again here, so the address is another one."""
    buffer = filled(MIB, steered)
    view = buffer.view(100, 50)
    before = buffer.device_ptr
    assert view.device_ptr == before + 100
    buffer.spill()
    after = buffer.device_ptr
    assert after != before and buffer.device_ptr == after and view.device_ptr == after + 100
    with tack_memory.launch(buffer, view) as pointers:
        assert pointers == (after, after + 100)
    with buffer.hold() as pointer:
        assert pointer == after
    assert buffer.export("dlpack").device_ptr == after


def test_device_ptr_makes_it_resident(device: str) -> None:
    buffer = make(KIB, device, "spilled")
    assert buffer.device_ptr and buffer.state == "resident" and contents(buffer) == pattern(KIB)


def test_size_zero_is_legal_everywhere_and_never_a_victim(any_device: str) -> None:
    buffer = allocate(0, any_device)
    assert (buffer.nbytes, buffer.state, contents(buffer)) == (0, "resident", b"")
    buffer.fill(1)
    buffer.copy_from_host(b"")
    assert buffer.copy_to_host(bytearray()) == b""
    buffer.copy_from(allocate(0, any_device))
    assert buffer.spill() == 0 and not buffer.is_spilled
    buffer.restore()
    assert isinstance(buffer.device_ptr, int)
    view = buffer.view(0, 0)
    with tack_memory.launch(buffer, view) as pointers:
        assert len(pointers) == 2
    with buffer.hold("empty"):
        pass
    exported = buffer.export("dlpack")
    assert exported.nbytes == 0
    exported.close()
    buffer.free()
    assert allocate(10, any_device).view(10, 0).nbytes == 0


# ---- views


def test_a_view_shares_its_bases_memory(any_device: str) -> None:
    base = filled(1000, any_device)
    view = base.view(100, 200)
    inner = view.view(50, 10)
    assert (view.nbytes, view.offset, view.base, view.owner) == (200, 100, base, base)
    assert (inner.nbytes, inner.offset, inner.base) == (10, 150, base)
    assert inner.device_ptr == base.device_ptr + 150
    assert contents(inner) == pattern(1000)[150:160]
    inner.copy_from_host(b"0123456789")
    assert contents(base)[150:160] == b"0123456789"
    assert (view.device, view.state, view.is_spilled) == (base.device, base.state, base.is_spilled)


def test_a_write_through_a_view_after_a_spill_and_a_restore_is_seen_in_the_base(device: str) -> None:
    base = filled(1000, device)
    view = base.view(100, 200)
    base.spill()
    view.copy_from_host(b"while spilled", 0)
    base.restore()
    assert contents(base)[100:113] == b"while spilled"
    view.fill(9, 0, 4)
    assert contents(base)[100:104] == b"\x09" * 4
    view.spill()
    base.copy_from_host(b"base", 100)
    assert contents(view)[:4] == b"base" and base.is_spilled
    assert view.device_ptr == base.device_ptr + 100 and not view.is_spilled


def test_a_view_spills_and_holds_its_whole_base(device: str) -> None:
    base = filled(1000, device)
    view = base.view(100, 200)
    assert view.spill() == 1000
    with view.hold("through a view") as pointer:
        assert pointer == base.device_ptr + 100
        assert base.spill() == 0 and base.holds == view.holds == {"hold: through a view": 1}
    view.label = "named"
    assert base.label == view.label == "named"


def test_a_view_keeps_its_base_alive_and_owns_nothing(any_device: str) -> None:
    base = filled(1000, any_device)
    reference = weakref.ref(base)
    view = base.view(0, 10)
    del base
    gc.collect()
    assert reference() is not None and contents(view) == pattern(1000)[:10]
    assert memory_info(any_device).in_use == 1000
    del view
    gc.collect()
    assert reference() is None and memory_info(any_device).in_use == 0


# ---- freeing early


def test_free_is_early_and_idempotent(any_device: str) -> None:
    buffer = filled(1000, any_device, label="gone")
    view = buffer.view(0, 10)
    buffer.free()
    buffer.free()
    assert memory_info(any_device).in_use == 0
    assert (buffer.nbytes, buffer.device, buffer.state, buffer.is_spilled) == (1000, any_device, "freed", False)
    assert (buffer.label, buffer.origin, buffer.holds) == ("gone", None, {})
    assert "freed" in repr(buffer) and "freed" in repr(view)


def test_a_spilled_buffer_can_be_freed(device: str) -> None:
    buffer = make(MIB, device, "spilled")
    buffer.free()
    info = memory_info(device)
    assert (info.in_use, info.spilled) == (0, 0)


USES = {
    "device_ptr": lambda b: b.device_ptr,
    "copy_to_host": lambda b: b.copy_to_host(),
    "copy_to_host of nothing": lambda b: b.copy_to_host(nbytes=0),
    "copy_from_host": lambda b: b.copy_from_host(b"x"),
    "fill": lambda b: b.fill(0),
    "copy_from": lambda b: b.copy_from(allocate(1, b.device)),
    "copied from": lambda b: allocate(1000, b.device).copy_from(b, nbytes=1),
    "spill": lambda b: b.spill(),
    "restore": lambda b: b.restore(),
    "view": lambda b: b.view(0, 1),
    "hold": lambda b: b.hold("later").__enter__(),
    "export": lambda b: b.export("dlpack"),
    "launch": lambda b: tack_memory.launch(b).__enter__(),
    "launch with others": lambda b: tack_memory.launch(allocate(1, b.device), b).__enter__(),
    "hold of arrays": lambda b: tack_memory.hold(b).__enter__(),
    "spill of arrays": lambda b: tack_memory.spill(b),
    "restore of arrays": lambda b: tack_memory.restore(b),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("what", ["buffer", "view"])
def test_use_after_free_is_a_value_error(device: str, use: str, what: str) -> None:
    buffer = filled(1000, device)
    used: Any = buffer if what == "buffer" else buffer.view(0, 10)
    buffer.free()
    before = memory_info(device).in_use
    with pytest.raises(ValueError, match="freed"):
        USES[use](used)
    assert memory_info(device).in_use == before


def test_with_a_hold_an_export_or_a_launch_nothing_is_freed(device: str) -> None:
    buffer = filled(1000, device)
    with buffer.hold("a texture"), pytest.raises(BufferError, match="texture"):
        buffer.free()
    with tack_memory.launch(buffer), pytest.raises(BufferError):
        buffer.free()
    exported = buffer.export("dlpack")
    with pytest.raises(BufferError, match="dlpack"):
        buffer.free()
    assert contents(buffer) == pattern(1000) and memory_info(device).in_use == 1000
    exported.close()
    buffer.free()
    assert memory_info(device).in_use == 0


def test_dropping_the_last_reference_frees(any_device: str) -> None:
    buffer = filled(1000, any_device)
    del buffer
    assert memory_info(any_device).in_use == 0


def test_pending_frees_come_back_after_a_synchronize(steered: str, soft: Any) -> None:
    soft.set("delay_us", 2000)
    buffers = [allocate(MIB, steered) for _ in range(8)]
    buffers.clear()
    assert memory_info(steered).in_use == 0, "the books fall when the program lets go, not when the driver is done"
    tack_memory.synchronize(steered)
    info = memory_info(steered)
    assert info.pending_free == 0


def test_code_of_a_person_in_a_folder_of_our_name_is_an_origin(any_device: str, tmp_path: Path) -> None:
    """Whose project, or checkout, lies in a folder "tack_memory" wants his own lines, not those of what called them."""
    script = tmp_path / "tack_memory" / "app.py"
    names: dict[str, Any] = {"device": any_device}
    before = tack_memory.set_origins("line")
    try:
        exec(compile("import tack_memory\nbuffer = tack_memory.allocate(10, device)", str(script), "exec"), names)
    finally:
        tack_memory.set_origins(before)
    assert names["buffer"].origin == f"{script}:2"


def test_origins_are_recorded_where_they_are_on(any_device: str) -> None:
    before = tack_memory.set_origins("line")
    try:
        buffer, line = allocate(10, any_device), sys._getframe().f_lineno
    finally:
        assert tack_memory.set_origins(before) == "line"
    assert buffer.origin == f"{__file__}:{line}"
    assert allocate(10, any_device).origin is None
    with pytest.raises(ValueError):
        tack_memory.set_origins("everything")  # type: ignore[arg-type]


def test_figures_about_streams_and_caches(device: str) -> None:
    assert type(tack_memory.stream(device)) is int
    allocate(MIB, device).free()
    tack_memory.synchronize(device)
    assert tack_memory.empty_cache(device) >= 0
    filled(MIB, device).spill()
    assert tack_memory.empty_host_pool() >= 0
    assert memory_info(device).host_bytes == 0
