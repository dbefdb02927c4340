"""The buffers of Tack's own CUDA backend over the software CUDA driver: counted, spilled, given back. It has no kernels."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
import software_cuda
import tack

import tack_memory
from tack_memory.hosts import sim_library

KIB, MIB = 2**10, 2**20


@pytest.fixture
def cuda() -> Iterator[ModuleType]:
    """Tack on its CUDA backend, plugged in. Our side has the same library: conftest.py sets the switch."""
    software_cuda.install(sim_library())
    tack_memory.install(tack)
    tack.init("cuda")
    yield tack
    gc.collect()
    tack_memory.uninstall(tack)
    tack.init("cpu")


def test_fields_that_do_not_fit_together(cuda: ModuleType) -> None:
    before = cuda.memory_info()
    assert before.device == "cuda:0"
    with cuda.memory_budget(MIB):
        fields = [cuda.full(cuda.f32, (64 * KIB,), n) for n in range(16)]
        info = cuda.memory_info()
        assert (info.in_use, info.spilled) == (MIB, 3 * MIB)
        for n, field in enumerate(fields):
            assert (field.to_numpy() == n).all()
            field.from_numpy(np.full(64 * KIB, n + 100, np.float32))
        assert cuda.memory_info().restore_count == before.restore_count
        for n, field in enumerate(fields):
            assert int(field._buffer.device_ptr) == int(field._buffer._device_ptr) != 0  # which brings it back
            assert (field.to_numpy() == n + 100).all()
        assert cuda.memory_info().restore_count > before.restore_count
    del fields, field
    gc.collect()
    assert cuda.memory_info().footprint == 0


def test_a_capsule_holds(cuda: ModuleType) -> None:
    field = cuda.full(cuda.f32, (1000,), 1)
    tack_memory.spill(field)
    capsule = field.__dlpack__()
    assert tack_memory.spill(field) == 0
    del capsule
    assert tack_memory.spill(field) == 4000


def test_an_address_of_ours_becomes_a_view(cuda: ModuleType) -> None:
    field = cuda.full(cuda.f32, (1000,), 1)
    part = cuda.runtime.dispatch.get_backend().wrap_ptr(int(field._buffer.device_ptr) + 400, cuda.f32, (10,))
    tack_memory.spill(field)
    part.fill(5)
    assert field.to_numpy()[99:111].tolist() == [1, *[5] * 10, 1]


def test_what_is_on_the_device_is_tacks_again_after_uninstall() -> None:
    software_cuda.install(sim_library())
    tack_memory.install(tack)
    tack.init("cuda")
    fields = [tack.full(tack.f32, (1000,), n) for n in range(4)]
    tack_memory.spill(*fields)
    tack_memory.uninstall(tack)
    assert all((field.to_numpy() == n).all() for n, field in enumerate(fields))
    assert tack_memory.memory_info("cuda:0").footprint == 0
    tack.init("cpu")
