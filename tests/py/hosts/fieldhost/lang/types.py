"""The types of a field's elements."""

from typing import NamedTuple

import numpy as np


class ScalarType(NamedTuple):
    """One type."""

    name: str
    numpy_dtype: np.dtype


f32, f64, i32, i64, u8 = (ScalarType(name, np.dtype(name)) for name in ("f4", "f8", "i4", "i8", "u1"))
ALL = (f32, f64, i32, i64, u8)


def of_dtype(dtype: np.dtype) -> ScalarType:
    return next(one for one in ALL if one.numpy_dtype == dtype)
