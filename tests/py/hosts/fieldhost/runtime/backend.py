"""What all backends have."""

from typing import Any

from ..lang.types import ScalarType


class Backend:
    """One kind of device."""

    name = "unknown"
    supports_device_reductions = False

    def allocate_field(self, dtype: ScalarType, shape: tuple[int, ...], exportable: bool = False) -> Any:
        raise NotImplementedError

    def wrap_ptr(self, ptr: Any, dtype: ScalarType, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError

    def execute(self, kernel: Any, args: Any, kwargs: Any) -> None:
        raise NotImplementedError

    def reduce_field(self, field: Any, op: str) -> float:
        raise NotImplementedError
