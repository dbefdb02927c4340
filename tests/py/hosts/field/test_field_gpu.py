"""The GPU backends of the field generation under budgets and on devices that are too small: the same results, and exact books."""

from __future__ import annotations

import ctypes
import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fieldkernels import over_arrays as kernels
from support import KIB, MIB, SoftDriver, settle
from worlds import VENDORS, Vendor

import tack_memory
from tack_memory.hosts import sim_library

CUDA_ONLY = pytest.mark.parametrize("vendor", VENDORS[:1], ids=lambda vendor: vendor.arch, indirect=True)
"""Of such hosts only the CUDA backend has memory that can be shared."""


def test_in_use_is_the_sum_of_the_fields(gpu: ModuleType, vendor: Vendor) -> None:
    fields = [gpu.field(dtype, (length, 3)) for dtype in (gpu.u8, gpu.f64) for length in (1, 7, 1000)]
    assert gpu.memory_info().device == vendor.device
    assert gpu.memory_info().in_use == sum(field._buffer.nbytes for field in fields)
    del fields[::2]
    assert gpu.memory_info().in_use == sum(field._buffer.nbytes for field in fields)


@pytest.mark.parametrize("blocks", [4, 9, 30])
def test_any_budget_gives_the_same_results(gpu: ModuleType, blocks: int) -> None:
    """Random launches, reductions, host reads and writes over 14 fields; NumPy arrays are the oracle."""
    random, size = np.random.default_rng(blocks), 2 * KIB
    axpy, shift = kernels(gpu)
    before = gpu.memory_info()
    with gpu.memory_budget(blocks * 8 * size):
        fields = [gpu.full(gpu.f64, size, n) for n in range(14)]
        oracle = [np.full(size, float(n)) for n in range(14)]
        for _ in range(150):
            a, b, out = random.permutation(14)[:3]
            match random.integers(6):
                case 0 | 1:
                    axpy(fields[a], fields[b], fields[out], 0.5)
                    oracle[out] = 0.5 * oracle[a] + oracle[b]
                case 2:
                    shift(fields[a], 3.0)
                    oracle[a] = oracle[a] + 3
                case 3:
                    oracle[a] = random.random(size)
                    fields[a].from_numpy(oracle[a])
                case 4:
                    fields[a], oracle[a] = gpu.full(gpu.f64, size, 7), np.full(size, 7.0)
                case 5:
                    assert fields[a].sum() == pytest.approx(oracle[a].sum(), rel=1e-12)
        info = gpu.memory_info()
        assert (info.spill_count > before.spill_count) == (blocks < 30)
        for field, expected in zip(fields, oracle, strict=True):
            assert (field.to_numpy() == expected).all()
        assert gpu.memory_info().restore_count == info.restore_count


def test_a_device_that_is_too_small_spills_when_the_driver_says_so(gpu: ModuleType, soft: SoftDriver) -> None:
    """A host of this shape has no error of its own for a full device: its binding raises a RuntimeError with the code."""
    axpy, _ = kernels(gpu)
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    before = gpu.memory_info()
    fields = [gpu.full(gpu.u8, MIB, n) for n in range(14)]
    for n in range(12):
        axpy(fields[n], fields[n + 1], fields[n + 2], 1)
    expected = [0, 1]
    for _ in range(12):
        expected.append((expected[-2] + expected[-1]) % 256)
    info = gpu.memory_info()
    assert info.budget is None
    assert info.spill_count > before.spill_count and info.restore_count > before.restore_count
    assert [int(field.to_numpy()[-1]) for field in fields] == expected


def test_a_reduction_finds_room_for_its_result(gpu: ModuleType, soft: SoftDriver, vendor: Vendor) -> None:
    fields = [gpu.full(gpu.u8, MIB, n) for n in range(4)]
    before = gpu.memory_info().spill_count
    soft.fail(vendor.allocates, 1, vendor.full)
    assert fields[3].sum() == 3 * MIB
    assert gpu.memory_info().spill_count > before


def test_what_can_never_fit_is_our_error_with_the_hosts_as_its_cause(gpu: ModuleType, soft: SoftDriver, vendor: Vendor) -> None:
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    kept = gpu.full(gpu.u8, MIB, 1)
    with tack_memory.hold(kept), pytest.raises(tack_memory.DeviceMemoryError) as caught:
        gpu.field(gpu.u8, 16 * MIB)
    assert isinstance(caught.value, RuntimeError)  # what the host's users catch
    assert (caught.value.device, caught.value.requested) == (vendor.device, 16 * MIB)
    assert (kept.to_numpy() == 1).all()


