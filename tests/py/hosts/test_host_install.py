"""Plugging in and out: what a host gets, when it is refused, and that nothing of it is left behind."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import plugging
import pytest
from flavours import Flavour
from plugging import ADDED, attributes, same, take_out
from support import KIB, MIB, SoftDriver

import tack_memory
from tack_memory._native import _fast
from tack_memory.hosts import HostHasMemoryError, MissingSeamError
from tack_memory.hosts._features import places
from tack_memory.hosts._pointer_buffers import ours


@pytest.fixture
def unplugged(bare: ModuleType) -> Iterator[ModuleType]:
    """Minihost not plugged in; the test may plug it in."""
    yield bare
    gc.collect()
    take_out(bare)


def test_uninstall_leaves_every_attribute_as_it_was(unplugged: ModuleType, flavour: Flavour) -> None:
    before = attributes(unplugged)
    tack_memory.install(unplugged)
    assert not same(before, attributes(unplugged))
    a = unplugged.asarray([1, 2, 3])
    assert tack_memory.memory_info(flavour.device()).in_use == a.nbytes
    tack_memory.uninstall(unplugged)
    assert same(before, attributes(unplugged))


def test_what_vendors_share_is_wrapped_once_and_left_alone(unplugged: ModuleType) -> None:
    """Their buffers have their methods from one base class. That stays as it is: whoever else builds on it is not ours."""
    shared = dict(vars(unplugged.runtime.buffer.Buffer))
    tack_memory.install(unplugged)
    assert dict(vars(unplugged.runtime.buffer.Buffer)) == shared
    for cls in (unplugged.runtime.cuda_backend.CUDABuffer, unplugged.runtime.hip_backend.HIPBuffer, unplugged.runtime.level_zero_backend.L0Buffer):
        for name in ("__init__", "__del__", "to_numpy", "from_numpy", "read_range", "fill_bytes", "copy_from"):
            assert vars(cls)[name].__wrapped__ is shared[name], f"{cls.__name__}.{name}"


def test_a_method_is_wrapped_once_however_classes_inherit() -> None:
    def a(self: object) -> None: ...
    def b(self: object) -> None: ...
    def c(self: object) -> None: ...

    shared = type("Shared", (), {"read": a, "fill": b})  # not one of those that are patched
    first = type("First", (shared,), {"fill": c})
    second = type("Second", (shared,), {})
    derived = type("Derived", (first,), {"read": b})
    found = {(cls.__name__, name): function for cls, name, function in places((derived, first, second), ("read", "fill", "copy"))}
    assert found == {("First", "read"): a, ("First", "fill"): c, ("Second", "read"): a, ("Second", "fill"): b, ("Derived", "read"): b}


def test_abstract_classes_stay_abstract(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is abstract in a host's class is so with us in its place: a class that is derived meanwhile must still define it."""
    base = unplugged.runtime.backend.GPUBackend
    names = ("execute", "wrap_ptr")  # of both kinds of what takes a method's place: in C and in Python
    for name in names:
        monkeypatch.setattr(getattr(base, name), "__isabstractmethod__", True, raising=False)
    defined = dict.fromkeys(base.__abstractmethods__)
    monkeypatch.setattr(base, "__abstractmethods__", base.__abstractmethods__ | set(names))  # as if they had been so from the beginning
    tack_memory.install(unplugged)
    assert all(vars(base)[name].__wrapped__ for name in names)
    derived = type(base)("Derived", (base,), defined)
    assert derived.__abstractmethods__ == set(names)
    with pytest.raises(TypeError, match="abstract"):
        derived(None, 0)


def test_installing_twice_changes_nothing(unplugged: ModuleType, flavour: Flavour) -> None:
    tack_memory.install(unplugged)
    once = attributes(unplugged)
    tack_memory.install(unplugged)
    assert same(once, attributes(unplugged))
    a = unplugged.zeros(1000)
    assert tack_memory.memory_info(flavour.device()).in_use == a.nbytes


@pytest.mark.parametrize("name", ADDED)
def test_the_host_gets_the_names_it_lacks(host: ModuleType, name: str) -> None:
    assert getattr(host, name).__doc__ == getattr(tack_memory, name).__doc__


