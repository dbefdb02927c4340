"""The errors: typed, with figures that fit each other, and a text that says what was asked, what is held, and what to try."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from support import KIB, MIB, filled

import tack_memory
from tack_memory import DeviceLostError, DeviceMemoryError, ForkError, Holder, StreamCaptureError, _hosts, memory_info
from tack_memory._control import call
from tack_memory._errors import memory_error, translate, typed


class HostMemoryError(RuntimeError):
    """What a framework might raise when memory runs out; its constructor wants an argument of its own."""

    def __init__(self, nbytes: int, *, backend: str) -> None:
        super().__init__(nbytes, backend)


class HostOutOfMemory(MemoryError):
    """Another framework's."""


def toy_host(error: type[BaseException] | None) -> Any:
    return types.SimpleNamespace(
        name="toy", module=types.ModuleType("toy"), memory_error=error, current_device=lambda: "sim:0", device_of=lambda _: None, buffers_of=lambda _: None
    )


@pytest.fixture
def host() -> Iterator[Any]:
    plugged = toy_host(HostMemoryError)
    _hosts.register(plugged)
    yield plugged
    _hosts.unregister(plugged)


def provoke(device: str = "sim:0", **options: Any) -> DeviceMemoryError:
    """A real error: a strict budget of 4 MiB, 3 MiB of them held, 2 MiB asked for."""
    held = tack_memory.allocate(3 * MIB, device, label="held on purpose")
    with tack_memory.memory_budget(4 * MIB, device, strict=True), held.hold("a texture"), pytest.raises(DeviceMemoryError) as caught:
        tack_memory.allocate(2 * MIB, device, **options)
    error: DeviceMemoryError = caught.value.with_traceback(None)
    return error


def test_it_is_a_memory_error_and_a_runtime_error() -> None:
    assert issubclass(DeviceMemoryError, MemoryError) and issubclass(DeviceMemoryError, RuntimeError)
    assert issubclass(DeviceLostError, RuntimeError) and issubclass(ForkError, RuntimeError) and issubclass(StreamCaptureError, RuntimeError)


def test_its_figures_are_those_of_the_failure(device: str) -> None:
    error = provoke(device)
    assert (error.device, error.requested, error.reason, error.budget) == (device, 2 * MIB, "budget", 4 * MIB)
    assert error.in_use == 3 * MIB and error.spilled == 0
    assert error.unspillable == {"hold: a texture": 3 * MIB}
    assert [(holder.label, holder.bytes, holder.count) for holder in error.holders] == [("held on purpose", 3 * MIB, 1)]


def test_its_figures_do_not_contradict_each_other(device: str) -> None:
    for error in (provoke(device), refused(device), physically_full(device)):
        assert sum(error.unspillable.values()) <= error.in_use
        assert sum(holder.resident for holder in error.holders) <= error.in_use
        assert sum(holder.bytes for holder in error.holders) <= error.in_use + error.spilled
        assert [holder.bytes for holder in error.holders] == sorted((holder.bytes for holder in error.holders), reverse=True)
        if error.device_free is not None and error.device_total is not None:
            assert 0 <= error.device_free <= error.device_total
        if error.reason == "budget":
            assert error.budget is not None and error.in_use + error.requested > error.budget
        if error.reason == "too_large" and error.budget is not None:
            assert error.requested > error.budget
        if error.reason == "device" and error.device_free is not None and error.largest_free is None:
            assert error.device_free < error.requested


def refused(device: str) -> DeviceMemoryError:
    with tack_memory.memory_budget(4 * MIB, device, strict=True), pytest.raises(DeviceMemoryError) as caught:
        tack_memory.allocate(5 * MIB, device)
    assert caught.value.reason == "too_large"
    error: DeviceMemoryError = caught.value.with_traceback(None)
    return error