def test_an_error_that_says_nothing_of_memory_is_the_hosts(gpu: ModuleType, soft: SoftDriver, vendor: Vendor) -> None:
    before = gpu.memory_info()
    kept = gpu.full(gpu.u8, 1000, 1)
    live = soft.get("live")
    soft.fail(vendor.clears, 1, 0x78000004 if vendor.arch == "level_zero" else 1)
    with pytest.raises(RuntimeError) as caught:
        gpu.field(gpu.u8, 5000)
    assert not isinstance(caught.value, tack_memory.DeviceMemoryError)
    del caught
    gc.collect()
    settle()
    info = gpu.memory_info()
    assert (info.in_use, info.reserved, info.spill_count) == (kept._buffer.nbytes, 0, before.spill_count)
    assert soft.get("live") == live


def test_a_strict_budget_refuses(gpu: ModuleType) -> None:
    with gpu.memory_budget(100 * KIB, strict=True):
        held = gpu.field(gpu.u8, 60 * KIB)
        with tack_memory.hold(held), pytest.raises(tack_memory.DeviceMemoryError, match="budget"):
            gpu.field(gpu.u8, 60 * KIB)
        assert gpu.field(gpu.u8, 60 * KIB).to_numpy().sum() == 0  # now the first may go


def test_host_access_moves_nothing_to_the_device(gpu: ModuleType) -> None:
    field = gpu.full(gpu.f32, 1000, 1)
    tack_memory.spill(field)
    before = gpu.memory_info().restore_count
    assert field.to_numpy().sum() == 1000
    field.fill(2.5)
    field.from_numpy(np.arange(1000, dtype=np.float32) + field.to_numpy())
    assert field.to_numpy()[-1] == 1001.5
    assert field._buffer.nbytes == 4000
    assert gpu.memory_info().restore_count == before
    assert field.sum() == np.arange(2.5, 1002.5).sum()


def test_the_pointer_is_what_the_hosts_binding_expects(gpu: ModuleType, vendor: Vendor) -> None:
    field = gpu.full(gpu.f32, 100, 1)
    expected = ctypes.c_void_p if vendor.arch == "level_zero" else int
    assert type(field._buffer._device_ptr) is expected
    tack_memory.spill(field)
    assert type(field._buffer.device_ptr) is expected  # and it is back for that
    assert gpu.memory_info().spilled == 0


def test_scalars_that_the_host_packs_are_not_moved(gpu: ModuleType) -> None:
    axpy, _ = kernels(gpu)
    x, y, out = (gpu.full(gpu.f64, 100, n) for n in range(3))
    with gpu.memory_budget(1):
        axpy(x, y, out, 3.0)
        assert gpu.memory_report().holds == {"unmovable: scalar pack": 8}
        axpy(y, y, out, 5.0)
    assert (out.to_numpy() == 6).all()
    assert len(gpu.get_backend()._cache[axpy]) == 2  # x and y share memory in the second
    gc.collect()


def test_views_of_one_buffer_are_seen_to_overlap(gpu: ModuleType) -> None:
    """The host compares addresses before it binds: it must see one buffer at one place."""
    _, shift = kernels(gpu)
    axpy, _ = kernels(gpu)
    x = gpu.full(gpu.f64, 100, 1)
    y = gpu.full(gpu.f64, 100, 2)
    tack_memory.spill(x, y)
    with gpu.memory_budget(900):
        axpy(x, x.reshape(100), x.reshape(100), 1.0)
    ((disjoint, _),) = gpu.get_backend()._cache[axpy]
    assert not disjoint
    assert (x.to_numpy() == 2).all()


def test_objects_bring_their_fields_into_a_launch(gpu: ModuleType) -> None:
    @gpu.data_oriented
    class Two:
        def __init__(self) -> None:
            self.b, self.a = gpu.full(gpu.f64, 10, 2), gpu.full(gpu.f64, 10, 1)

    @gpu.kernel
    def add(out: Any, a: Any, b: Any) -> None:
        out[:] = 10 * a + b

    two, out = Two(), gpu.zeros(gpu.f64, 10)
    tack_memory.spill(two.a, two.b, out)
    with gpu.memory_budget(80):
        add(out, two)
    assert (out.to_numpy() == 12).all()


