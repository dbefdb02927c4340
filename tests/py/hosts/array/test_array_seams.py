"""What a host of the array generation has beside arrays (memory for MPI, scalars, textures, views, caches): what stays in its place does so for as long as it
must, and no longer."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arrayworlds import array_script, numbers
from flavours import Flavour
from support import MIB, SoftDriver, run_python, settle

import tack_memory
from tack_memory.hosts._pointer_buffers import ours

# ---- MPI


def test_memory_for_mpi_is_counted_never_moved_and_freed_by_the_host(host: ModuleType, flavour: Flavour, soft: SoftDriver) -> None:
    from arrayhost.lang.mpi import allocate_mpi_array

    live = soft.live()
    a = allocate_mpi_array((1000,))
    address = a._buffer.device_ptr
    host.copyto(a, np.arange(1000.0))
    assert (host.memory_info().in_use, host.memory_report().holds) == (a.nbytes, {"unmovable: mpi": a.nbytes})
    with host.memory_budget(1):
        assert (tack_memory.spill(a), a._buffer.device_ptr) == (0, address)
        assert host.reduce_sum(a) == 499500 and a[7] == 7
    del a
    assert host.memory_info().in_use == 0
    host.current_backend().empty_cache()
    settle()
    assert soft.live() == live


def test_memory_for_mpi_on_another_device(host: ModuleType, flavour: Flavour) -> None:
    from arrayhost.lang.mpi import allocate_mpi_array

    a = allocate_mpi_array((1000,), device=flavour.own(1))
    assert [host.memory_info(flavour.own(n)).in_use for n in (0, 1)] == [0, a.nbytes]


def test_memory_for_mpi_and_images_get_room_on_a_full_device(host: ModuleType, soft: SoftDriver) -> None:
    from arrayhost.lang.mpi import allocate_mpi_array

    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    arrays = [host.full(2 * MIB, n, np.uint8) for n in range(3)]
    a = allocate_mpi_array((3 * MIB,), np.uint8)
    image = host.current_backend().create_texture_image((2, MIB, 1), np.dtype(np.uint8))
    assert host.memory_report().holds == {"unmovable: mpi": 3 * MIB, "unmovable: texture image": 2 * MIB}
    assert host.memory_info().spilled >= 2 * MIB
    assert [int(one[9]) for one in (*arrays, a)] == [0, 1, 2, 0]
    with pytest.raises(host.DeviceMemoryError, match="mpi") as caught:
        allocate_mpi_array((4 * MIB,), np.uint8)
    assert isinstance(caught.value, tack_memory.DeviceMemoryError)
    del image


# ---- scalars


def test_scalar_packs_stay_and_say_why(host: ModuleType) -> None:
    @host.kernel(writes="out")
    def scaled(a: Any, factor: float, out: Any, more: int) -> None:
        out[:] = a * factor + more

    a, out = numbers(host), host.zeros(1000)
    scaled(a, 2.0, out, 1)
    assert host.memory_report().holds == {"unmovable: scalar pack": 16}
    with host.memory_budget(2 * a.nbytes + 16):
        numbers(host)
        for factor in (3.0, 4.0):
            scaled(a, factor, out, 5)
            assert out[10] == 10 * factor + 5


def test_scalar_packs_older_than_install_stay_too(array_unplugged: ModuleType) -> None:
    host = array_unplugged

    @host.kernel(writes="a")
    def shift(a: Any, by: float) -> None:
        a += by

    a = numbers(host)
    shift(a, 1.0)
    tack_memory.install(host)
    assert host.memory_report().holds == {"unmovable: scalar pack": 8}
    with host.memory_budget(1):
        host.zeros(10)
    shift(a, 2.0)
    assert a[5] == 8


# ---- textures


def test_an_image_of_an_array_keeps_it_in_its_place(host: ModuleType) -> None:
    @host.kernel(writes="out")
    def total(image: Any, out: Any) -> None:
        out[:] = image.sum()

    a, out = numbers(host).reshape(10, 10, 10), host.zeros(1)
    tack_memory.spill(a)
    total(host.Texture3D(a), out)
    assert out[0] == 499500
    assert host.memory_report().holds == {"export: texture image": a.nbytes, "unmovable: texture image": a.nbytes}
    assert tack_memory.spill(host.Texture3D(a)) == 0
    images = host.current_backend()._tex_cache
    assert len(images) == 1
    del a
    gc.collect()
    assert not images, "the image of memory that is gone was served to whoever comes to its address"
    assert host.memory_info().in_use == out.nbytes


def test_spilling_takes_textures(host: ModuleType) -> None:
    a = numbers(host).reshape(10, 10, 10)
    assert tack_memory.spill(host.Texture3D(a)) == a.nbytes


ADDRESSES_USED_AGAIN = """
    @ah.kernel(writes="out")
    def total(image, out):
        out[:] = image.sum()

    out, addresses = ah.zeros(1), []
    gc.disable()

