"""A long random sequence of operations against a plain model in memory, on one to four threads; replayable by its seed.

Each thread owns its buffers, so their contents are exact at every moment; the device is everybody's, and so are budgets, spills and some
buffers that all threads read, launch on, spill and restore but never write. To replay a failure: TACK_MEMORY_TEST_SEED=<seed>.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from support import KIB, MIB, REAL, filled, pattern, peek, poke, settle

import tack_memory
from tack_memory import DeviceMemoryError, _devices, allocate, launch, memory_info, memory_peak
from tack_memory._control import call
from tack_memory._native import _fast

DEVICE = "sim:1"  # 64 MiB: small enough to be full at times; a real one is full only in its budget
OPERATIONS = 25_000  # of each run, over all its threads: 10^5 in four runs
SEED = int(os.environ.get("TACK_MEMORY_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


class Modelled:
    """A buffer, and the bytes that it must have."""

    def __init__(self, buffer: tack_memory.Buffer, data: bytearray) -> None:
        self.buffer, self.data = buffer, data
        self.views: list[tuple[tack_memory.BufferView, int, int]] = []
        self.holds: list[Any] = []
        self.exports: list[Any] = []  # Exported objects and NumPy arrays over them

    @property
    def is_kept(self) -> bool:
        return bool(self.holds or self.exports)


class Model:
    """One thread's part of the run."""

    def __init__(self, seed: int, shared: list[Modelled], alone: bool) -> None:
        self.random = random.Random(seed)
        self.shared, self.alone = shared, alone
        self.mine: list[Modelled] = []
        self.scopes: list[tuple[Any, int]] = []  # open peak scopes, and the highest in_use since (exact with one thread)
        self.refused = 0
        self.log: list[str] = []
        self.operations: list[tuple[int, Callable[[], None]]] = [
            (14, self.allocate), (7, self.drop), (4, self.free), (8, self.write), (14, self.read), (4, self.fill), (5, self.copy), (7, self.spill),
            (5, self.restore), (4, self.view), (3, self.hold), (3, self.let_go), (2, self.export), (2, self.end_export), (9, self.run_kernel),
            (4, self.use_shared), (1, self.budget), (2, self.open_scope), (2, self.close_scope), (1, self.pointer), (1, self.trim),
        ]  # fmt: skip

    def run(self, count: int) -> None:
        weights = [weight for weight, _ in self.operations]
        choices = self.random.choices(self.operations, weights, k=count)
        for step, (_, operation) in enumerate(choices):
            self.log = [*self.log[-19:], f"{step} {operation.__name__}"]
            try:
                operation()
            except DeviceMemoryError as error:
                assert error.reason in ("budget", "device", "too_large"), error
                self.refused += 1
            if self.alone:
                self.check_alone()
        self.end()

    def end(self) -> None:
        while self.scopes:
            self.close_scope()
        for one in self.mine:
            one.exports.clear()
            while one.holds:
                one.holds.pop().__exit__(None, None, None)
            self.compare(one)
        self.mine.clear()

    def check_alone(self) -> None:
        in_use, _, spilled = _fast.counters(DEVICE)
        everything = [*self.mine, *self.shared]
        assert in_use == sum(one.buffer.nbytes for one in everything if not one.buffer.is_spilled)
        assert spilled == sum(one.buffer.nbytes for one in everything if one.buffer.is_spilled)

    # ---- choosing

    def some(self) -> Modelled | None:
        return self.random.choice(self.mine) if self.mine else None

    def some_range(self, one: Modelled) -> tuple[int, int]:
        offset = self.random.randrange(0, len(one.data) + 1)
        return offset, self.random.randrange(0, min(len(one.data) - offset, 4 * KIB) + 1)

    def some_bytes(self, nbytes: int) -> bytes:
        return self.random.randbytes(nbytes)

    def compare(self, one: Modelled) -> None:
        assert one.buffer.copy_to_host() == one.data, one.buffer

    # ---- operations

    def allocate(self) -> None:
        if len(self.mine) > 40:
            return self.drop()
        nbytes = self.random.choice([0, 1, 7, 300, 4 * KIB, 33 * KIB, 33 * KIB, 250 * KIB])
        if self.random.random() < 0.05:
            nbytes = self.random.choice([MIB, 6 * MIB])
        movable = self.random.random() < 0.95
        if self.random.random() < 0.5:
            buffer, data = allocate(nbytes, DEVICE, movable=movable), bytearray(nbytes)
        else:
            data = bytearray(self.some_bytes(min(nbytes, 256)) * (nbytes // max(1, min(nbytes, 256)) + 1))[:nbytes]
            buffer = allocate(nbytes, DEVICE, zero=False, movable=movable)
            buffer.copy_from_host(data)
        self.mine.append(Modelled(buffer, data))

    def drop(self) -> None:
        one = self.some()
        if one is not None and not one.holds:
            self.mine.remove(one)

    def free(self) -> None:
        one = self.some()
        if one is None:
            return
        if one.is_kept:
            with pytest.raises(BufferError):
                one.buffer.free()
            return self.compare(one)
        one.buffer.free()
        assert one.buffer.state == "freed"
        for view, _, _ in one.views:
            with pytest.raises(ValueError):
                view.copy_to_host()
        self.mine.remove(one)

    def write(self) -> None:
        one = self.some()
        if one is None:
            return
        offset, nbytes = self.some_range(one)
        data = self.some_bytes(nbytes)
        was_spilled = one.buffer.is_spilled
        one.buffer.copy_from_host(data, offset)
        one.data[offset : offset + nbytes] = data
        assert not (self.alone and one.buffer.is_spilled != was_spilled), "host access moves nothing"

    def read(self) -> None:
        one = self.some()
        if one is None:
            return
        if one.views and self.random.random() < 0.4:
            view, offset, nbytes = self.random.choice(one.views)
            assert view.copy_to_host() == one.data[offset : offset + nbytes]
            return
        offset, nbytes = self.some_range(one)
        assert one.buffer.copy_to_host(None, offset, nbytes) == one.data[offset : offset + nbytes]

    def fill(self) -> None:
        one = self.some()
        if one is None:
            return
        offset, nbytes = self.some_range(one)
        value = self.some_bytes(self.random.randrange(1, 17))
        one.buffer.fill(value if len(value) > 1 else value[0], offset, nbytes)
        one.data[offset : offset + nbytes] = (value * (nbytes // len(value) + 1))[:nbytes]

    def copy(self) -> None:
        target, source = self.some(), self.some()
        if target is None or source is None:
            return
        offset, nbytes = self.some_range(source)
        nbytes = min(nbytes, len(target.data))
        to = self.random.randrange(0, len(target.data) - nbytes + 1)
        target.buffer.copy_from(source.buffer, to, offset, nbytes)
        target.data[to : to + nbytes] = source.data[offset : offset + nbytes]

    def spill(self) -> None:
        one = self.some()
        if one is None:
            return
        freed = one.buffer.spill()
        assert freed in (0, one.buffer.nbytes)
        if one.is_kept:
            assert freed == 0 and not one.buffer.is_spilled

    def restore(self) -> None:
        one = self.some()
        if one is not None:
            one.buffer.restore()

    def pointer(self) -> None:
        one = self.some()
        if one is not None:
            assert isinstance(one.buffer.device_ptr, int)

    def view(self) -> None:
        one = self.some()
        if one is None:
            return
        offset, nbytes = self.some_range(one)
        one.views.append((one.buffer.view(offset, nbytes), offset, nbytes))
        del one.views[:-4]

    def hold(self) -> None:
        one = self.some()
        if one is None or sum(len(other.data) for other in self.mine if other.is_kept) > 4 * MIB:
            return
        hold = one.buffer.hold(self.random.choice(["texture", "MPI"]))
        pointer = hold.__enter__()
        one.holds.append(hold)
        assert one.buffer.device_ptr == pointer and not one.buffer.is_spilled

    def let_go(self) -> None:
        held = [one for one in self.mine if one.holds]
        if held:
            one = self.random.choice(held)
            one.holds.pop(self.random.randrange(len(one.holds))).__exit__(None, None, None)

    def export(self) -> None:
        one = self.some()
        if one is None or sum(len(other.data) for other in self.mine if other.is_kept) > 4 * MIB:
            return
        exported = one.buffer.export("dlpack")
        one.exports.append(exported if self.random.random() < 0.5 or not one.data or DEVICE in REAL else numpy.from_dlpack(exported))

    def end_export(self) -> None:
        exported = [one for one in self.mine if one.exports]
        if exported:
            one = self.random.choice(exported)
            one.exports.pop(self.random.randrange(len(one.exports)))

    def run_kernel(self) -> None:
        """One launch: reads some buffers and writes others, through the pointers."""
        chosen = [one for one in self.random.choices(self.mine, k=self.random.randrange(1, 6)) if one.data] if self.mine else []
        if not chosen or sum(len(one.data) for one in chosen) > 8 * MIB:
            return
        with launch(*(one.buffer for one in chosen)) as pointers:
            tack_memory.synchronize(DEVICE)  # kernels of a real device would be ordered by the stream
            for one, pointer in zip(chosen, pointers, strict=True):
                offset, nbytes = self.some_range(one)
                assert peek(pointer + offset, nbytes, DEVICE) == one.data[offset : offset + nbytes]
                data = self.some_bytes(min(nbytes, 64))
                poke(pointer + offset, data, DEVICE)
                one.data[offset : offset + len(data)] = data

    def use_shared(self) -> None:
        one = self.random.choice(self.shared)
        action = self.random.randrange(4)
        if action == 0:
            one.buffer.spill()
        elif action == 1:
            one.buffer.restore()
        elif action == 2:
            offset, nbytes = self.some_range(one)
            assert one.buffer.copy_to_host(None, offset, nbytes) == one.data[offset : offset + nbytes]
        else:
            with launch(*(other.buffer for other in self.shared)) as pointers:
                tack_memory.synchronize(DEVICE)
                for other, pointer in zip(self.shared, pointers, strict=True):
                    assert peek(pointer, 100, DEVICE) == other.data[:100]

    def budget(self) -> None:
        size = self.random.choice([None, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB])
        tack_memory.set_memory_budget(size, DEVICE, strict=self.random.random() < 0.3)

    def trim(self) -> None:
        tack_memory.empty_cache(DEVICE)
        tack_memory.empty_host_pool()

    def open_scope(self) -> None:
        if len(self.scopes) < 8:
            self.scopes.append((memory_peak(DEVICE).__enter__(), _fast.counters(DEVICE)[0]))

    def close_scope(self) -> None:
        if not self.scopes:
            return
        peak, start = self.scopes.pop(self.random.randrange(len(self.scopes)))
        peak.__exit__(None, None, None)
        assert peak.bytes >= max(peak.start, peak.end) and peak.footprint >= peak.bytes and peak.own <= peak.footprint
        assert not self.alone or peak.start == start


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_random_operations_agree_with_the_model(threads: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "DEVICE", device if device in REAL else device.replace(":0", ":1"))
    print(f"replay with TACK_MEMORY_TEST_SEED={SEED}")
    sizes = [64 * KIB, 512 * KIB, 2 * MIB]
    started = memory_info(DEVICE)
    call("SetMaxWait", _devices.resolve(DEVICE), 20)  # a launch that waits for exports, which this test keeps, waits in vain
    shared = [Modelled(filled(nbytes, DEVICE, seed), bytearray(pattern(nbytes, seed))) for seed, nbytes in enumerate(sizes)]
    models = [Model(SEED + 1000 * threads + place, shared, threads == 1) for place in range(threads)]
    failures: list[tuple[list[str], BaseException]] = []

    def work(model: Model) -> None:
        try:
            model.run(OPERATIONS // threads)
        except BaseException as error:
            failures.append((model.log, error))
            model.mine.clear()

    running = [threading.Thread(target=work, args=(model,)) for model in models]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(300)
        assert not thread.is_alive(), f"a thread is stuck; seed {SEED}"
    tack_memory.set_memory_budget(None, DEVICE)
    call("SetMaxWait", _devices.resolve(DEVICE), 0)
    if failures:
        log, error = failures[0]
        raise AssertionError(f"seed {SEED}, {threads} threads; last operations: {'; '.join(log)}") from error
    for one in shared:
        assert one.buffer.copy_to_host() == one.data
    settle()
    call("Check", _devices.resolve(DEVICE))
    info = memory_info(DEVICE)
    assert info.in_use + info.spilled == sum(sizes)
    assert info.spill_count > started.spill_count and info.restore_count > started.restore_count, "the run moved nothing: it tests too little"
