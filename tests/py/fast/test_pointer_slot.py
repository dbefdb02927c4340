"""PointerSlot: a host class's pointer attribute that is always right."""

from __future__ import annotations

from typing import Any

import pytest
from support import KIB, MIB, filled

import tack_memory
from tack_memory._native._fast import PointerSlot


def keep(instance: object, value: Any) -> Any:
    return value


class Plain:
    """As a host writes it: an attribute of the instance."""


class Slotted:
    __slots__ = ("kept",)


def host_class(base: type, storage: str) -> Any:
    return type(
        "Host",
        (base,),
        {"__slots__": ()} if base is Slotted else {},
    )  # a fresh class for each test


@pytest.mark.parametrize(
    ("base", "storage", "name"), [(Plain, "_kept", "_device_ptr"), (Plain, "_device_ptr", "_device_ptr"), (Slotted, "kept", "_device_ptr")]
)
def test_it_reads_stores_and_deletes(device: str, base: type, storage: str, name: str) -> None:
    cls = host_class(base, storage)
    setattr(cls, name, PointerSlot(storage, keep))
    assert isinstance(getattr(cls, name), PointerSlot)
    host = cls()
    with pytest.raises(AttributeError):
        getattr(host, name)
    with pytest.raises(AttributeError):
        delattr(host, name)
    setattr(host, name, 1234)
    assert getattr(host, name) == 1234, "the host's own value, while there is no Buffer"
    buffer = filled(MIB, device)
    setattr(host, name, buffer)
    assert getattr(host, name) is buffer.device_ptr
    buffer.spill()
    blocker = tack_memory.allocate(MIB, device)
    assert getattr(host, name) == buffer.device_ptr != blocker.device_ptr and not buffer.is_spilled
    setattr(host, name, buffer.view(16, 16))
    assert getattr(host, name) == buffer.device_ptr + 16
    setattr(host, name, None)
    assert getattr(host, name) is None
    delattr(host, name)
    with pytest.raises(AttributeError):
        getattr(host, name)


def test_values_older_than_the_slot_are_read_as_they_are() -> None:
    class Host:
        pass

    host = Host()
    host._device_ptr = 77  # type: ignore[attr-defined]
    Host._device_ptr = PointerSlot("_device_ptr", keep)  # type: ignore[attr-defined]
    assert host._device_ptr == 77  # type: ignore[attr-defined]
    del Host._device_ptr  # type: ignore[attr-defined]
    assert host._device_ptr == 77  # type: ignore[attr-defined]


def test_one_slot_on_classes_that_store_in_different_ways() -> None:
    """What is known of one class is not taken to be so for another, nor for the same class when it has changed."""
    slot = PointerSlot("kept", keep)
    plain, slotted = type("PlainHost", (Plain,), {"pointer": slot})(), type("SlottedHost", (Slotted,), {"__slots__": (), "pointer": slot})()
    for _ in range(3):
        for host, value in ((plain, 1), (slotted, 2)):
            host.pointer = value
            assert host.pointer == value
    assert plain.__dict__ == {"kept": 1} and slotted.kept == 2
    stored = []
    type(plain).kept = property(lambda _: 3, lambda _, value: stored.append(value))
    assert plain.pointer == 3
    plain.pointer = 4
    assert stored == [4]
    slot.__init__("other", keep)  # type: ignore[misc]
    plain.pointer = 5
    assert plain.pointer == 5 and plain.__dict__ == {"kept": 1, "other": 5}


def test_adopt_is_called_with_instance_and_value_and_its_error_changes_nothing(device: str) -> None:
    seen: list[tuple[object, object]] = []

    def adopt(instance: object, value: object) -> object:
        seen.append((instance, value))
        if value == 0:
            raise ZeroDivisionError
        return buffer

    class Host:
        pointer: Any = PointerSlot("_pointer", adopt)

    buffer, host = filled(KIB, device), Host()
    host.pointer = 55
    assert seen == [(host, 55)] and host.pointer == buffer.device_ptr
    with pytest.raises(ZeroDivisionError):
        host.pointer = 0
    assert host.pointer == buffer.device_ptr


def test_a_restore_that_cannot_be_raises_from_the_read(device: str) -> None:
    class Host:
        pointer: Any = PointerSlot("_pointer", keep)

    host = Host()
    host.pointer = filled(2 * MIB, device)
    host._pointer.spill()  # type: ignore[attr-defined]
    with tack_memory.memory_budget(MIB, device, strict=True), pytest.raises(tack_memory.DeviceMemoryError):
        host.pointer  # noqa: B018
    host._pointer.free()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="freed"):
        host.pointer  # noqa: B018


def test_arguments() -> None:
    for arguments in ((), ("x",), (1, keep), ("x", 1)):
        with pytest.raises(TypeError):
            PointerSlot(*arguments)

    class Host:
        pointer: Any = PointerSlot.__new__(PointerSlot)

    with pytest.raises(RuntimeError, match="not initialised"):
        Host().pointer = 1