class TestTextures:
    @staticmethod
    def sample(host: ModuleType) -> Any:
        @host.kernel
        def sample(image: Any, out: Any) -> None:
            out[:] = image.sum()

        return sample

    def test_a_field_with_an_image_stays_where_it_is(self, gpu: ModuleType) -> None:
        sample = self.sample(gpu)
        field, out = gpu.full(gpu.f32, (4, 4, 4), 3), gpu.zeros(gpu.f64, 1)
        sample(gpu.texture3d(field), out)
        address = field._buffer.address
        with gpu.memory_budget(1):
            assert gpu.memory_report().holds == {"export: texture image": 256}
            sample(gpu.texture3d(field), out)
            assert field._buffer.address == address
        assert out.to_numpy().tolist() == [192]

    def test_it_stays_no_longer_than_it_lives(self, gpu: ModuleType) -> None:
        sample = self.sample(gpu)
        field, out = gpu.full(gpu.f32, (4, 4, 4), 3), gpu.zeros(gpu.f64, 1)
        sample(gpu.texture3d(field), out)
        (variant,) = gpu.get_backend()._cache[sample].values()
        assert len(variant.payload[0]._tex_cache) == 1
        del field
        assert len(variant.payload[0]._tex_cache) == 0
        assert gpu.memory_info().in_use == out._buffer.nbytes

    def test_an_address_that_is_used_again_serves_no_old_image(self, gpu: ModuleType, soft: SoftDriver) -> None:
        soft.set("quarantine", 0)  # addresses are used again at once
        sample, out = self.sample(gpu), gpu.zeros(gpu.f64, 1)
        seen = set()
        for n in range(8):
            field = gpu.full(gpu.f32, (4, 4, 4), n)
            sample(gpu.texture3d(field), out)
            assert out.to_numpy().tolist() == [64 * n]
            seen.add(field._buffer.address)
            del field
            settle()
        assert len(seen) < 8, "no address was used again, so this test proves nothing"

    def test_images_older_than_install_are_made_anew(self, gpu_bare: ModuleType, vendor: Vendor) -> None:
        sample = self.sample(gpu_bare)
        gpu_bare.init(vendor.arch, library=sim_library(vendor.kind))
        field, out = gpu_bare.full(gpu_bare.f32, (4, 4, 4), 3), gpu_bare.zeros(gpu_bare.f64, 1)
        sample(gpu_bare.texture3d(field), out)
        tack_memory.install(gpu_bare)
        try:
            field.fill(4)
            sample(gpu_bare.texture3d(field), out)
            assert out.to_numpy().tolist() == [256]
        finally:
            gpu_bare.get_backend()._cache.clear()
            tack_memory.uninstall(gpu_bare)


