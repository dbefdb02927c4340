"""What a host of the field generation must have, and where it is found. One list, checked before anything is changed.

The backends of such a host are modules of their own, imported when somebody first asks for them: what they must have is checked then.
"""

from __future__ import annotations

from typing import NamedTuple

from ._features import Needed, definer, look_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ._protocol import How

DATA = "_data"
"""The attribute in which a buffer of the CPU backend keeps its NumPy array."""


class Vendor(NamedTuple):
    """How hosts use one vendor's driver."""

    module: str  # where the backend is
    backend: str  # name of its class
    buffer: str  # name of the buffer class
    kind: str  # of the device, in our words
    how: How  # the call that allocates
    stream: str | int  # on which the host does everything: the backend's attribute that has it, or its number in our words (1: the null stream)
    pointer_is_number: bool  # whoever reads a buffer's pointer takes a number for it; else an object of the type that the class itself puts there
    device_is_number: bool  # the backend keeps the ordinal of its device; else a handle, of the first one


VENDORS = (
    Vendor("runtime.cuda_backend", "CUDABackend", "CUDABuffer", "cuda", "cuMemAlloc", 1, True, True),
    Vendor("runtime.hip_backend", "HIPBackend", "HIPBuffer", "hip", "hipMalloc", 1, True, True),
    Vendor("runtime.level_zero_backend", "LevelZeroBackend", "L0Buffer", "level_zero", "zeMemAllocDevice", "_imm_cmd_list", False, False),
)

EXPORTABLE = "ExportableCUDABuffer"
"""The class of memory that the host can share with other processes and APIs, where a backend has one."""

CPU_MODULE, CPU_BACKEND = "runtime.cpu", "CPUBackend"
METAL_MODULE, METAL_BACKEND, METAL_BUFFER = "runtime.metal", "MetalBackend", "MetalBuffer"
METAL_VIEW = "_view"
"""The attribute in which a buffer of the Metal backend keeps the NumPy array over its memory, which the host shares with the device."""
METAL_DEVICE = "metal:0"

CPU_METHODS = ("allocate_field", "wrap_ptr", "execute", "_dispatch")
GPU_METHODS = ("allocate_field", "wrap_ptr", "execute", "reduce_field")
BUFFER_METHODS = ("__init__", "__del__", "to_numpy", "from_numpy", "fill")
NUMPY_BUFFER_METHODS = ("__init__", "to_numpy", "from_numpy", "fill")


class Seams(NamedTuple):
    """The places of one host where we come in between."""

    field: Any  # this and the next three are classes
    device_buffer: Any  # what all buffers derive from
    numpy_buffer: Any
    texture: Any
    to_dlpack: Callable[..., Any]
    exported: dict[Any, tuple[Any, ...]]  # what consumers of DLPack still use: entries with the field in them
    create_pack_fields: Callable[..., Any]
    dispatch: ModuleType  # has the current backend in `_current_backend`


def find(module: ModuleType) -> tuple[Seams | None, list[str]]:
    """The seams of a host; or None, and what is missing. Imports submodules of the host, changes nothing."""
    need = Needed(module)
    field = need.look_up("lang.field:Field")
    device_buffer = need.look_up("lang.field:DeviceBuffer")
    numpy_buffer = need.look_up("lang.field:NumpyBuffer")
    texture = need.look_up("lang.field:Texture3D")
    to_dlpack = need.look_up("lang.dlpack:field_to_dlpack")
    exported = need.look_up("lang.dlpack:_prevent_gc")
    create_pack_fields = need.look_up("runtime.kernel_utils:_create_pack_fields")
    get_backend = need.look_up("runtime.dispatch:get_backend")
    if numpy_buffer is not None:
        need.methods(numpy_buffer, NUMPY_BUFFER_METHODS)
        need.dictionary(numpy_buffer, f"keeps {DATA} in __slots__, not in __dict__")
    if field is not None:
        need.dictionary(field, "has __slots__ and no __dict__")
    dispatch = None
    if get_backend is not None:
        dispatch = look_up(module, "runtime:dispatch")
        if not hasattr(dispatch, "_current_backend"):
            need.missing.append(f"{module.__name__}.runtime.dispatch:_current_backend")
    if need.missing or dispatch is None:
        return None, need.missing
    return Seams(field, device_buffer, numpy_buffer, texture, to_dlpack, exported, create_pack_fields, dispatch), []


def backend_seams(module: ModuleType, name: str, methods: tuple[str, ...]) -> tuple[type | None, list[str]]:
    """The backend class of a module, and what it misses."""
    backend = vars(module).get(name)
    if not isinstance(backend, type):
        return None, [f"{module.__name__}.{name}"]
    need = Needed(module)
    need.methods(backend, methods)
    place = definer(backend, "allocate_field")
    if place is not None:
        need.parameters(vars(place)["allocate_field"], f"{name}.allocate_field", {"dtype", "shape"})
    return backend, need.missing


def buffer_seams(module: ModuleType, name: str) -> tuple[type | None, list[str]]:
    """The buffer class of a GPU backend's module, and what it misses."""
    buffer = vars(module).get(name)
    if not isinstance(buffer, type):
        return None, [f"{module.__name__}.{name}"]
    need = Needed(module)
    need.methods(buffer, BUFFER_METHODS)
    need.dictionary(buffer, "keeps its pointer in __slots__, not in __dict__")
    return buffer, need.missing
