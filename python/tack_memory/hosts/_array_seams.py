"""What a host of the array generation must have, and where it is found. One list, checked before anything is changed."""

from __future__ import annotations

from types import FunctionType
from typing import NamedTuple

from ._features import Needed, classes, definer, modules, subclasses
from ._pointer_buffers import POINTER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ._protocol import How


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

# What follows a host may have or not. None of these names has been seen in Tack's sources: the plan names some, and the field generation has others.
EXTRA_COPIES = ("copy_to", "copy_range", "copy_to_device", "copy_from_device")
"""Methods of buffers that copy on the device, beside copy_from."""
HANDS_OUT = ("export_memory", "share")
"""Methods of buffers that hand their memory out."""
PACKERS = ("_create_pack_arrays", "_create_pack_buffers", "_create_pack_fields")
"""Functions that make the buffers with which scalars are given to kernels."""
ALLOCATES_FOR_MPI = "allocate_mpi_array"
MPI_MODULES = ("mpi", "lang.mpi", "runtime.mpi", "interop.mpi")
"""Where that function may be: modules that are imported only where MPI is used."""
MPI_MARKS = {"_mpi": True, "_pooled": False}
"""Attributes of buffers that tell of memory for MPI, each with its value there: MPI libraries cannot share what comes from a stream's pool."""
SHARED_MARK = "_shared"
"""Attribute of buffers: True where their address was shared for good."""
TEXTURES = ("Texture2D", "Texture3D", "Texture")
"""Classes of what stands for an array's texture among a launch's arguments: with the array in an attribute."""
IMAGE = "TextureImage"
"""How the names of the classes of texture images end (one a vendor)."""


class OnlyCounted(NamedTuple):
    """A buffer class whose memory is the host's, too: never spilled, only counted."""

    buffer: str
    kind: str  # of the backend
    array: str  # the attribute with the NumPy array over the memory
    device: str
    base_is_foreign: bool  # an array over other memory is over somebody else's; else it is over that of the host's own object


ONLY_COUNTED = [OnlyCounted("NumpyBuffer", "cpu", "_data", "cpu", True), OnlyCounted("MetalBuffer", "metal", "_view", "metal:0", False)]


class Extras(NamedTuple):
    """Places that not every host has."""

    textures: tuple[type, ...]
    images: tuple[type, ...]
    packers: tuple[Any, ...]  # functions
    counted: dict[type, OnlyCounted]


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


def extras(module: ModuleType) -> Extras:
    """What the host has of the places that not every host has. Changes nothing."""
    images = {one for found in modules(module) for name, one in vars(found).items() if name.endswith(IMAGE) and isinstance(one, type)}
    return Extras(
        textures=tuple(found for name in TEXTURES for found in classes(module, name)),
        images=tuple(one for one in images if definer(one, "upload") is not None),
        packers=tuple(found for name in PACKERS for found in functions(module, name)),
        counted={found: one for one in ONLY_COUNTED for found in classes(module, one.buffer)},
    )


def is_for_mpi(buffer: Any) -> bool | None:
    """Whether a buffer's memory is for MPI; None: the buffer does not tell."""
    told = [getattr(buffer, name) is value for name, value in MPI_MARKS.items() if hasattr(buffer, name)]
    return any(told) if told else None


def allocates_for_mpi(module: ModuleType, backends: tuple[type, ...]) -> bool:
    """Whether the host has memory for MPI; a module for it that is not imported has made none yet."""
    return bool(functions(module, ALLOCATES_FOR_MPI)) or any(definer(one, ALLOCATES_FOR_MPI) for one in backends)


def functions(module: ModuleType, name: str) -> list[Any]:
    """The functions of that name that the host's modules have, each once."""
    found = {id(one): one for part in modules(module) if isinstance(one := vars(part).get(name), FunctionType)}
    return list(found.values())


def find(module: ModuleType) -> tuple[Seams | None, list[str]]:
    """The seams of a host, or None and the names of those that it lacks. Imports the host's own submodules, changes nothing."""
    need = Needed(module)
    memory_error = need.look_up("DeviceMemoryError")
    array = need.look_up("lang.array:array")
    allocate = need.look_up("lang.array:_allocate")
    to_dlpack = need.look_up("lang.dlpack:to_dlpack")
    exported = need.look_up("lang.dlpack:_exported")
    current_backend = need.look_up("runtime.devices:current_backend")
    gpu_backend = need.look_up("runtime.backend:GPUBackend")
    if allocate is not None:
        need.parameters(allocate, f"{module.__name__}.lang.array:_allocate", {"backend", "dtype", "shape"})
    buffers = {found: vendor for vendor in VENDORS for found in classes(module, vendor.buffer)}
    if not buffers:
        need.missing.append(f"a class {' or '.join(vendor.buffer for vendor in VENDORS)} in {module.__name__}")
    for buffer in buffers:
        need.methods(buffer, _BUFFER_METHODS)
        need.dictionary(buffer, f"keeps {POINTER} in __slots__, not in __dict__")
    if array is not None:
        need.dictionary(array, "has __slots__ and no __dict__")
    backends: tuple[type, ...] = ()
    if gpu_backend is not None:
        backends = (gpu_backend, *subclasses(gpu_backend))
        need.missing += [f"{gpu_backend.__name__}.{name}" for name in _BACKEND_METHODS if not any(definer(one, name) for one in backends)]
    if need.missing:
        return None, need.missing
    assert array is not None and allocate is not None
    return Seams(module, memory_error, array, allocate, to_dlpack, exported, current_backend, buffers, backends), []
