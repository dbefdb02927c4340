"""Code that does not count as what allocates: its caller does."""

from __future__ import annotations

import importlib
import os
import threading
import types
from typing import TYPE_CHECKING

import numpy

from .._native import _numpy

if TYPE_CHECKING:
    from collections.abc import Iterable

    Skip = str | os.PathLike[str] | types.ModuleType


def beginnings_of(skip: Skip | Iterable[Skip]) -> tuple[str, ...]:
    """What the file names of all this code begin with."""
    each = (skip,) if isinstance(skip, (str, os.PathLike, types.ModuleType)) else tuple(skip)
    return tuple(beginning for one in each for beginning in _beginnings(one))


def _beginnings(skip: Skip) -> list[str]:
    if isinstance(skip, types.ModuleType):
        return _of_module(skip.__name__, list(getattr(skip, "__path__", ())), getattr(skip, "__file__", None))
    if not isinstance(skip, (str, os.PathLike)):
        raise TypeError(f"skip takes modules, their names, files and folders, not {type(skip).__name__}")
    text = os.fspath(skip)
    if isinstance(skip, str) and os.sep not in text and not text.endswith(".py"):
        from importlib.util import find_spec

        try:
            spec = find_spec(text)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise ValueError(f"skip: there is no module {text!r} (a file ends in .py, a folder's path has a {os.sep})")
        return _of_module(text, list(spec.submodule_search_locations or ()), spec.origin)
    if os.path.isdir(text):
        return sorted({os.path.join(os.path.abspath(text), ""), os.path.join(text, "")})
    if os.path.exists(text) or text.endswith(".py"):
        return sorted({os.path.abspath(text), text})
    raise ValueError(f"skip: there is no file or folder {text!r}")


def _of_module(name: str, folders: list[str], file: str | None) -> list[str]:
    if folders:
        return [os.path.join(folder, "") for folder in folders]
    if file is None or not file.endswith(".py"):
        raise ValueError(f"skip: the module {name!r} has no Python code")
    return [file]


class _Skips:
    """What all open tracks skip, together: an array has one line."""

    ALWAYS = (
        *(os.path.join(folder, "") for folder in numpy.__path__),
        "<__array_function__ internals>",
        "<frozen importlib.",  # a part of NumPy that is imported when it is first used: the line that uses it allocates
        os.path.join(os.path.dirname(importlib.__file__), ""),
        os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
    )

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler or a finalizer may come in between, and track by itself
        self._open: dict[object, tuple[str, ...]] = {}  # by track
        self._told: tuple[str, ...] = ()
        self._is_told = False  # C has what `_told` says
        self._tell()

    def add(self, track: object, skip: tuple[str, ...]) -> None:
        with self._lock:
            self._open[track] = skip
            self._tell()

    def remove(self, track: object) -> None:
        """Once more is no harm."""
        with self._lock:
            self._open.pop(track, None)
            self._tell()

    def cover(self, file: str) -> bool:
        """Whether code of this file is skipped now."""
        return file.startswith(self._told)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # the thread that had it does not exist in the child

    def _tell(self) -> None:
        """Until what is told is what is wanted: whoever comes in between, on this thread, has changed that, or has raised."""
        while (beginnings := self._wanted()) != self._told or not self._is_told:
            self._is_told = False
            _numpy.set_site_skip(beginnings)
            self._told = beginnings
            self._is_told = True

    def _wanted(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.ALWAYS, *(one for skip in list(self._open.values()) for one in skip)]))


skips = _Skips()
os.register_at_fork(after_in_child=skips.after_fork)
