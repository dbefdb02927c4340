"""Fieldhost: a small framework in the shape of Tack's field generation, written from a description of its seams, for the tests of its adapter.

Fields live on the current backend: the CPU's (NumPy arrays), or that of a vendor's driver, which here is a software driver. Kernels are Python functions
that get NumPy arrays over the raw addresses which the backend has read from its buffers: a kernel that runs on memory which is gone, crashes.

    import fieldhost as fh

    fh.init("cpu")

    @fh.kernel
    def scale(x, out, factor):
        out[:] = x * factor
"""

from .lang.atomic_support import atomic_add
from .lang.field import (
    ExportedMemory,
    Field,
    Texture3D,
    field,
    field_from_ptr,
    field_like,
    from_dlpack,
    full,
    texture3d,
    zeros,
)
from .lang.kernel import data_oriented, kernel
from .lang.types import f32, f64, i32, i64, u8
from .runtime.dispatch import get_backend, init

__all__ = [
    "ExportedMemory", "Field", "Texture3D", "atomic_add", "data_oriented", "f32", "f64", "field", "field_from_ptr", "field_like", "from_dlpack", "full",
    "get_backend", "i32", "i64", "init", "kernel", "texture3d", "u8", "zeros",
]  # fmt: skip
