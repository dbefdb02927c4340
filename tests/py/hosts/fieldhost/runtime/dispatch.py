"""Which backend is current."""

from importlib import import_module
from typing import Any

_current_backend = None

_BACKENDS = {
    "cpu": ("cpu", "CPUBackend"),
    "cuda": ("cuda_backend", "CUDABackend"),
    "hip": ("hip_backend", "HIPBackend"),
    "level_zero": ("level_zero_backend", "LevelZeroBackend"),
    "metal": ("metal", "MetalBackend"),
}


def init(arch: str = "cpu", **options: Any) -> None:
    """Make the backend of this name the current one; its module is imported now. `library`: the driver library to load."""
    global _current_backend
    module, name = _BACKENDS[arch]
    _current_backend = getattr(import_module(f"{__package__}.{module}"), name)(**options)


def get_backend() -> Any:
    if _current_backend is None:
        init()
    return _current_backend
