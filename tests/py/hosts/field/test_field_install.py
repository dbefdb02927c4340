"""Plugging in to a host of the field generation and out again: what it gets, when it is refused, and that nothing of it is left behind."""

from __future__ import annotations

import gc
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import plugging
import pytest
from plugging import ADDED, attributes, same, take_out
from support import SoftDriver, run_python, settle
from worlds import HOSTS, VENDORS, Vendor

import tack_memory
from tack_memory.hosts import HostHasMemoryError, MissingSeamError, sim_library


def import_all(host: ModuleType) -> None:
    """The submodules that plugging in looks into, which it imports where they are not there yet."""
    for name in ("lang.dlpack", "runtime.kernel_utils", "runtime.dispatch", "runtime.cpu"):
        importlib.import_module(f"{host.__name__}.{name}")


@pytest.fixture
def unplugged(cpu_host: ModuleType) -> Iterator[ModuleType]:
    """The host not plugged in; the test may plug it in."""
    cpu_host.init("cpu")
    import_all(cpu_host)
    yield cpu_host
    gc.collect()
    take_out(cpu_host)


@pytest.mark.parametrize("options", [{}, {"simulate": 0}, {"simulate": "64 KiB", "simulate_addresses": "reuse"}, {"simulate_capacity": "64 MiB"}])
def test_uninstall_leaves_every_attribute_as_it_was(unplugged: ModuleType, options: dict[str, Any]) -> None:
    before = attributes(unplugged)
    tack_memory.install(unplugged, **options)
    assert not same(before, attributes(unplugged))
    field = unplugged.full(unplugged.f64, (100,), 1)
    assert unplugged.memory_info().footprint >= 800
    tack_memory.uninstall(unplugged)
    assert same(before, attributes(unplugged))
    assert [name for name in vars(field._buffer) if "tack_memory" in name] == []
    assert type(vars(field._buffer)["_data"]) is np.ndarray


@pytest.mark.parametrize("name", ADDED)
def test_the_host_gets_the_names_it_lacks(counted: ModuleType, name: str) -> None:
    assert getattr(counted, name).__doc__ == getattr(tack_memory, name).__doc__


def test_an_attribute_of_the_host_is_never_replaced(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plugging.check_own_name_stays(unplugged, monkeypatch)


@pytest.mark.parametrize("name", ["memory_info", "set_memory_budget"])
def test_a_host_that_counts_by_itself_is_left_alone(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plugging.check_counting_by_itself_is_refused(unplugged, monkeypatch, name)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("lang.field", "NumpyBuffer"),
        ("lang.field", "Texture3D"),
        ("lang.field.NumpyBuffer", "fill"),
        ("lang.dlpack", "field_to_dlpack"),
        ("lang.dlpack", "_prevent_gc"),
        ("runtime.kernel_utils", "_create_pack_fields"),
        ("runtime.dispatch", "_current_backend"),
        ("runtime.cpu", "CPUBackend"),
        ("runtime.cpu.CPUBackend", "_dispatch"),
    ],
)
def test_a_missing_seam_is_named_and_nothing_is_touched(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch, place: str, name: str) -> None:
    also = (unplugged.lang.field.DeviceBuffer,) if name == "fill" else ()  # from which NumpyBuffer would have it
    plugging.check_missing_seam_is_named(unplugged, monkeypatch, place, name, *also)


def test_a_second_layer_is_refused(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unplugged.lang.field.NumpyBuffer, "_data", property(lambda self: None), raising=False)
    plugging.check_install_is_refused(unplugged, HostHasMemoryError, "_data is already a property", simulate=0)


