"""From a call to what is launched: arguments, compiled variants, buffers for scalars."""

import ctypes
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..lang.atomic_support import check_atomic_alignment
from ..lang.field import Field, Texture3D
from ..lang.types import f64


class KernelVariant:
    """A kernel, compiled for the types of its arguments."""

    def __init__(self, payload: Any) -> None:
        self.payload = payload
        self.dispatch_lock = threading.Lock()  # launches of one variant take turns: they have its buffers for scalars in common


def new_kernel_cache() -> Any:
    return weakref.WeakKeyDictionary()


def expand_templates(args: Any) -> tuple[Any, ...]:
    """The arguments, with the fields of objects in the place of the objects, at the end."""
    plain = [one for one in args if not getattr(one, "_data_oriented", False)]
    objects = [one for one in args if getattr(one, "_data_oriented", False)]
    return (*plain, *(vars(one)[name] for one in objects for name in sorted(vars(one)) if isinstance(vars(one)[name], Field)))


def resolve_variant(backend: Any, kernel: Any, args: Any, build: Callable[[Any], Any]) -> tuple[KernelVariant, tuple[Any, ...]]:
    """The compiled variant for these arguments; it depends on which of them share memory, so addresses are compared here, and looked at for atomics."""
    effective = expand_templates(args)
    check_atomic_alignment(kernel, effective)
    spans = [(one._buffer.address, one._buffer.nbytes) for one in effective if isinstance(one, Field) and one._buffer.nbytes]
    disjoint = all(a + n <= b for (a, n), (b, _) in zip(sorted(spans), sorted(spans)[1:], strict=False))
    key = disjoint, tuple((type(one), getattr(one, "dtype", None)) for one in effective)
    variants = backend._cache.setdefault(kernel, {})
    if key not in variants:
        variants[key] = KernelVariant(build(effective))
    return variants[key], effective


def _create_pack_fields(args: Any, backend: Any) -> list[Field]:
    """A field for the scalars of a launch, where a backend gives them to its kernels in memory."""
    scalars = [float(one) for one in args if isinstance(one, (int, float))]
    if not scalars:
        return []
    pack = Field(f64, (len(scalars),), backend.allocate_field(f64, (len(scalars),)))
    pack.from_numpy(np.array(scalars))
    return [pack]


def update_pack_fields(packs: list[Field], args: Any) -> None:
    for pack in packs:
        pack.from_numpy(np.array([float(one) for one in args if isinstance(one, (int, float))]))


def values_at(address: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The memory at an address, as it is: nothing keeps it."""
    nbytes = int(np.prod(shape)) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype).reshape(shape)


def foreign_values(pointer: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Somebody else's memory, given as an address or as a NumPy array."""
    return pointer.view(dtype).reshape(shape) if isinstance(pointer, np.ndarray) else values_at(int(pointer), dtype, shape)


def unwrapped(args: Any) -> list[Any]:
    """Textures stand for their fields."""
    return [one.field if isinstance(one, Texture3D) else one for one in args]
