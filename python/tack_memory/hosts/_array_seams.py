"""What a host of the array generation must have, and where it is found. One list, checked before anything is changed."""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import signature
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType
    from typing import Any

    from ._protocol import How

POINTER = "_device_ptr"
"""The attribute in which a buffer keeps its pointer."""


class Vendor(NamedTuple):
    """How hosts use one vendor's driver."""

    buffer: str  # name of the buffer class
    kind: str  # of the device, in our words
    with_pools: How  # the call that allocates, where the device has memory pools
    without_pools: How


VENDORS = (
    Vendor("CUDABuffer", "cuda", "cuMemAllocAsync", "cuMemAlloc"),
    Vendor("HIPBuffer", "hip", "hipMallocAsync", "hipMalloc"),
    Vendor("L0Buffer", "level_zero", "zeMemAllocDevice", "zeMemAllocDevice"),
)

_BUFFER_METHODS = ("__init__", "__del__", "to_numpy", "from_numpy", "read_range", "fill_bytes", "copy_from")
_BACKEND_METHODS = ("execute", "reduce", "wrap_ptr", "empty_cache")


class Seams(NamedTuple):
    """The places of one host where we come in between."""

    module: ModuleType
    memory_error: type[BaseException]
    array: type
    allocate: Callable[..., Any]  # lang.array._allocate
    to_dlpack: Callable[..., Any]  # lang.dlpack.to_dlpack
    exported: dict[object, Any]  # lang.dlpack: what consumers still use
    current_backend: Callable[[], Any]
    buffers: dict[type, Vendor]
    backends: tuple[type, ...]  # GPUBackend and its subclasses


def find(module: ModuleType) -> tuple[Seams | None, list[str]]:
    """The seams of a host, or None and the names of those that it lacks. Imports the host's own submodules, changes nothing."""
    missing: list[str] = []

    def need(path: str) -> Any:
        found = _look_up(module, path)
        if found is None:
            missing.append(f"{module.__name__}.{path}")
        return found

    memory_error = need("DeviceMemoryError")
    array = need("lang.array:array")
    allocate = need("lang.array:_allocate")
    to_dlpack = need("lang.dlpack:to_dlpack")
    exported = need("lang.dlpack:_exported")
    current_backend = need("runtime.devices:current_backend")
    gpu_backend = need("runtime.backend:GPUBackend")
    if allocate is not None:
        lacking = {"backend", "dtype", "shape"} - signature(allocate).parameters.keys()
        missing += [f"{module.__name__}.lang.array:_allocate has no parameter {name!r}" for name in sorted(lacking)]

    buffers = {found: vendor for vendor in VENDORS for found in _classes(module, vendor.buffer)}
    if not buffers:
        missing.append(f"a class {' or '.join(vendor.buffer for vendor in VENDORS)} in {module.__name__}")
    for buffer in buffers:
        missing += [f"{buffer.__name__}.{name}" for name in _BUFFER_METHODS if definer(buffer, name) is None]
        if not buffer.__dictoffset__:
            missing.append(f"{buffer.__name__} keeps {POINTER} in __slots__, not in __dict__")
    if array is not None and not array.__dictoffset__:
        missing.append(f"{array.__name__} has __slots__ and no __dict__")
    backends: tuple[type, ...] = ()
    if gpu_backend is not None:
        backends = (gpu_backend, *_subclasses(gpu_backend))
        missing += [f"{gpu_backend.__name__}.{name}" for name in _BACKEND_METHODS if not any(definer(one, name) for one in backends)]
    if missing:
        return None, missing
    return Seams(module, memory_error, array, allocate, to_dlpack, exported, current_backend, buffers, backends), []


def modules(host: ModuleType) -> Iterator[ModuleType]:
    """The host's modules that are imported now."""
    for name, found in list(sys.modules.items()):
        if found is not None and (name == host.__name__ or name.startswith(f"{host.__name__}.")):
            yield found


def _look_up(module: ModuleType, path: str) -> Any:
    """ "lang.array:_allocate" is the attribute of a submodule; without a colon it is one of the module itself."""
    place, _, name = path.rpartition(":")
    if not place:
        return vars(module).get(name)
    try:
        return vars(import_module(f"{module.__name__}.{place}")).get(name)
    except ImportError:
        return None


def _classes(module: ModuleType, name: str) -> list[type]:
    """The classes of that name that the host defines (each once, however many modules import it)."""
    found: dict[int, type] = {}
    for one in modules(module):
        value = vars(one).get(name)
        if isinstance(value, type):
            found[id(value)] = value
    return list(found.values())


def places(classes: Iterable[type], names: Iterable[str]) -> list[tuple[type, str, Any]]:
    """Where methods are to be wrapped, and what is there now: class, name, function.

    A class that defines the method itself, or has it from a base that is not among `classes` (which other classes may share, so it stays
    as it is). What a class has from another of `classes` is wrapped there."""
    among = set(classes)
    found = ((cls, name, definer(cls, name)) for cls in among for name in names)
    return [(cls, name, vars(base)[name]) for cls, name, base in found if base is not None and (base is cls or base not in among)]


def definer(cls: type, name: str) -> type | None:
    """The class that defines a method; `object` does not count."""
    return next((base for base in cls.__mro__[:-1] if name in vars(base)), None)


def _subclasses(cls: type) -> list[type]:
    direct: list[type] = cls.__subclasses__()
    return [found for one in direct for found in (one, *_subclasses(one))]