def test_uninstall_is_refused_while_somebody_else_is_on_top(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    tack_memory.install(unplugged)
    backend = unplugged.runtime.cpu.CPUBackend
    ours = backend.allocate_field
    with monkeypatch.context() as patch:
        patch.setattr(backend, "allocate_field", lambda *args, **named: ours(*args, **named))
        with pytest.raises(RuntimeError, match=r"CPUBackend\.allocate_field"):
            tack_memory.uninstall(unplugged)
        assert hasattr(unplugged, "memory_info")


def test_a_module_that_took_our_function_over_gets_the_hosts_back(unplugged: ModuleType) -> None:
    """Imported while we were plugged in: "from ... import field_to_dlpack" made a reference that nobody noted."""
    original = unplugged.lang.dlpack.field_to_dlpack
    tack_memory.install(unplugged)
    late = ModuleType(f"{unplugged.__name__}.late")
    late.field_to_dlpack = unplugged.lang.dlpack.field_to_dlpack  # type: ignore[attr-defined]
    assert late.field_to_dlpack is not original
    sys.modules[late.__name__] = late
    try:
        tack_memory.uninstall(unplugged)
        assert late.field_to_dlpack is original
    finally:
        del sys.modules[late.__name__]


def test_the_error_for_an_unknown_host_tells_of_the_nearest_shape(unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingSeamError, match=r"as a host of the field generation it lacks no_host\.lang\.field:Field"):
        tack_memory.install(ModuleType("no_host"))
    monkeypatch.delattr(unplugged.lang.dlpack, "_prevent_gc")
    missing = rf"\(docs/hosts\.md\): as a host of the field generation it lacks {unplugged.__name__}\.lang\.dlpack:_prevent_gc$"
    with pytest.raises(MissingSeamError, match=missing):
        tack_memory.install(unplugged)


def test_plugging_in_again_with_fields_alive(unplugged: ModuleType) -> None:
    tack_memory.install(unplugged)
    field = unplugged.full(unplugged.f64, (100,), 1)
    tack_memory.uninstall(unplugged)
    tack_memory.install(unplugged, simulate=0)
    assert tack_memory.spill(field) == 800 or unplugged.memory_info().spilled >= 800
    tack_memory.uninstall(unplugged)
    tack_memory.install(unplugged)
    assert (field.to_numpy() == 1).all()


LATE = """
    import sys
    sys.path.insert(0, {hosts!r})
    import importlib, warnings
    import tack_memory, fieldhost as fh
    assert "fieldhost.runtime.cpu" not in sys.modules and "fieldhost.runtime.hip_backend" not in sys.modules
    tack_memory.install(fh)
    def before(): return {{(n, k) for n, m in list(sys.modules.items()) if n.startswith("fieldhost") for k in vars(m)}}
"""


def test_backends_that_are_imported_after_install() -> None:
    script = (
        LATE
        + """
    fh.init("cpu")
    field = fh.full(fh.f64, 100, 1)
    assert fh.memory_info().in_use == 800, fh.memory_info()
    tack_memory.memory_info("sim-hip:0")
    from tack_memory.hosts import sim_library
    fh.init("hip", library=sim_library("sim-hip"))
    other = fh.full(fh.f64, 50, 1)
    assert fh.memory_info().in_use == 400 and fh.memory_info().device == "sim-hip:0"
    assert hasattr(fh.runtime.hip_backend.HIPBackend.execute, "__wrapped__")
    tack_memory.uninstall(fh)
    assert not hasattr(fh.runtime.hip_backend.HIPBackend.execute, "__wrapped__")
    fh.init("level_zero", library=sim_library("sim-level_zero"))  # nobody waits for it any more
    assert not hasattr(fh.runtime.level_zero_backend.LevelZeroBackend.execute, "__wrapped__")
    assert other.sum() == 50
    print("right")
    """
    )
    done = run_python(script.format(hosts=str(HOSTS)))
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_a_late_backend_of_an_unknown_shape_is_left_alone_with_a_warning() -> None:
    script = (
        LATE
        + """
    fh.runtime.gpu = importlib.import_module("fieldhost.runtime.gpu")
    del fh.runtime.gpu.GPUBackend.reduce_field
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        module = importlib.import_module("fieldhost.runtime.hip_backend")
    assert ["HIPBackend.reduce_field" in str(one.message) for one in told] == [True], told
    assert not hasattr(module.HIPBackend.execute, "__wrapped__")
    assert "_device_ptr" not in vars(module.HIPBuffer)
    print("right")
    """
    )
    done = run_python(script.format(hosts=str(HOSTS)))
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_metal_is_counted_only() -> None:
    """Its memory is the host's, too. The device "metal:0" is on a Mac only, so that its fields are counted on the CPU here."""
    script = (
        LATE
        + """
    from tack_memory.hosts import _field_seams
    _field_seams.METAL_DEVICE = "cpu"
    tack_memory.uninstall(fh)
    fh.init("metal")
    from fieldhost.runtime.metal import MetalBackend
    old = fh.full(fh.f32, 100, 1)
    tack_memory.install(fh)
    new = fh.full(fh.f32, 10, 2)
    assert tack_memory.memory_info("cpu").in_use == 440
    old.reshape(10, 10)  # the same memory
    assert tack_memory.memory_info("cpu").in_use == 440 and (old.sum(), new.sum()) == (100, 20)
    del old
    assert tack_memory.memory_info("cpu").in_use == 40
    tack_memory.uninstall(fh)
    assert tack_memory.memory_info("cpu").in_use == 0
    assert not hasattr(MetalBackend.allocate_field, "__wrapped__") and list(vars(new._buffer)) == ["_view"]
    print("right")
    """
    )
    done = run_python(script.format(hosts=str(HOSTS)))
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


# ---- GPU backends


@pytest.fixture
def gpu_unplugged(gpu_bare: ModuleType, vendor: Vendor) -> Iterator[ModuleType]:
    """Fieldhost on a GPU backend, not plugged in; the test may plug it in."""
    gpu_bare.init(vendor.arch, library=sim_library(vendor.kind))
    import_all(gpu_bare)
    yield gpu_bare
    gc.collect()
    gpu_bare.get_backend()._cache.clear()
    take_out(gpu_bare)


def test_uninstall_leaves_a_gpu_host_as_it_was(gpu_unplugged: ModuleType, vendor: Vendor) -> None:
    before = attributes(gpu_unplugged)
    tack_memory.install(gpu_unplugged)
    field = gpu_unplugged.full(gpu_unplugged.f64, 100, 1)
    assert tack_memory.memory_info(vendor.device).in_use == 800
    cls = getattr(getattr(gpu_unplugged.runtime, vendor.module), vendor.buffer)
    assert "_device_ptr" in vars(cls)
    tack_memory.uninstall(gpu_unplugged)
    assert same(before, attributes(gpu_unplugged))
    assert field.sum() == 100


def test_uninstall_brings_everything_back_and_the_host_frees_it(gpu_unplugged: ModuleType, vendor: Vendor, soft: SoftDriver) -> None:
    def make(nbytes: int, value: int) -> Any:
        return gpu_unplugged.full(gpu_unplugged.u8, nbytes, value)

    plugging.check_everything_comes_back(gpu_unplugged, vendor.device, soft, make, lambda field: field.to_numpy(), settle)


def test_uninstall_is_refused_when_not_everything_fits(gpu_unplugged: ModuleType, soft: SoftDriver) -> None:
    plugging.check_uninstall_is_refused_where_not_everything_fits(
        gpu_unplugged, soft, lambda nbytes, value: gpu_unplugged.full(gpu_unplugged.u8, nbytes, value), lambda field: field.to_numpy()
    )


def test_gpu_fields_older_than_install(gpu_unplugged: ModuleType) -> None:
    host = gpu_unplugged

    @host.kernel
    def axpy(x: Any, y: Any, out: Any, a: Any) -> None:
        out[:] = a * x + y

    old = [host.full(host.f64, 1000, n) for n in range(3)]
    axpy(*old, 2.0)  # makes a buffer for its scalar
    exported = host.full(host.f64, 100, 5)
    consumer = np.from_dlpack(exported)
    tack_memory.install(host)
    assert host.memory_info().in_use == 24_000 + 800 + 8
    with host.memory_budget(1):
        assert host.memory_report().holds == {"unmovable: exported before install": 800, "unmovable: scalar pack": 8}
        axpy(old[1], old[2], old[0], 3.0)
        assert (consumer == 5).all()
    assert old[0].to_numpy()[0] == 3 * 1 + 1


def test_a_host_on_another_driver_is_refused(vendor: Vendor, tmp_path: Path) -> None:
    """A pointer can be adopted by the library that it came from, and by no other."""
    library = shutil.copy(sim_library(vendor.kind), tmp_path / "driver_of_a_test.so")
    script = f"""
        import sys
        sys.path.insert(0, {str(HOSTS)!r})
        import fieldhost as fh, tack_memory
        fh.init({vendor.arch!r}, library={str(library)!r})
        try:
            tack_memory.install(fh)
        except tack_memory.hosts.MissingSeamError as error:
            print("TACK_MEMORY_{vendor.arch.upper()}_LIBRARY" in str(error), hasattr(fh, "memory_info"))
    """
    done = run_python(script)
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr


def test_the_mini_host_knows_nothing_of_tack_memory() -> None:
    sources = list((HOSTS / "fieldhost").rglob("*.py"))
    assert len(sources) >= 12
    for source in sources:
        assert "tack_memory" not in source.read_text(), f"{source} names it"
    assert len(VENDORS) == 3
    assert (
        subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(HOSTS)!r}); import fieldhost; fieldhost.init()"], check=False).returncode
        == 0
    )