{work}

    for n in range(20):
        one_with_an_image(n)
        tack_memory.synchronize(device)
        tack_memory.empty_cache(device)
    assert len(set(addresses)) < 20, "no address was used again: this shows nothing"
    print("right")
"""
"""Each `one_with_an_image(n)` makes an array of 1000 times n, and an image of it, and drops them; it notes the array's address."""


@pytest.mark.parametrize(
    "work",
    [
        """
    def one_with_an_image(n):
        a = ah.full((10, 10, 10), n)
        addresses.append(a._buffer.device_ptr)
        total(ah.Texture3D(a), out)
        assert out[0] == 1000 * n
        """,
        # An object of a reference cycle launches in its destructor, after the array's buffer has had its own.
        """
    class Node:
        def __init__(self, n):
            self.array, self.cycle = ah.full((10, 10, 10), n), self
        def __del__(self):
            addresses.append(self.array._buffer.device_ptr)
            total(ah.Texture3D(self.array), out)

    def one_with_an_image(n):
        node = Node(n)
        total(ah.Texture3D(node.array), out)
        assert out[0] == 1000 * n
        del node
        gc.collect()
        assert not backend._tex_cache and out[0] == 1000 * n
        """,
    ],
    ids=["plain", "made while garbage is collected"],
)
def test_no_image_of_other_memory_is_served_at_an_address_that_is_used_again(flavour: Flavour, work: str) -> None:
    done = run_python(array_script(flavour, ADDRESSES_USED_AGAIN.format(work=work)), TMSOFT_QUARANTINE="0")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_images_older_than_install_are_forgotten_or_counted(array_unplugged: ModuleType) -> None:
    host = array_unplugged

    @host.kernel(writes="out")
    def total(image: Any, out: Any) -> None:
        out[:] = image.sum()

    a, out = numbers(host).reshape(10, 10, 10), host.zeros(1)
    total(host.Texture3D(a), out)
    kept = host.current_backend().create_texture_image((5, 5, 4), np.dtype(np.float64))
    tack_memory.install(host)
    assert not host.current_backend()._tex_cache
    assert host.memory_report().holds == {"unmovable: texture image": kept.nbytes}
    assert tack_memory.spill(a) == a.nbytes
    total(host.Texture3D(a), out)
    assert out[0] == 499500


# ---- what a launch holds


def test_objects_that_hold_one_another_bring_each_array_once(host: ModuleType) -> None:
    @host.device_class
    class Node:
        def __init__(self, values: Any, other: Any = None) -> None:
            self.values, self.other = values, other

    from tack_memory.hosts._array_launches import held_by
    from tack_memory.hosts._attributes import attributes_of

    a, b = numbers(host), numbers(host)
    first = Node(a)
    first.other = Node(b, first)
    assert held_by(first, attributes_of(first) or (), host.array, ()) == [a, b]


def test_arrays_in_slots_are_attributes_too() -> None:
    from tack_memory.hosts._attributes import attributes_of

    class Pair:
        __slots__ = ("a", "b", "never_set")

        def __init__(self) -> None:
            self.a, self.b = 1, 2

    class More(Pair):
        def __init__(self) -> None:
            super().__init__()
            self.c = 3

    assert list(attributes_of(Pair()) or ()) == [1, 2]
    assert list(attributes_of(More()) or ()) == [1, 2, 3]
    assert attributes_of(1.5) is None


def test_a_device_class_on_a_device_with_room_for_one_launch(host: ModuleType, soft: SoftDriver) -> None:
    @host.device_class
    class Mesh:
        def __init__(self, points: Any, weights: Any) -> None:
            self.points, self.weights = points, weights

    @host.kernel(writes="out")
    def weighted(mesh: Any, out: Any, factor: float) -> None:
        out[:] = mesh.points * mesh.weights * factor

    soft.set("taken", soft.get("capacity.0") - 9 * MIB)
    size = MIB // 4  # 2 MiB of numbers
    meshes = [Mesh(host.full(size, n), host.full(size, 10)) for n in range(5)]
    out = host.zeros(size)
    for _ in range(2):
        for n, mesh in enumerate(meshes):
            weighted(mesh, out, 2.0)
            assert out[size - 1] == 20 * n
    assert host.memory_info().spill_count and host.memory_info().restore_count


