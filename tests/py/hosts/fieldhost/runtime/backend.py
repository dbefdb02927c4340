"""What all backends have."""

import abc
from typing import Any

from ..lang.types import ScalarType


class Backend(abc.ABC):
    """One kind of device. Where `supports_device_reductions` it has `reduce_field`, too."""

    name = "unknown"
    supports_device_reductions = False

    @abc.abstractmethod
    def allocate_field(self, dtype: ScalarType, shape: tuple[int, ...], exportable: bool = False) -> Any:
        """A new buffer of zeros."""

    @abc.abstractmethod
    def wrap_ptr(self, ptr: Any, dtype: ScalarType, shape: tuple[int, ...]) -> Any:
        """A buffer over memory that somebody else owns."""

    @abc.abstractmethod
    def execute(self, kernel: Any, args: Any, kwargs: Any) -> None:
        """Launch."""
