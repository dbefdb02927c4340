"""Loads `_fast` (C and Go) out of the one shared object of this package.

gopy's `_tm` comes out of the same file, since a process can have one Go runtime of ours only; it is imported with `bindings` at the first
use of the control plane (`from ._native import bindings`), because gopy's Python costs more than all of the rest of the package.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import BuiltinImporter, ExtensionFileLoader, ModuleSpec, PathFinder

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without importing typing
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_FAST = __name__ + "._fast"

PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__path__[0])), "")
"""The folder of this package, as the names of its code have it."""


def _load(name: str, loader: Any, origin: str) -> ModuleType:
    """Makes a module of C. What importlib.util.module_from_spec would do; that module is as dear as everything else here together."""
    spec = ModuleSpec(name, loader, origin=origin)
    module: ModuleType = loader.create_module(spec)
    module.__spec__, module.__loader__, module.__package__ = spec, loader, __name__
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def _load_fast() -> ModuleType:
    if _FAST in sys.builtin_module_names:  # the interpreter of 'make race' holds both modules; the import system of Python 3.11.2 finds none in a package
        for name in (__name__ + "._tm", _FAST):
            module = _load(name, BuiltinImporter, "built-in")
        module.__file__ = __file__  # the software driver is looked for beside it
        return module
    extension = PathFinder.find_spec(__name__ + "._tm", __path__)
    if extension is None or extension.origin is None:
        raise ImportError(
            f"{__name__} has no extension for Python {sys.version_info[0]}.{sys.version_info[1]} in {list(__path__)}: "
            "run 'make build' in the checkout, or reinstall tack-memory with this Python",
            name=_FAST,
        )
    module = _load(_FAST, ExtensionFileLoader(_FAST, extension.origin), extension.origin)
    module.__file__ = extension.origin
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

__all__ = ["PACKAGE_FOLDER", "SIM_LIBRARIES", "_fast", "sim_library_path"]