def physically_full(device: str) -> DeviceMemoryError:
    total = tack_memory.memory_info(device).device_total
    assert total is not None
    with tack_memory.allocate(total // 2, device, zero=False).hold("half"), pytest.raises(DeviceMemoryError) as caught:
        tack_memory.allocate(total * 3 // 4, device, zero=False)
    assert caught.value.reason == "device"
    error: DeviceMemoryError = caught.value.with_traceback(None)
    return error


def test_more_than_the_device_has_is_refused_before_anything_moves(device: str) -> None:
    total = tack_memory.memory_info(device).device_total
    assert total is not None
    kept = tack_memory.allocate(MIB, device)
    before = tack_memory.memory_info(device).spill_count
    with pytest.raises(DeviceMemoryError, match="more than the whole device has") as caught:
        tack_memory.allocate(2 * total, device)
    assert caught.value.reason == "too_large"
    assert not kept.is_spilled and tack_memory.memory_info(device).spill_count == before


def test_its_text_says_what_was_asked_what_is_held_and_what_to_try(device: str) -> None:
    text = str(provoke(device))
    assert text.startswith(f"{device}: 2 MiB (2,097,152 bytes) cannot be had")
    for part in ("tracked: 3 MiB on the device, 0 B spilled", "budget 4 MiB", "3 MiB (hold: a texture)", "held on purpose", "try: end holds"):
        assert part in text, f"{part!r} is missing in:\n{text}"


def test_its_text_tells_what_is_exported_and_what_is_not_ours(steered: str, soft: Any) -> None:
    soft.set("taken", 100 * MIB)  # another process
    exported = tack_memory.allocate(150 * MIB, steered, zero=False).export("dlpack")
    with pytest.raises(DeviceMemoryError) as caught:
        tack_memory.allocate(20 * MIB, steered)
    text = str(caught.value)
    for part in ("tracked: 150 MiB", "150 MiB (export: dlpack)", "not ours: 100 MiB", "drop exported arrays"):
        assert part in text, f"{part!r} is missing in:\n{text}"
    del exported


def test_the_cause_that_level_zero_has_no_room_is_in_the_units_of_the_rest() -> None:
    """Its driver would give more than there is, so this refusal is our own, in our words."""
    kept = tack_memory.allocate(200 * MIB, "sim-level_zero:0", zero=False)
    with kept.hold(), pytest.raises(DeviceMemoryError) as caught:
        tack_memory.allocate(100 * MIB, "sim-level_zero:0")
    assert caught.value.cause is not None and "there is room for 56 MiB; 100 MiB wanted" in caught.value.cause


def test_it_can_be_pickled_and_copied(device: str) -> None:
    error = provoke(device)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is DeviceMemoryError
        assert twin.fields() == error.fields() and str(twin) == str(error)
        assert twin.holders == error.holders


def test_it_keeps_no_buffer_alive(device: str) -> None:
    error = provoke(device)
    gc.collect()
    info = tack_memory.memory_info(device)
    assert info.in_use == 0, error


def test_its_figures_can_be_put_into_json(device: str) -> None:
    fields = provoke(device).fields()
    fields["holders"] = [holder.to_dict() for holder in fields["holders"]]
    assert json.loads(json.dumps(fields))["requested"] == 2 * MIB


def test_raised_while_a_framework_is_plugged_in_it_is_the_frameworks_error_too(host: Any) -> None:
    error = provoke()
    assert isinstance(error, HostMemoryError) and isinstance(error, DeviceMemoryError)
    assert str(error).startswith("sim:0: 2 MiB")
    twin = pickle.loads(pickle.dumps(error))
    assert isinstance(twin, HostMemoryError) and twin.fields() == error.fields()


def test_where_the_framework_is_not_plugged_in_it_unpickles_as_the_plain_error(host: Any) -> None:
    data = pickle.dumps(provoke())
    _hosts.unregister(host)
    assert type(pickle.loads(data)) is DeviceMemoryError


@pytest.mark.parametrize("theirs", [None, MemoryError, RuntimeError, HostOutOfMemory, OSError])
def test_any_class_of_a_frameworks_error_fits(theirs: type[BaseException] | None) -> None:
    other = toy_host(theirs)
    _hosts.register(other)
    try:
        error = memory_error({"device": "sim:0", "requested": 1})
    finally:
        _hosts.unregister(other)
    assert isinstance(error, DeviceMemoryError)
    assert theirs in (None, OSError) or isinstance(error, theirs)  # type: ignore[arg-type]


def test_unknown_figures_are_none() -> None:
    error = memory_error({"device": "cuda:0", "requested": 5, "cached": -1, "budget": -1, "device_free": None, "largest_free": -1})
    assert error.cached is error.budget is error.device_free is error.largest_free is error.not_ours is None
    assert "-1" not in str(error) and "None" not in str(error)


@pytest.mark.parametrize("reason", ["budget", "device", "host", "too_large"])
def test_every_reason_has_a_text_of_its_own(reason: str) -> None:
    texts = {other: str(memory_error({"device": "d", "requested": 9, "budget": 8, "reason": other})) for other in ("budget", "device", "host", "too_large")}
    assert texts[reason].count("try: ") == 1
    assert len(set(texts.values())) == 4


def test_what_a_strict_budget_refuses_says_that_it_is_strict_and_how_to_make_it_soft(device: str) -> None:
    """And what it does not refuse, does not: a soft budget is never the reason."""
    soft = "raise the budget (set_memory_budget) or make it soft (strict=False)"
    tack_memory.empty_host_pool()
    fixed = tack_memory.allocate(MIB, device, movable=False)
    with tack_memory.memory_budget(2 * MIB, device, strict=True):
        movable = tack_memory.allocate(MIB, device)
        with movable.hold("kept"), pytest.raises(DeviceMemoryError, match="the strict budget of 2 MiB does not allow it") as refused:
            tack_memory.allocate(MIB, device)
        assert refused.value.reason == "budget" and soft in str(refused.value)
        with pytest.raises(DeviceMemoryError, match="more than the whole strict budget of 2 MiB") as refused:
            tack_memory.allocate(3 * MIB, device)
        assert refused.value.reason == "too_large" and soft in str(refused.value)
        call("SetHostLimit", 4096)
        try:
            with pytest.raises(DeviceMemoryError, match="host memory for spilled copies ran out") as refused:
                tack_memory.allocate(MIB, device)
        finally:
            call("SetHostLimit", -1)
        assert refused.value.reason == "host" and soft in str(refused.value) and "TACK_MEMORY_HOST_LIMIT" in str(refused.value)
    with tack_memory.memory_budget(2 * MIB, device):
        total = memory_info(device).device_total or 0
        with pytest.raises(DeviceMemoryError, match="more than the whole device has") as refused:
            tack_memory.allocate(total + MIB, device)
        assert refused.value.reason == "too_large" and "budget (" not in str(refused.value) and "strict" not in str(refused.value)
    del fixed


def test_errors_of_the_control_plane_become_typed() -> None:
    def tell(kind: str, fields: dict[str, Any] | None = None) -> BaseException:
        return translate(RuntimeError("tm1:" + json.dumps({"kind": kind, "msg": "what happened", "fields": fields})))

    error = tell("memory", {"device": "sim:0", "requested": 7, "reason": "host"})
    assert isinstance(error, DeviceMemoryError) and (error.requested, error.reason) == (7, "host")
    for kind, expected in (
        ("lost", DeviceLostError),
        ("fork", ForkError),
        ("capture", StreamCaptureError),
        ("value", ValueError),
        ("busy", BufferError),
        ("new kind", RuntimeError),
    ):
        error = tell(kind)
        assert type(error) is expected and str(error) == "what happened"


def test_other_errors_pass_through_unchanged() -> None:
    for original in (RuntimeError("plain"), RecursionError("tm1:{}"), NotImplementedError("tm1:{}")):

        def fails(error: RuntimeError = original) -> None:
            raise error

        with pytest.raises(RuntimeError) as caught:
            typed(fails)()
        assert caught.value is original


def test_an_error_of_the_control_plane_arrives_without_the_one_it_was_made_from() -> None:
    def fails() -> None:
        raise RuntimeError('tm1:{"kind": "value", "msg": "no such thing"}')

    with pytest.raises(ValueError, match="no such thing") as caught:
        typed(fails)()
    assert caught.value.__context__ is None


def test_a_lost_device_is_told_as_such_and_the_books_can_still_be_read() -> None:
    from support import run_python

    done = run_python(
        """
        import tack_memory as tm
        buffer = tm.allocate(1 << 20, "sim:0", label="kept")
        stale = tm.allocate(64, "sim:0")
        pointer = stale.device_ptr
        stale.free()
        tm.synchronize("sim:0")
        try:
            tm.wrap(pointer, 64, "sim:0", None).copy_to_host()  # an illegal access, as a faulty kernel makes it
        except RuntimeError:
            pass
        for work in (lambda: tm.allocate(1 << 20, "sim:0"), buffer.spill, buffer.copy_to_host):
            try:
                work()
            except tm.DeviceLostError as error:
                print("lost", "sim:0" in str(error))
        print(tm._native._fast.counters("sim:0"))
        """
    )
    assert done.stdout.splitlines()[:3] == ["lost True"] * 3, done.stdout + done.stderr
    assert done.stdout.splitlines()[3].startswith("(1048576,")
    assert done.returncode == 0, done.stderr


def test_holders_are_values() -> None:
    holder = Holder({"label": "mesh", "origin": "", "device": "sim:0", "bytes": 2 * KIB, "resident": KIB, "spilled": KIB, "count": 2, "holds": ""})
    assert holder == Holder(holder.to_dict()) and holder != Holder({})
    assert holder.origin is None and holder.name == "mesh"
    assert pickle.loads(pickle.dumps(holder)) == holder


def test_an_error_is_freed_with_its_program(device: str) -> None:
    error = provoke(device)
    reference = weakref.ref(error)
    del error
    gc.collect()
    assert reference() is None


def test_after_a_caught_error_a_smaller_allocation_works_and_the_books_are_exact(device: str) -> None:
    error = physically_full(device)
    smaller = filled(min(error.requested // 8, 64 * MIB), device)
    assert tack_memory.memory_info(device).in_use == smaller.nbytes
