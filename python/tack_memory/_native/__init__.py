"""Loads `_fast` (C and Go) out of the one shared object of this package.

gopy's `_tm` comes out of the same file, since a process can have one Go runtime of ours only; it is imported with `bindings` at the first
use of the control plane (`from ._native import bindings`), because gopy's Python costs more than all of the rest of the package.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without importing typing
if TYPE_CHECKING:
    from types import ModuleType

_FAST = __name__ + "._fast"


def _load_fast() -> ModuleType:
    if _FAST in sys.builtin_module_names:  # the interpreter of 'make race' holds both modules
        module = import_module(_FAST)
        module.__file__ = __file__  # the software driver is looked for beside it
        return module
    extension = PathFinder.find_spec(__name__ + "._tm", __path__)
    if extension is None or extension.origin is None:
        raise ImportError(
            f"{__name__} has no extension for Python {sys.version_info[0]}.{sys.version_info[1]} in {list(__path__)}: "
            "run 'make build' in the checkout, or reinstall tack-memory with this Python",
            name=_FAST,
        )
    # What importlib.util.module_from_spec would do; that module is as dear as everything else here together.
    loader = ExtensionFileLoader(_FAST, extension.origin)
    spec = ModuleSpec(_FAST, loader, origin=extension.origin)
    module = loader.create_module(spec)
    module.__spec__, module.__loader__, module.__package__, module.__file__ = spec, loader, __name__, extension.origin
    loader.exec_module(module)
    sys.modules[_FAST] = module
    return module


SIM_LIBRARIES = {
    "sim": "libtack_memory_simcuda.so",
    "sim-hip": "libtack_memory_simhip.so",
    "sim-level_zero": "libtack_memory_simlevelzero.so",
}
"""The software driver of each kind of simulated device."""


def sim_library_path(kind: str = "sim") -> str:
    """The path of a software driver. Whoever wants to share it with us must load this very file."""
    return os.path.join(os.path.abspath(__path__[0]), SIM_LIBRARIES[kind])


if TYPE_CHECKING:
    from . import _fast  # its stub
else:
    _fast = _load_fast()

__all__ = ["SIM_LIBRARIES", "_fast", "sim_library_path"]
