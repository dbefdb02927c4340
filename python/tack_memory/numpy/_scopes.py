"""Where an allocator is in force: in one context (contextvars), or in the whole process."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

from .. import _devices
from .._native import _numpy
from ._allocators import ALIGNMENT, handler_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal

    from .._native._numpy import Handler
    from ._allocators import Allocator, Path, Size

    Scope = Literal["process", "context"]

SCOPES = ("process", "context")


def install(scope: Scope = "process", allocator: Allocator = "default", align: Size = ALIGNMENT, path: Path | None = None) -> None:
    """Count the memory of NumPy's arrays from now on, and say where it comes from.

    Arrays that are there already are not touched, and not counted. Each array is freed by the allocator that made it, whatever is installed then.

    Parameters
    ----------
    scope : {"process", "context"}, optional
        "process": in every thread, one that runs already or that C made included, and in every context, except where somebody's code has set a
        handler of its own (`use`, NumPy's C function PyDataMem_SetHandler). "context": in the current context of contextvars: in this thread or
        asyncio task, and in the tasks that it starts; not in threads.
    allocator : str or capsule, optional
        "default": NumPy's own allocator. "aligned": addresses are multiples of `align`. "hugepage": arrays of 4 MiB and more begin at a huge page
        (2 MiB) and ask the kernel for huge pages, also where they are zeroed, which NumPy's own allocator does from 2.2 on only; with the environment
        variable NUMPY_MADVISE_HUGEPAGE=0 they do not ask. "shared": memory that other processes can map (`share`). "mmap": in the file `path`. A capsule:
        a handler of one's own (NEP 49), counted all the same.
    align : int or str, optional
        A power of two, in bytes ("4 KiB", "2 MiB"), up to 1 GiB; 64 by default. For "aligned": of the arrays' addresses. For a capsule: the alignment that
        its blocks have, which is kept. The other allocators have an alignment of their own, of 16 bytes ("default", "hugepage") or 64 ("shared", "mmap");
        there the default changes nothing, also where it is said, and what they would not keep is refused.
    path : str or path, optional
        For "mmap", and needed there: the file. It is made, or begun anew if it was such a file before and no process uses it now, by arrays or by handles
        (who has opened it by `numpy.memmap` cannot be seen); one of anything else is left alone. It grows as arrays need it, so that a full disk is a
        MemoryError of the array that has no room; and it stays when the process ends. Until then other processes can read it: an array's bytes are at
        `share(array).offset`. They are on the disk for sure after an `os.fsync` of the file. Arrays with the same path, in several blocks or threads, are in
        one file; several paths may be in use at once.
        A program that closes the descriptor of the file, with all others (`os.closerange`, or what makes a daemon), gets no new arrays there: MemoryError.

    Raises
    ------
    ValueError
        There is no such scope or allocator; the alignment is none, or none that it keeps; a path is missing, or not wanted; the capsule is no handler of
        NumPy's, or counts already. Nothing has changed.
    TypeError
        A wrong type of argument.
    OSError
        The file cannot be made; it is somebody else's (FileExistsError); it is in use (BlockingIOError). No memory file can be made.

    Warns
    -----
    RuntimeWarning
        This Python is not known well enough to reach every thread: then only this thread and those that `threading` starts from now on are counted.

    Notes
    -----
    May be called from any thread. Installed again, the new allocator takes the place of the old one. A program that sets NumPy's own handler with
    PyDataMem_SetHandler(NULL) gets just that, uncounted.
    """
    _check_scope(scope)
    handler = handler_of(allocator, align, path)
    _devices.count_numpy(_numpy.books())
    if scope == "process":
        _process.install(handler)
    else:
        token = _numpy.context_variable().set(handler)
        first = _here.get()
        _here.set(token if first is None else first)  # what uninstall goes back to


def uninstall() -> None:
    """Take out what `install` installed, in this context and in the process.

    Arrays that are counted stay so until they are freed. Inside a block of `use` in this context it lasts until that ends, as an `install` does there.

    Raises
    ------
    RuntimeError
        Nothing is installed, neither in this context nor in the process.

    Notes
    -----
    May be called from any thread. In a context that is a copy of the one in which it was installed (a task's), what is in force in the process now stays
    in force here.
    """
    token = _here.get()
    if token is not None:
        _here.set(None)
        try:
            _numpy.context_variable().reset(token)
        except (ValueError, RuntimeError):  # installed in the context that this one is a copy of, a task's parent; taken out inside a block that has ended
            _numpy.set_context_handler(_process.handler() if token.old_value is Token.MISSING else token.old_value)
    if not _process.uninstall() and token is None:
        raise RuntimeError("tack_memory.numpy is not installed: neither in the process nor in this context")


class use:
    """An allocator for a block of code: `with tack_memory.numpy.use("aligned", align=4096): ...`

    On exit, also by an exception, the allocator from before is in force again, whatever was installed in the block's context meanwhile. Blocks nest, and
    may end in any order (those of generators do): the youngest that is open is in force. Where the scope is "context", a block is one task's or one
    thread's, also when others run meanwhile. One object is for one block at a time.

    Parameters
    ----------
    allocator : str or capsule, optional
        As in `install`.
    align : int or str, optional
        As in `install`.
    path : str or path, optional
        As in `install`.
    scope : {"context", "process"}, optional
        As in `install`.

    Raises
    ------
    ValueError, TypeError, OSError
        As in `install`, when it is made.
    RuntimeError
        On entering twice, on leaving without having entered, and on leaving in another context than the one that it was entered in.

    Notes
    -----
    May be used in any thread.
    """

    __slots__ = ("_entry", "_handler", "_scope")

    def __init__(self, allocator: Allocator = "default", *, align: Size = ALIGNMENT, path: Path | None = None, scope: Scope = "context") -> None:
        _check_scope(scope)
        self._handler, self._scope = handler_of(allocator, align, path), scope
        self._entry: _Entry | None = None  # of the last time that it was entered in a context

    def __enter__(self) -> None:
        if self._is_entered():
            raise RuntimeError("this block of tack_memory.numpy.use is already entered; make another one")
        _devices.count_numpy(_numpy.books())
        try:
            if self._scope == "process":
                _process.push(self)
            else:
                self._entry = _Entry(self._handler, _here.get())
                _numpy.enter_context(self._handler, self._entry.tokens)
                _open.set((*_open.get(), self._entry))
        except BaseException:  # Ctrl-C may come at the end of any call
            if self._is_entered():
                self._leave()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        if not self._is_entered():
            raise RuntimeError("this block of tack_memory.numpy.use was not entered")
        if not self._leave():
            raise RuntimeError("this block of tack_memory.numpy.use was left in another context than it was entered in, where it stays in force")

    def _is_entered(self) -> bool:
        return _process.has(self) if self._scope == "process" else self._entry is not None and bool(self._entry.tokens)

    def _leave(self) -> bool:
        """False in another context than it was entered in."""
        if self._entry is not None:
            return self._entry.leave()
        try:
            _process.remove(self)
        except BaseException:  # Ctrl-C, somewhere in it
            _process.remove(self)
            raise
        return True


_here: ContextVar[Token[Handler] | None] = ContextVar("tack_memory_numpy", default=None)
"""What is installed in this context."""


class _Entry:
    """A block that was entered in a context. The order in which blocks end need not be the opposite of that in which they began."""

    __slots__ = ("handler", "installed", "tokens")

    def __init__(self, handler: Handler, installed: Token[Handler] | None) -> None:
        self.handler, self.installed = handler, installed  # the second: what was installed when it began
        self.tokens: list[object] = []  # one until it ends

    def leave(self) -> bool:
        """False in another context than it was entered in."""
        blocks = _open.get()
        after = blocks[blocks.index(self) + 1 :] if self in blocks else ()  # of the same context: a context's own are behind those that it has inherited
        above = tuple(block for block in after if block.tokens)
        try:
            left = _numpy.leave_context(self.tokens, tuple((block.handler, block.tokens) for block in above))
        except BaseException:
            if not self.tokens:  # Ctrl-C at its end
                self._settle(above, True)
            raise
        if left is not False:
            self._settle(above, left)
        return left is not False

    def _settle(self, above: tuple[_Entry, ...], left: bool | Token[Handler]) -> None:
        """What was installed in this block ends with it, also for the blocks that were entered on top of that."""
        here = now = _here.get()
        if not above:
            now = self.installed
        elif (ended := above[0].installed) is not self.installed:
            for block in above:
                if block.installed is ended:
                    block.installed = self.installed
            if here is ended:
                now = left if isinstance(left, Token) else self.installed
        if now is not here:
            _here.set(now)
        _open.set(tuple(block for block in _open.get() if block.tokens))


_open: ContextVar[tuple[_Entry, ...]] = ContextVar("tack_memory_numpy_blocks", default=())
"""The blocks that were entered in this context, the youngest last, behind those of the context that it is a copy of."""


class _Process:
    """What is in force in the whole process: the youngest open block, else what is installed, else what only counts (while somebody tracks), else NumPy's."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler or a finalizer may come in between, and use a block of its own
        self._installed: Handler | None = None
        self._blocks: list[use] = []
        self._threads: _NewThreads | None = None
        self._tracks: set[object] = set()  # open ones: they need every array counted

    def handler(self) -> Handler | None:
        if self._blocks:
            return self._blocks[-1]._handler
        if self._installed is None and self._tracks:
            return handler_of("default")
        return self._installed

    def install(self, handler: Handler) -> None:
        with self._lock:
            self._installed = handler
            self._apply()

    def uninstall(self) -> bool:
        """Whether something was installed."""
        with self._lock:
            was, self._installed = self._installed is not None, None
            if was:
                self._apply()
            return was

    def push(self, block: use) -> None:
        with self._lock:
            self._blocks.append(block)
            self._apply()

    def has(self, block: use) -> bool:
        return any(one is block for one in self._blocks)

    def remove(self, block: use) -> None:
        """Take a block out, wherever it is. Once more is no harm."""
        with self._lock:
            self._blocks = [one for one in self._blocks if one is not block]
            self._apply()

    def hold_track(self, track: object) -> None:
        """This track is open."""
        with self._lock:
            self._tracks.add(track)
            self._apply()

    def release_track(self, track: object) -> None:
        """This track has ended. Once more is no harm."""
        with self._lock:
            self._tracks.discard(track)
            self._apply()

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # the thread that had it does not exist in the child

    def _apply(self) -> None:
        handler = self.handler()
        if self._threads is None:
            try:
                _numpy.set_process_handler(handler)
                return
            except RuntimeError as why:
                self._threads = _NewThreads(why)
        self._threads.apply(handler)


class _NewThreads:
    """The way where the default of NumPy's ContextVar cannot be changed: this thread, and those that `threading` starts from now on."""

    def __init__(self, why: RuntimeError) -> None:
        import warnings

        warnings.warn(
            f"NumPy's arrays are counted in this thread and in those that the module threading starts from now on, not in other threads: {why}",
            RuntimeWarning,
            stacklevel=5,  # who called install, or entered the block
        )
        self._handler: Handler | None = None
        original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        def bootstrap(thread: threading.Thread) -> None:
            if self._handler is not None:
                _numpy.set_context_handler(self._handler)
            original(thread)

        threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]

    def apply(self, handler: Handler | None) -> None:
        self._handler = handler  # without one, the wrapper does nothing: another may be on top of it, so it stays
        _numpy.set_context_handler(handler)


_process = _Process()


def _check_scope(scope: str) -> None:
    if scope not in SCOPES:
        raise ValueError(f'unknown scope {scope!r}; there are "process" and "context"')


def _in_child() -> None:
    _process.after_fork()


os.register_at_fork(after_in_child=_in_child)