# ---- views


def test_a_views_pointer_comes_from_its_base_at_launch(host: ModuleType) -> None:
    @host.kernel(writes="out")
    def double(a: Any, out: Any) -> None:
        out[:] = 2 * a

    a = numbers(host)
    part, rows = a[10:20], a.reshape(10, 100)[2:4]
    out = host.zeros(1000)
    tack_memory.spill(a, out)
    other = numbers(host)  # takes the place on the device
    double(part, out[500:510])
    assert (out.numpy()[495:515] == [0] * 5 + [2 * n for n in range(10, 20)] + [0] * 5).all()
    assert host.memory_info().in_use == 3 * a.nbytes, "a view is counted with its base, and no more"
    with pytest.raises(ValueError, match="shares memory"):
        double(a[0:10], a[5:15])
    assert (rows.numpy() == np.arange(200, 400).reshape(2, 100)).all() and other[0] == 0


def test_the_host_reads_and_writes_views_of_what_is_spilled(host: ModuleType) -> None:
    a = numbers(host)
    part = a[100:200][50:60]
    tack_memory.spill(a)
    restores = host.memory_info().restore_count

    def stays() -> bool:
        info = host.memory_info()
        return (info.in_use, info.spilled, info.restore_count) == (0, a.nbytes, restores)

    assert (part.numpy() == np.arange(150, 160)).all() and stays()
    assert part[3] == 153 and stays()
    host.copyto(part, -1)
    assert stays()
    assert (a.numpy()[148:162] == [148, 149, *[-1] * 10, 160, 161]).all() and stays()
    with pytest.raises(IndexError, match="of 8000"):
        part._buffer.write_range(995, np.zeros(6))
    with pytest.raises(IndexError):
        part.read_range(5, 6)
    after = host.memory_info()
    assert (after.in_use, after.spilled) == (0, a.nbytes) or after.restore_count == restores + 1  # the refused write is the host's own
    host.copyto(a[0:10], part)
    assert (a.numpy()[:10] == -1).all()


def test_a_buffer_over_a_part_of_another_follows_it(host: ModuleType) -> None:
    a = numbers(host)
    part = a._buffer.part(80, a.dtype, (10,))
    mine = ours(part)
    assert isinstance(mine, tack_memory.BufferView) and mine.base is ours(a._buffer)
    tack_memory.spill(a)
    numbers(host)
    assert (part.to_numpy() == np.arange(10, 20)).all()
    assert part.device_ptr == a._buffer.device_ptr + 80


# ---- caches, and devices without spilling


def test_what_the_hosts_cache_keeps_is_shown(array_unplugged: ModuleType, flavour: Flavour) -> None:
    host = array_unplugged
    backend = host.current_backend()
    if flavour.vendor != "hip":
        assert not hasattr(backend, "cached_bytes")  # these backends keep nothing
        return
    host.zeros(1024)
    assert backend.cached_bytes == 8192
    tack_memory.install(host)
    before = host.memory_info().cached
    assert before >= 8192
    a = host.zeros(1024)  # out of the cache
    assert backend.cached_bytes == 0 and a[0] == 0
    assert tack_memory.memory_info(flavour.device()).cached == before - 8192
    backend.recycle(backend.allocate(4096), 4096)
    assert host.memory_info().cached == before - 4096
    tack_memory.uninstall(host)
    assert tack_memory.memory_info(flavour.device()).cached == before - 8192


def test_a_full_device_empties_the_hosts_cache_before_it_spills(array_unplugged: ModuleType, flavour: Flavour, soft: SoftDriver) -> None:
    host = array_unplugged
    backend = host.current_backend()
    if flavour.vendor != "hip":
        assert not hasattr(backend, "cached_bytes")  # these backends keep nothing
        return
    tack_memory.install(host)
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    a = host.full(2 * MIB, 1, np.uint8)
    backend.recycle(backend.allocate(5 * MIB), 5 * MIB)
    assert host.memory_info().cached >= 5 * MIB
    before = host.memory_info().spill_count
    kept = tack_memory.allocate(4 * MIB, flavour.device())
    assert (backend.cached_bytes, host.memory_info().spill_count) == (0, before)
    assert tack_memory.memory_info(flavour.device()).cached < 5 * MIB
    assert a[5] == 1 and kept.nbytes


