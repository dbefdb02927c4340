"""Each kind of hold is needed on a host of the array generation: with it the work is right, and without it the same work crashes, or is wrong.

Each victim runs in a process of its own, in quarantine: memory that was spilled is unmapped, and its addresses are never used again.
"""

from __future__ import annotations

import re

import pytest
from arrayworlds import COPIES, array_script
from flavours import Flavour
from support import crashed, run_python

from tack_memory.hosts import _ablation

_KERNELS = """
    @ah.kernel(writes="out")
    def axpy(x, y, out, a):
        out[:] = a * x + y
    arrays = [ah.full(100_000, n) for n in (1, 2, 3)]
"""

_TIGHT = """
    ah.set_memory_budget(800_000)
    tack_memory.spill(*arrays)
"""

VICTIMS = {
    "launch": _KERNELS + _TIGHT + "    axpy(*arrays, 2.0); assert (arrays[2].numpy() == 4).all()\n",
    "template": """
    @ah.device_class
    class Two:
        def __init__(self, a, b):
            self.a, self.inner = a, b
    @ah.kernel(writes="out")
    def add(out, two):
        out[:] = two.a + two.inner.a
    arrays = [ah.full(100_000, n) for n in (1, 2, 3)]
    """ + _TIGHT + """
    add(arrays[2], Two(arrays[0], Two(arrays[1], None))); assert (arrays[2].numpy() == 3).all()
    """,
    "texture": """
    @ah.kernel(writes="out")
    def sample(image, out, other):
        out[:] = image.sum() + other.sum()
    image, other, out = ah.full((10, 10, 1000), 2), ah.full(100_000, 1), ah.zeros(10)
    image_of = backend.image_of
    def bound_by_address(texture):
        address = texture.source._buffer.device_ptr
        tack_memory._fast.spill_all(device)  # as another thread would that needs room
        tack_memory.synchronize(device)
        assert (memory_at(address, "f8", 100_000) == 2).all()
        return image_of(texture)
    backend.image_of = bound_by_address
    tack_memory.uninstall(ah)
    _ablation.leave_out("image")  # an array with an image stays where it is, and needs no launch for it
    tack_memory.install(ah)
    tack_memory.spill(image, other, out)
    sample(ah.Texture3D(image), out, other)
    assert (out.numpy() == 300_000).all()
    """,
    "image": """
    @ah.kernel(writes="out")
    def sample(image, out):
        out[:] = image.sum()
    out = ah.zeros(1)
    tack_memory.hosts.plugged("arrayhost").adapter._buffers._purge = lambda address: None  # the end of the buffer is not what is tested
    ctypes.CDLL(sim_library(device)).tmsoft_set(b"quarantine", ctypes.c_longlong(0))  # addresses are used again at once
    first = ah.full((10, 10, 10), 3)
    sample(ah.Texture3D(first), out)
    tack_memory.spill(first)
    tack_memory.synchronize(device); tack_memory.empty_cache(device)
    for other in [ah.full((10, 10, 10), 5) for _ in range(4)]:
        sample(ah.Texture3D(other), out)
        assert out.numpy()[0] == 5000, "an image of other memory"
    """,
    "upload": """
    array = ah.full((10, 10, 10), 3)
    image = backend.create_texture_image(array.shape, array.dtype)
    tack_memory.spill(array)
    backend.driver = Late({copies!r})
    image.upload(array)
    backend.synchronize()
    assert (memory_at(image._device_ptr, "f8", 1000) == 3).all()
    """,
    "reduce": """
    arrays = [ah.full(100_000, 3), ah.full(100_000, 4)]
    """ + _TIGHT + """
    for _ in range(3):
        assert ah.reduce_sum(arrays[0]) == 300_000 and ah.reduce_sum(arrays[1]) == 400_000
    """,
    "copy": """
    arrays = [ah.full(100_000, 3), ah.full(100_000, 4)]
    """ + _TIGHT + """
    ah.copyto(arrays[0][:50_000], arrays[1][50_000:])
    assert arrays[0].numpy().sum() == 350_000
    """,
    "dlpack": _KERNELS + """
    consumer = np.from_dlpack(arrays[0])
    tack_memory.spill(*arrays)
    tack_memory.synchronize(device)
    assert (consumer == 1).all()
    """,
    "share": _KERNELS + """
    address, exported = arrays[0]._buffer.share(), arrays[1]._buffer.export_memory()
    tack_memory.spill(*arrays)
    tack_memory.synchronize(device)
    assert (memory_at(address, "f8", 1000) == 1).all()
    assert (memory_at(exported.pointer, "f8", 1000) == 2).all()
    """,
    "mpi": """
    from arrayhost.lang.mpi import allocate_mpi_array
    array = allocate_mpi_array((1000,))
    ah.copyto(array, np.full(1000, 5))
    address = array._buffer.device_ptr  # MPI keeps it
    tack_memory.spill(array)
    tack_memory.synchronize(device)
    assert (memory_at(address, "f8", 1000) == 5).all()
    """,
    "pack": _KERNELS + """
    axpy(*arrays, 2.0)
    ah.set_memory_budget(1)
    ah.zeros(10)
    tack_memory.synchronize(device)
    ah.set_memory_budget(None)
    axpy(*arrays, 3.0)
    assert (arrays[2].numpy() == 5).all()
    """,
    "wrap": """
    array = ah.full(1000, 1)
    part, wrapped = array._buffer.part(80, array.dtype, (10,)), ah.wrap_ptr(array._buffer.device_ptr + 800, 10, "f8", owner=array)
    tack_memory.spill(array)
    tack_memory.synchronize(device)
    part.from_numpy(np.full(10, 5.0))
    ah.copyto(wrapped, 6)
    assert array.numpy()[9:21].tolist() == [1, *[5] * 10, 1] and array.numpy()[99:111].tolist() == [1, *[6] * 10, 1]
    """,
}  # fmt: skip


@pytest.mark.parametrize("kind", VICTIMS)
def test_hold_ablation(flavour: Flavour, kind: str) -> None:
    work = VICTIMS[kind].replace("{copies!r}", repr(COPIES[flavour.vendor])) + '\n    print("right")\n'
    done = run_python(array_script(flavour, work), TMSOFT_QUARANTINE="1")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    for _ in range(5):  # Level Zero frees later, on a busy machine so late that the old address still has the contents when it is read
        done = run_python(array_script(flavour, work, left_out=kind), TMSOFT_QUARANTINE="1")
        if done.returncode != 0:
            break
    assert done.returncode != 0 and done.stdout == "", f"nothing went wrong without the {kind} hold: this shows nothing"
    # Wrong numbers, or memory that is gone: no other mistake.
    assert crashed(done.returncode, done.stderr) or re.search(r"AssertionError|DriverError: \w+ failed with", done.stderr), done.stderr


def test_hold_ablation_knows_every_kind() -> None:
    elsewhere = {
        "dispatch",
        "export",
        "building",
    }  # this host has nothing below a launch, copies nothing for an export, and clears through its buffers' methods
    assert VICTIMS.keys() | elsewhere == _ablation.KINDS.keys()
