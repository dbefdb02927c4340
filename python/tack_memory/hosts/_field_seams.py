"""What a host of the field generation must have, and where it is found. One list, checked before anything is changed.

The backends of such a host are modules of their own, imported when somebody first asks for them: what they must have is checked then.
"""

from __future__ import annotations

from inspect import signature
from typing import NamedTuple

from ._features import definer, look_up

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
    missing: list[str] = []

    def need(path: str) -> Any:
        found = look_up(module, path)
        if found is None:
            missing.append(f"{module.__name__}.{path}")
        return found

    field = need("lang.field:Field")
    device_buffer = need("lang.field:DeviceBuffer")
    numpy_buffer = need("lang.field:NumpyBuffer")
    texture = need("lang.field:Texture3D")
    to_dlpack = need("lang.dlpack:field_to_dlpack")
    exported = need("lang.dlpack:_prevent_gc")
    create_pack_fields = need("runtime.kernel_utils:_create_pack_fields")
    get_backend = need("runtime.dispatch:get_backend")
    if numpy_buffer is not None:
        missing += [f"{numpy_buffer.__name__}.{name}" for name in NUMPY_BUFFER_METHODS if definer(numpy_buffer, name) is None]
        if not numpy_buffer.__dictoffset__:
            missing.append(f"{numpy_buffer.__name__} keeps {DATA} in __slots__, not in __dict__")
    if field is not None and not field.__dictoffset__:
        missing.append(f"{field.__name__} has __slots__ and no __dict__")
    dispatch = None
    if get_backend is not None:
        dispatch = look_up(module, "runtime:dispatch")
        if not hasattr(dispatch, "_current_backend"):
            missing.append(f"{module.__name__}.runtime.dispatch:_current_backend")
    if missing or dispatch is None:
        return None, missing
    return Seams(field, device_buffer, numpy_buffer, texture, to_dlpack, exported, create_pack_fields, dispatch), []


def backend_seams(module: ModuleType, name: str, methods: tuple[str, ...]) -> tuple[type | None, list[str]]:
    """The backend class of a module, and what it misses."""
    backend = vars(module).get(name)
    if not isinstance(backend, type):
        return None, [f"{module.__name__}.{name}"]
    missing = [f"{name}.{method}" for method in methods if definer(backend, method) is None]
    if "allocate_field" not in missing and definer(backend, "allocate_field") is not None:
        lacking = {"dtype", "shape"} - signature(vars(definer(backend, "allocate_field"))["allocate_field"]).parameters.keys()
        missing += [f"{name}.allocate_field has no parameter {parameter!r}" for parameter in sorted(lacking)]
    return backend, missing


def buffer_seams(module: ModuleType, name: str) -> tuple[type | None, list[str]]:
    """The buffer class of a GPU backend's module, and what it misses."""
    buffer = vars(module).get(name)
    if not isinstance(buffer, type):
        return None, [f"{module.__name__}.{name}"]
    missing = [f"{name}.{method}" for method in BUFFER_METHODS if definer(buffer, method) is None]
    if not buffer.__dictoffset__:
        missing.append(f"{name} keeps its pointer in __slots__, not in __dict__")
    return buffer, missing
