"""Each kind of hold is needed: with it the work is right, and without it the same work crashes, or is wrong.

Each victim runs in a process of its own, in quarantine: memory that was spilled is unmapped, and its addresses are never used again.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from support import crashed, run_python
from worlds import VENDORS, Vendor, cpu_script, gpu_script

from tack_memory.hosts import _ablation

CUDA, HIP, LEVEL_ZERO = VENDORS


class Victim(NamedTuple):
    """Work that one kind of hold keeps right."""

    kind: str
    vendor: Vendor | None  # None: the CPU backend on a simulated device
    script: str
    second: str = ""  # a kind that would make good for it: left out from both runs
    addresses: str = "fresh"


_KERNELS = """
    @fh.kernel
    def axpy(x, y, out, a):
        out[:] = a * x + y
    fields = [fh.full(fh.f64, 100_000, n) for n in (1, 2, 3)]
"""

_TIGHT = """
    tack_memory.set_memory_budget(800_000, device)
    tack_memory.spill(*fields)
"""

VICTIMS = [
    Victim("launch", CUDA, _KERNELS + _TIGHT + "    axpy(*fields, 2.0); assert (fields[2].to_numpy() == 4).all()\n"),
    Victim("launch", None, """
    @fh.kernel
    def look(x, y, out):
        out[:] = x + y
    fields = [fh.full(fh.f64, 1000, n) for n in (1, 2, 3)]
    look(*fields[:2], fields[0].reshape(1000))
    ((disjoint, _),) = fh.get_backend()._cache[look]
    assert not disjoint  # the host compared the addresses of one buffer
    """),
    Victim("dispatch", None, """
    @fh.kernel
    def add(x, y, out):
        out[:] = x + y
    fields = [fh.full(fh.f64, 1000, n) for n in (1, 2, 3)]
    add(*fields)
    (variant,) = fh.get_backend()._cache[add].values()
    tack_memory.spill(*fields)
    fh.get_backend()._dispatch(variant.payload, [fields[1], fields[1], fields[2]], 0)
    assert (fields[2].to_numpy() == 4).all()
    """),
    Victim("template", HIP, """
    @fh.data_oriented
    class Two:
        def __init__(self):
            self.a, self.b = fh.full(fh.f64, 100_000, 1), fh.full(fh.f64, 100_000, 2)
    @fh.kernel
    def add(out, a, b):
        out[:] = a + b
    two, out = Two(), fh.zeros(fh.f64, 100_000)
    fields = [two.a, two.b, out]
    """ + _TIGHT + "    add(out, two); assert (out.to_numpy() == 3).all()\n"),
    Victim("texture", None, """
    @fh.kernel
    def sample(one, other, out):
        out[:] = one.sum() + other.sum()
    images, out = [fh.full(fh.f32, (10, 10, 100), n) for n in (1, 2)], fh.zeros(fh.f64, 1000)
    tack_memory.spill(*images, out)
    sample(*(fh.texture3d(image) for image in images), out)
    assert (out.to_numpy() == 30_000).all()
    """, second="dispatch"),
    Victim("image", LEVEL_ZERO, """
    @fh.kernel
    def sample(image, out):
        out[:] = image.sum()
    out = fh.zeros(fh.f64, 1)
    held = tack_memory.hold(out); held.__enter__()
    tack_memory.hosts.plugged("fieldhost").adapter._buffers._purge = lambda address: None  # the end of the buffer is not what is tested
    import ctypes
    ctypes.CDLL(sim_library(device)).tmsoft_set(b"quarantine", ctypes.c_longlong(0))  # addresses are used again at once
    first = fh.full(fh.f32, (10, 10, 10), 3)
    sample(fh.texture3d(first), out)
    address = first._buffer.address
    tack_memory.spill(first)
    tack_memory.synchronize(device); tack_memory.empty_cache(device)
    others = [fh.full(fh.f32, (10, 10, 10), 5) for _ in range(4)]
    for other in others:
        sample(fh.texture3d(other), out)
        assert out.to_numpy()[0] == 5000, "an image of other memory"
    """),
    Victim("reduce", HIP, """
    fields = [fh.full(fh.f64, 100_000, 3), fh.full(fh.f64, 100_000, 4)]
    tack_memory.set_memory_budget(800_000, device)
    for _ in range(3):
        assert fields[0].sum() == 300_000 and fields[1].sum() == 400_000
    """),
    Victim("dlpack", LEVEL_ZERO, _KERNELS + """
    consumer = np.from_dlpack(fields[0])
    tack_memory.spill(*fields)
    tack_memory.synchronize(device)
    assert (consumer == 1).all()
    """),
    Victim("dlpack", None, """
    field = fh.full(fh.f64, 1000, 1)
    consumer = np.from_dlpack(field)
    tack_memory.spill(field)
    assert (consumer == 1).all()
    """),
    Victim("wrap", HIP, """
    field = fh.full(fh.f64, 1000, 1)
    part = fh.field_from_ptr(field._buffer.address + 80, fh.f64, 10)
    tack_memory.spill(field)
    part.fill(5)
    assert field.to_numpy()[9:21].tolist() == [1, *[5] * 10, 1]
    """),
    Victim("wrap", None, """
    field = fh.full(fh.f64, 1000, 1)
    with tack_memory.hold(field):
        part = fh.field_from_ptr(field._buffer._data.ctypes.data + 80, fh.f64, 10)
    tack_memory.spill(field)
    part.fill(5)
    assert field.to_numpy()[9:21].tolist() == [1, *[5] * 10, 1]
    """),
    Victim("pack", CUDA, _KERNELS + """
    axpy(*fields, 2.0)
    tack_memory.set_memory_budget(1, device)
    _, packs = next(iter(fh.get_backend()._cache[axpy].values())).payload
    where = packs[0]._buffer.address
    fh.zeros(fh.f64, 10)
    tack_memory.synchronize(device)
    assert fh.runtime.kernel_utils.values_at(where, np.dtype("f8"), (1,))[0] == 2.0
    """),
    Victim("export", CUDA, """
    field = fh.full(fh.f64, 100_000, 3)
    tack_memory.set_memory_budget(800_000, device)
    exported = field.export_memory()
    fh.get_backend().wait()
    assert (fh.runtime.kernel_utils.values_at(exported.handle, np.dtype("f8"), (100_000,)) == 3).all()
    """),
    Victim("building", CUDA, f"""
    module = fh.runtime.{CUDA.module}
    driver = fh.get_backend().driver
    class Late:
        library = driver.library
        get = staticmethod(driver.get)
        def __call__(self, name, *arguments):
            if name == {CUDA.clears!r}:
                tack_memory._fast.spill_all(device)  # as another thread would that needs room
                tack_memory.synchronize(device)
            return driver(name, *arguments)
    module.driver = fh.get_backend().driver = Late()
    fields = [fh.zeros(fh.f64, 1000) for _ in range(4)]
    assert all((field.to_numpy() == 0).all() for field in fields)
    """),
]  # fmt: skip


def run(victim: Victim, left_out: str) -> tuple[int, str, str]:
    script = victim.script + '\n    print("right")\n'
    if victim.vendor is None:
        done = run_python(cpu_script(script, left_out=left_out, addresses=victim.addresses), TMSOFT_QUARANTINE="1")
    else:
        done = run_python(gpu_script(victim.vendor, script, left_out=left_out), TMSOFT_QUARANTINE="1")
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("victim", VICTIMS, ids=lambda victim: f"{victim.kind}-{victim.vendor.arch if victim.vendor else 'cpu'}")
def test_hold_ablation(victim: Victim) -> None:
    code, told, errors = run(victim, left_out=victim.second)
    assert (code, told) == (0, "right\n"), errors
    code, told, errors = run(victim, left_out=f"{victim.kind} {victim.second}")
    assert code != 0 and told == "", f"nothing went wrong without the {victim.kind} hold: this shows nothing"
    assert "AssertionError" in errors or "error: 700" in errors or crashed(code, errors), errors  # wrong numbers, or memory that is gone: no other mistake


def test_hold_ablation_knows_every_kind() -> None:
    of_the_array_generation = {"copy", "upload", "share", "mpi"}  # tests/py/hosts/array
    assert {victim.kind for victim in VICTIMS} | of_the_array_generation == set(_ablation.KINDS)
