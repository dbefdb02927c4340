"""Callbacks for modules that may be imported already, or come later.

A finder at the front of `sys.meta_path` looks an awaited module up through the finders behind it, and puts a stand-in in the place of the
loader that they found. The stand-in steps aside when the module is executed: while its code runs, and ever after, `module.__loader__` and
`module.__spec__.loader` are the real one. Modules that nobody waits for are left alone, and with the last awaited one the finder goes.

Who imports an awaited module from several threads at once need not think of this: Python lets one of them execute it, and the others wait
until the callbacks are through.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_lock = RLock()  # guards _waiting and the finder's place; no callback or import runs under it
_waiting: dict[str, list[Awaited]] = {}  # name of a module -> who waits for it, first come first; never an empty list


def _new_lock_in_child() -> None:
    global _lock
    _lock = RLock()  # the thread that held it does not exist in the child


os.register_at_fork(after_in_child=_new_lock_in_child)


class Awaited:
    """A callback that waits for a module."""

    __slots__ = ("again", "callback", "name", "strict")

    def __init__(self, name: str, callback: Callable[[ModuleType], object], strict: bool, again: bool) -> None:
        self.name = name
        self.callback = callback
        self.strict = strict
        self.again = again

    def cancel(self) -> bool:
        """The callback is not to run any more. Returns whether it was still waiting. May be called from any thread."""
        with _lock:
            return _take(self)

    def _is_due(self) -> bool:
        """Whether it is still waiting; it goes on waiting only where it is to be called again."""
        with _lock:
            return _waits(self) if self.again else _take(self)

    def _run(self, module: ModuleType) -> None:
        try:
            self.callback(module)
        except Exception as error:
            if self.strict:
                raise
            from ._logging import debug, warn

            debug("after the import of %s:", self.name, exc_info=error)
            warn(f"after the import of {self.name}, tack_memory failed: {type(error).__name__}: {error}")


def when_imported(name: str, callback: Callable[[ModuleType], object], *, strict: bool = False, again: bool = False) -> Awaited:
    """Call `callback(module)`: now, where the module is imported already, else right after the module's own code has run.

    In that case the statement that imports the module waits for the callback. Where the import fails, the callback goes on waiting for a
    second try.

    Parameters
    ----------
    name : str
        The module's full name. Of a namespace package, which has no code, only one that is imported already counts.
    callback : callable
        Gets the module from `sys.modules`. May import what it likes.
    strict : bool
        What an Exception of the callback does. False: it becomes a warning, and the import goes on. True: the import fails with it, and
        the next one tries again; where the module is imported already, this call raises it.
    again : bool
        Call it at each later import, too, until it is cancelled: of a module that was taken out of `sys.modules`, or is reloaded. Now and
        then twice for one import, in two threads.

    Returns
    -------
    Awaited
        With `cancel()`.

    Notes
    -----
    May be called from any thread.
    """
    awaited = Awaited(name, callback, strict, again)
    with _lock:
        _wait((awaited,))
    # Only now, so that a thread which finishes importing it this moment either finds the callback or is found here.
    module = sys.modules.get(name)
    if module is not None and _is_executing(module):
        try:
            __import__(name)  # waits until the thread that imports it is through; in that thread itself, returns at once
        except Exception:  # it failed there just now, so this tried once more: the error is for whoever wants the module
            return awaited
        module = sys.modules.get(name)
        if module is not None:
            _watch(module)
    if module is not None and not _is_executing(module) and awaited._is_due():
        awaited._run(module)
    return awaited


class _Finder:
    """Stands in front of the other finders while something is awaited."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _waiting:
            if next(iter(sys.meta_path), None) is not self:
                _to_the_front()  # a finder that came later might answer for an awaited module itself
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if find is None or finder is self:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _StandIn(spec)  # type: ignore[assignment]  # it is whatever the real loader is
                return spec
        return None


_finder = _Finder()


class _StandIn:
    """In the place of an awaited module's loader, until the module is executed. In all but exec_module it is the loader."""

    __slots__ = ("_tm_loader", "_tm_spec")

    def __init__(self, spec: ModuleSpec) -> None:
        self._tm_spec = spec
        self._tm_loader: Any = spec.loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tm_loader, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]  # for isinstance
        return type(self._tm_loader)

    def __repr__(self) -> str:
        return repr(self._tm_loader)

    def __reduce__(self) -> Any:
        return _same, (self._tm_loader,)  # a copy awaits nothing

    def exec_module(self, module: ModuleType) -> None:
        loader, spec = self._tm_loader, self._tm_spec
        for place in (spec, getattr(module, "__spec__", None)):
            if getattr(place, "loader", None) is self:
                place.loader = loader  # type: ignore[union-attr]
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = loader
        loader.exec_module(module)
        _came(spec.name)


class _WatchedSpec(type(sys.__spec__)):  # type: ignore[misc]
    """A ModuleSpec of a module whose code imports, by some way, the one that waits for it. It is too late for a stand-in: the real loader
    runs already. So this takes the class's place until importlib notes in the spec that the module is through."""

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        if not value:
            self.__class__ = _ModuleSpec
            _came(self.name)


_ModuleSpec = _WatchedSpec.__base__


def _watch(module: ModuleType) -> None:
    spec = module.__spec__
    if type(spec) is _ModuleSpec and _is_executing(module):
        spec.__class__ = _WatchedSpec  # pyright: ignore[reportOptionalMemberAccess]  # its type is not None's


def _same(loader: Any) -> Any:
    return loader


def _came(name: str) -> None:
    """A module's code has run. Where it ran under another name, as a private copy, the one that is awaited is not there yet."""
    module = sys.modules.get(name)
    if module is None:
        return
    with _lock:
        due = list(_waiting.get(name, ()))
    for awaited in due:
        if awaited._is_due():  # else somebody has cancelled it in the meantime
            try:
                awaited._run(module)
            except BaseException:  # the import fails: wait for the next one
                if not awaited.again:
                    with _lock:
                        _wait((awaited,))
                raise


def _is_executing(module: ModuleType) -> bool:
    """Whether a module is in the middle of being imported, told as importlib itself does."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _wait(for_it: Iterable[Awaited]) -> None:
    for awaited in for_it:
        _waiting.setdefault(awaited.name, []).append(awaited)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _waits(awaited: Awaited) -> bool:
    return any(one is awaited for one in _waiting.get(awaited.name, ()))


def _take(awaited: Awaited) -> bool:
    """Take one out; whether it was there."""
    if not _waits(awaited):
        return False
    here = _waiting[awaited.name]
    here.remove(awaited)
    if not here:
        del _waiting[awaited.name]
    if not _waiting and _finder in sys.meta_path:
        _replace_meta_path(front=False)
    return True


def _to_the_front() -> None:
    with _lock:
        if _waiting and _finder in sys.meta_path:
            _replace_meta_path(front=True)


def _replace_meta_path(front: bool) -> None:
    """Put the finder first, or take it out. A new list: another thread may be going through the old one, and would pass a finder over."""
    finders = [finder for finder in sys.meta_path if finder is not _finder]
    if front:
        finders.insert(0, _finder)
    sys.meta_path = finders