def test_metal_is_counted_and_its_pool_is_told() -> None:
    """Its memory is the host's, too. The device "metal:0" is on a Mac only, so that its arrays are counted on the CPU here, which takes no figure of a pool."""
    script = """
        from tack_memory.hosts import _array_seams, _host_caches
        _array_seams.ONLY_COUNTED[:] = [one._replace(device="cpu") for one in _array_seams.ONLY_COUNTED]
        told = []
        _host_caches.call = lambda *arguments: told.append(arguments)
        tack_memory.uninstall(ah)
        ah.init("metal:0", host_readable=True)

        @ah.kernel(writes="out")
        def scaled(a, factor, out):
            out[:] = a * factor

        old = ah.full(100, 1.0)
        tack_memory.install(ah)
        index = tack_memory._devices.resolve("cpu")
        assert (ah.memory_info().device, ah.memory_info().in_use) == ("cpu", 800)
        new = ah.zeros(1000)
        out = ah.zeros(100)
        scaled(old, 3.0, out)
        assert (out.numpy() == 3).all() and tack_memory.spill(old, new) == 0
        assert ah.memory_info().in_use == 800 + 8000 + 800 + 8  # the last is for the scalar
        del new
        assert ah.memory_info().in_use == 800 + 800 + 8
        assert told == [("SetHostCache", index, 8000)], told
        again = ah.zeros(1000)
        assert told[1:] == [("SetHostCache", index, 0)] and ah.memory_info().in_use == 9608
        with ah.memory_budget(10_000, strict=True):
            try:
                ah.zeros(1000)
            except ah.DeviceMemoryError as error:
                assert isinstance(error, tack_memory.DeviceMemoryError)
                print("refused")
        del again
        ah.memory_info()
        ah.current_backend()._cache.clear()
        tack_memory.uninstall(ah)
        assert told[-1] == ("SetHostCache", index, 0)
        assert tack_memory.memory_info("cpu").in_use == 0 and (old.numpy() == 1).all()
        assert "_tack_memory" not in vars(old._buffer)
        print("right")
    """
    from flavours import FLAVOURS

    done = run_python(array_script(FLAVOURS[0], script))
    assert (done.returncode, done.stdout) == (0, "refused\nright\n"), done.stderr


def test_memory_that_the_host_freed_without_a_word_is_counted_as_its_next_owners(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, described = host.current_backend(), ((1000,), np.dtype(np.float64))
    old = backend.create_texture_image(*described)
    address, old._device_ptr = old._device_ptr, 0  # by means of the host's own
    monkeypatch.setattr(backend, "allocate", lambda nbytes: address)  # the place is the next image's
    new = backend.create_texture_image(*described)
    assert host.memory_report().holds == {"unmovable: texture image": new.nbytes}
    assert "_tack_memory" in vars(new) and "_tack_memory" not in vars(old)
    other = backend.create_texture_image(*described)  # in the place of one that is used: the host must know what it does
    assert "_tack_memory" not in vars(other) and host.memory_report().holds == {"unmovable: texture image": new.nbytes}
    other._device_ptr = 0


def test_a_pointer_that_is_put_back_changes_nothing(host: ModuleType) -> None:
    """Code of the host that saves and restores attributes."""
    a = numbers(host)
    a._buffer._device_ptr = a._buffer._device_ptr
    assert host.memory_info().in_use == a.nbytes and tack_memory.spill(a) == a.nbytes
    assert (a.numpy() == numbers(host).numpy()).all()


def test_each_device_has_books_of_its_own(host: ModuleType, flavour: Flavour) -> None:
    @host.kernel(writes="out")
    def total(image: Any, out: Any, factor: float) -> None:
        out[:] = image.sum() * factor

    with host.device(flavour.own(1)):
        a, out = numbers(host).reshape(10, 10, 10), host.zeros(1)
        total(host.Texture3D(a), out, 2.0)
        assert out[0] == 999000 and host.memory_info().device == flavour.device(1)
    assert host.memory_info().in_use == 0
    assert host.memory_report(flavour.own(1)).holds == {
        "export: texture image": a.nbytes, "unmovable: texture image": a.nbytes, "unmovable: scalar pack": 8,
    }  # fmt: skip
    assert host.memory_info(host.device(flavour.own(1))).in_use == 2 * a.nbytes + out.nbytes + 8
