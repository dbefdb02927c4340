"""How large Dask takes a buffer for: its scheduler weighs moving a result against computing it again, by bytes. It does so for CuPy's arrays, too."""

from __future__ import annotations

from typing import Any

from dask.sizeof import sizeof

from .._native import _fast


def _nbytes(buffer: Any) -> int:
    return int(buffer.nbytes)


for _kind in (_fast.Buffer, _fast.BufferView):
    sizeof.register(_kind)(_nbytes)  # type: ignore[no-untyped-call]