class TestExchange:
    def test_dlpack_holds_while_its_consumer_lives_and_no_longer(self, gpu: ModuleType) -> None:
        field = gpu.full(gpu.f64, 100, 1)
        tack_memory.spill(field)
        consumer = np.from_dlpack(field)
        assert gpu.memory_report().holds == {"export: dlpack": 800}
        assert tack_memory.spill(field) == 0
        part = consumer[10:20]
        del consumer
        assert tack_memory.spill(field) == 0
        assert part.tolist() == [1] * 10
        del part
        assert tack_memory.spill(field) == 800

    def test_a_capsule_that_nobody_consumes_ends_with_itself(self, gpu: ModuleType) -> None:
        field = gpu.full(gpu.f64, 100, 1)
        capsule = field.__dlpack__()
        assert tack_memory.spill(field) == 0
        del capsule
        assert tack_memory.spill(field) == 800

    def test_a_round_trip_is_one_buffer(self, gpu: ModuleType) -> None:
        _, shift = kernels(gpu)
        field = gpu.full(gpu.f64, 100, 1)
        other = gpu.from_dlpack(field)
        assert gpu.memory_info().in_use == 800
        shift(other, 2.0)
        assert (field.to_numpy() == 3).all()
        gpu.get_backend()._cache.clear()

    def test_a_pointer_of_ours_follows_its_memory(self, gpu: ModuleType) -> None:
        _, shift = kernels(gpu)
        field = gpu.full(gpu.f64, 100, 1)
        part = gpu.field_from_ptr(field._buffer.address + 80, gpu.f64, 10)
        assert gpu.memory_info().in_use == 800
        tack_memory.spill(field)
        shift(part, 4.0)
        gpu.get_backend()._cache.clear()
        assert field.to_numpy()[9:21].tolist() == [1, *[5] * 10, 1]
        tack_memory.spill(field)
        part.fill(6)
        assert gpu.memory_info().in_use == 0
        assert field.to_numpy()[9:21].tolist() == [1, *[6] * 10, 1]
        del field
        assert part.to_numpy().tolist() == [6] * 10

    def test_somebody_elses_memory_is_not_counted_and_not_freed(self, gpu: ModuleType, soft: SoftDriver) -> None:
        theirs = tack_memory.allocate(8000, gpu.memory_info().device, movable=False)
        address = theirs.device_ptr
        in_use = gpu.memory_info().in_use
        live = soft.get("live")
        field = gpu.field_from_ptr(address, gpu.f64, 1000)
        field.fill(5)
        assert gpu.memory_info().in_use == in_use
        assert field.sum() == 5000
        del field
        settle()
        assert soft.get("live") == live

    @CUDA_ONLY
    def test_memory_that_can_be_shared_is_counted_and_stays(self, gpu: ModuleType) -> None:
        field = gpu.field(gpu.f32, 1000, exportable=True)
        assert gpu.memory_info().in_use == 64 * KIB
        assert gpu.memory_report().holds == {"unmovable: exportable memory": 64 * KIB}
        handle = field.export_memory().handle
        with gpu.memory_budget(1):
            field.fill(3)
            assert field._buffer.address == handle
            assert field.to_numpy().sum() == 3000
        del field
        assert gpu.memory_info().in_use == 0

    @CUDA_ONLY
    def test_a_copy_for_another_api_is_made_of_what_is_resident(self, gpu: ModuleType) -> None:
        field = gpu.full(gpu.f32, 1000, 3)
        tack_memory.spill(field)
        with gpu.memory_budget(1):
            exported = field.export_memory()
        assert exported.size == 4000
        gpu.get_backend().wait()
        values = gpu.runtime.kernel_utils.values_at(exported.handle, np.dtype("f4"), (1000,))
        assert (values == 3).all()
        assert gpu.memory_info().in_use + gpu.memory_info().spilled == 64 * KIB + 4000


def test_a_backend_that_comes_late(gpu: ModuleType, vendor: Vendor) -> None:
    """It is imported when somebody first asks for it; then it is plugged in to, and both are counted."""
    other = next(one for one in VENDORS if one.arch != vendor.arch)
    tack_memory.memory_info(other.device)
    mine = gpu.full(gpu.f64, 100, 1)
    gpu.init(other.arch, library=sim_library(other.kind))
    theirs = gpu.full(gpu.f64, 50, 2)
    assert gpu.memory_info().device == other.device
    assert tack_memory.memory_info(vendor.device).in_use == 800
    assert tack_memory.memory_info(other.device).in_use == 400
    assert tack_memory.spill(mine, theirs) == 1200
    assert theirs.sum() == 100
    del mine
    assert tack_memory.memory_info(vendor.device).footprint == 0


def test_fill_spreads_what_it_is_given_as_without_us(gpu: ModuleType) -> None:
    field = gpu.full(gpu.f32, (2, 3), 1)
    for spilled in (False, True):
        for value, wanted in (
            ([3.0], [[3] * 3] * 2),
            (np.arange(3), [[0, 1, 2]] * 2),
            (np.arange(6.0).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
            (7, [[7] * 3] * 2),
        ):
            if spilled:
                tack_memory.spill(field)
            field.fill(value)
            assert field.to_numpy().tolist() == wanted
            assert not spilled or gpu.memory_info().spilled == 24, "the host's values are written to the host's copy"
        with pytest.raises(ValueError, match="broadcast"):
            field.fill(np.arange(4))


def test_a_field_that_is_exported_shares_its_memory_whatever_its_copies_do(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def contents_too(field: Any) -> Any:
        return gpu.field_like(field.to_numpy())

    monkeypatch.setattr(gpu.Field, "__copy__", contents_too, raising=False)
    field = gpu.full(gpu.f32, (4,), 1)
    consumer = np.from_dlpack(field)
    field.fill(5)
    assert field.to_numpy().tolist() == [5] * 4  # waits for the device
    assert consumer.tolist() == [5] * 4