def test_an_attribute_of_the_host_is_never_replaced(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plugging.check_own_name_stays(unplugged, monkeypatch)


@pytest.mark.parametrize("name", ["memory_info", "set_memory_budget"])
def test_a_host_that_counts_by_itself_is_left_alone(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plugging.check_counting_by_itself_is_refused(unplugged, monkeypatch, name)


@pytest.mark.parametrize("place", ["cuda_backend.CUDABuffer", "level_zero_backend.L0Buffer", "buffer.Buffer"])
def test_a_second_layer_is_refused(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    module, _, name = place.partition(".")
    buffer = getattr(getattr(unplugged.runtime, module), name)
    monkeypatch.setattr(buffer, "_device_ptr", property(lambda self: 0), raising=False)
    plugging.check_install_is_refused(unplugged, HostHasMemoryError, "_device_ptr is already a property")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("", "DeviceMemoryError"),
        ("lang.array", "_allocate"),
        ("lang.dlpack", "to_dlpack"),
        ("runtime.backend", "GPUBackend"),
        ("runtime.backend.GPUBackend", "execute"),
        ("runtime.backend.GPUBackend", "reduce"),
        ("runtime.buffer.Buffer", "read_range"),
        ("runtime.buffer.Buffer", "__del__"),
    ],
)
def test_a_missing_seam_is_named_and_nothing_is_touched(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch, owner: str, name: str) -> None:
    plugging.check_missing_seam_is_named(unplugged, monkeypatch, owner, name)


def test_some_other_module_is_no_host() -> None:
    with pytest.raises(MissingSeamError, match="array generation"):
        tack_memory.install(ModuleType("no_host"))


@pytest.mark.parametrize("host", [42, "minihost", object()])
def test_a_host_is_a_module(host: Any) -> None:
    with pytest.raises(TypeError, match="module"):
        tack_memory.install(host)


@pytest.mark.parametrize("name", ["simulate", "simulate_capacity"])
def test_simulate_needs_a_cpu_backend(unplugged: ModuleType, name: str) -> None:
    plugging.check_install_is_refused(unplugged, ValueError, "CPU backend", **{name: "64 KiB"})


def test_uninstalling_what_is_not_plugged_in(unplugged: ModuleType) -> None:
    with pytest.raises(ValueError, match="not plugged in"):
        tack_memory.uninstall(unplugged)


def test_uninstall_is_refused_while_somebody_else_is_on_top(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = host.runtime.backend.GPUBackend
    ours = backend.execute
    with monkeypatch.context() as patch:
        patch.setattr(backend, "execute", lambda *args: ours(*args))
        with pytest.raises(RuntimeError, match=r"GPUBackend\.execute"):
            tack_memory.uninstall(host)
        assert hasattr(host, "memory_info")


def test_uninstall_brings_everything_back_and_the_host_frees_it(unplugged: ModuleType, flavour: Flavour, soft: SoftDriver) -> None:
    def make(nbytes: int, value: int) -> Any:
        return unplugged.asarray(np.full(nbytes, value, np.uint8))

    # Without pools the host frees late: when it synchronizes.
    plugging.check_everything_comes_back(unplugged, flavour.device(), soft, make, lambda array: array.numpy(), unplugged.synchronize)


def test_uninstall_is_refused_when_not_everything_fits(unplugged: ModuleType, soft: SoftDriver) -> None:
    plugging.check_uninstall_is_refused_where_not_everything_fits(
        unplugged, soft, lambda nbytes, value: unplugged.full(nbytes, value, np.uint8), lambda array: array.numpy()
    )


def test_uninstall_is_refused_while_an_array_is_exported(unplugged: ModuleType) -> None:
    tack_memory.install(unplugged)
    before = [unplugged.full(100, seed) for seed in range(3)]
    consumer = np.from_dlpack(before[1])
    with pytest.raises(BufferError):
        tack_memory.uninstall(unplugged)
    assert unplugged.memory_info().in_use == sum(array.nbytes for array in before)
    assert (consumer == 1).all()


def test_arrays_older_than_install_are_adopted(unplugged: ModuleType) -> None:
    old = [unplugged.full(MIB, seed, np.uint8) for seed in range(4)]
    empty = unplugged.empty(0)
    tack_memory.install(unplugged)
    assert unplugged.memory_info().in_use == 4 * MIB
    with unplugged.memory_budget(MIB):
        assert unplugged.memory_info().spilled == 3 * MIB
        assert all((array.numpy() == seed).all() for seed, array in enumerate(old))
    del old[1:]
    gc.collect()
    info = unplugged.memory_info()
    assert info.in_use + info.spilled == MIB
    assert empty.numpy().size == 0


def test_what_was_exported_before_install_stays_where_it_is(unplugged: ModuleType) -> None:
    exported, free = (unplugged.full(MIB, seed, np.uint8) for seed in (1, 2))
    consumer = np.from_dlpack(exported)
    pointer = consumer.ctypes.data
    tack_memory.install(unplugged)
    with unplugged.memory_budget(1):
        assert unplugged.memory_info().spilled == free.nbytes
        assert exported._buffer.device_ptr == pointer
        assert (consumer == 1).all()
        assert unplugged.memory_report().holds == {"unmovable: exported before install": MIB}


def test_a_pointer_wrapped_before_install_follows_its_memory(unplugged: ModuleType) -> None:
    base = unplugged.asarray(np.arange(1000.0))
    wrapped = unplugged.wrap_ptr(base._buffer.device_ptr + 80, 10, np.float64, owner=base)
    tack_memory.install(unplugged)
    tack_memory.spill(base)
    other = unplugged.zeros(1000)  # takes the place on the device
    assert (wrapped.numpy() == np.arange(10.0, 20.0)).all()
    assert other.numpy().sum() == 0
    tack_memory.uninstall(unplugged)
    assert wrapped._buffer.device_ptr == base._buffer.device_ptr + 80
    assert (wrapped.numpy() == np.arange(10.0, 20.0)).all()


def test_an_install_that_fails_half_way_changes_nothing(unplugged: ModuleType, flavour: Flavour, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [unplugged.full(1000, seed) for seed in range(3)]
    before = attributes(unplugged)
    adopt, calls = _fast.adopt, []

    def adopt_twice(*args: Any, **named: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise tack_memory.DeviceLostError("no driver call works any more")
        return adopt(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(_fast, "adopt", adopt_twice)
        with pytest.raises(tack_memory.DeviceLostError):
            tack_memory.install(unplugged)
    assert len(calls) == 3
    assert same(before, attributes(unplugged))
    assert tack_memory.memory_info(flavour.device()).in_use == 0
    assert [array[999] for array in old] == [0, 1, 2]
    tack_memory.install(unplugged)
    assert unplugged.memory_info().in_use == sum(array.nbytes for array in old)


def test_uninstall_finds_arrays_that_the_garbage_collector_does_not_see(unplugged: ModuleType) -> None:
    tack_memory.install(unplugged)
    arrays = [unplugged.full(1000, seed) for seed in range(3)]
    tack_memory.spill(*arrays)
    gc.freeze()
    try:
        tack_memory.uninstall(unplugged)
    finally:
        gc.unfreeze()
    assert [array[999] for array in arrays] == [0, 1, 2]


def test_giving_back_that_fails_half_way_changes_nothing(unplugged: ModuleType, flavour: Flavour) -> None:
    """An uninstall that is refused: what was given back is ours again as it was, its views follow it, and what must not move still does not."""
    exported = unplugged.asarray(np.arange(100, dtype=np.uint8))
    consumer = np.from_dlpack(exported)
    pointer = consumer.ctypes.data
    tack_memory.install(unplugged)
    first = unplugged.asarray(np.arange(1000.0))
    tack_memory.label("first", first)
    view = unplugged.wrap_ptr(first._buffer.device_ptr + 80, 10, np.float64, owner=first)
    last = unplugged.full(KIB, 7, np.uint8)
    kept = tack_memory.hold(last)
    kept.__enter__()
    with pytest.raises(BufferError):
        tack_memory.uninstall(unplugged)
    mine = ours(first._buffer)
    assert isinstance(mine, tack_memory.Buffer) and mine.label == "first" and "first" in str(tack_memory.memory_report(flavour.device()))
    with unplugged.memory_budget(1):
        assert (mine.is_spilled, ours(exported._buffer).is_spilled) == (True, False)
        assert exported._buffer._device_ptr == pointer and (consumer == np.arange(100)).all()
        unplugged.zeros(1000)  # would take the place on the device
        assert (view.numpy() == np.arange(10.0, 20.0)).all() and ours(view._buffer).base is mine
    kept.__exit__(None, None, None)
    tack_memory.uninstall(unplugged)
    assert (first.numpy() == np.arange(1000.0)).all() and (view.numpy() == np.arange(10.0, 20.0)).all()


@pytest.mark.parametrize("call", ["install", "uninstall"])
def test_what_is_no_module_in_the_place_of_tack(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tack", object())
    with pytest.raises(TypeError, match="a host is a module, not object"):
        getattr(tack_memory, call)()
