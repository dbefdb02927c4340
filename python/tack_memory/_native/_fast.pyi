"""The C fast lane. Written in C and Go (bindings/fast); the public names are re-exported by tack_memory."""

from collections.abc import Callable, Sequence
from types import CodeType, TracebackType
from typing import Any, Literal, Self, SupportsIndex, TypeVar, final, type_check_only

_Result = TypeVar("_Result")

# A device argument is anything that the resolver given to `configure` turns into an index (None, "cuda:0", a host's device object, an int: an int is
# the ordinal of a device of the current kind, never an index of ours). C answers None (once set_default_device was called) and names that were
# resolved before by itself. Indexes appear only in open_device, set_default_device, set_relief and as results of the resolver.
# A size argument is an int, or anything that the size parser turns into one ("24 MiB", "80%"); bool is not an int.
# Host memory is any contiguous object with the buffer protocol; there is a type for that from Python 3.12 on only.
_Device = Any
_HostMemory = Any
_Size = Any

def configure(
    *,
    resolve_device: Callable[[object], int],
    parse_size: Callable[[object, int], int],  # (size, device index): bytes; raises TypeError/ValueError as in API.md
    memory_error: Callable[[dict[str, Any]], BaseException],  # fields of DeviceMemoryError -> the exception to raise
    lost_error: type[BaseException],
    fork_error: type[BaseException],
    capture_error: type[BaseException],
    format_info: Callable[[MemoryInfo], str],  # repr and str of a MemoryInfo
    format_info_html: Callable[[MemoryInfo], str],  # its _repr_html_
    notify: Callable[[], object],  # a call brings word that take_notices() would return something
) -> None: ...
def take_notices() -> str:
    """JSON: a list of {seconds, level, text} of what no call could be told of; forgotten then. "[]" in a forked child."""

def set_progress(callback: Callable[[str, str, int, int], object] | None, after: float, /) -> Callable[[str, str, int, int], object] | None:
    """callback(device, "spill" or "restore", bytes done, bytes in all) while a call moves memory for more than `after` seconds. The one before."""

def begin_moves(kind: str, nbytes: int, /) -> bool:
    """What this thread moves on one device, up to end_moves, is told as one move. False: nobody watches, or it is part of another one."""

def end_moves(device: _Device, /) -> None: ...
def get_progress() -> Callable[[str, str, int, int], object] | None: ...
def open_device(kind: str, ordinal: int, /) -> int:
    """Open (once) and return its index in this process. ValueError where there is none; the text lists what there is."""

def announce_device(index: int, /) -> None:
    """Its name is known to C from now on; until then every use of the name asks the resolver."""

def set_default_device(index: int | None, /) -> None: ...
def set_relief(index: int, relief: Callable[[], object] | None, /) -> None:
    """What the ladder calls (GIL held, no lock held) to empty a host framework's caches on this device."""

def device_names() -> list[str]:
    """Names by index of the devices opened so far; "numpy" is not among them."""

def device_name(index: int, /) -> str:
    """The name of an open device, "numpy" included."""

def check_memory(index: int, /) -> int:
    """The index; ValueError for the device "numpy", which has nothing but figures."""

def count_numpy(books: object, /) -> int:
    """The books of NumPy's arrays (a capsule of _numpy) become those of the device "numpy", once; returns its index."""

def forked() -> bool: ...
def attach_events(api: Any, /) -> None:
    """From now on the module _events, whose capsule this is, is told of device memory."""

@type_check_only
class _Memory:
    """What Buffer and BufferView have in common. There is no such class at run time: C gives both types the same methods (bindings/fast/access.c)."""
    @property
    def device_ptr(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def state(self) -> Literal["building", "resident", "spilling", "spilled", "restoring", "freed"]: ...
    @property
    def is_spilled(self) -> bool: ...
    @property
    def label(self) -> str | None: ...
    @label.setter
    def label(self, value: str | None) -> None: ...
    @property
    def origin(self) -> str | None: ...
    @property
    def origin_stack(self) -> tuple[str, ...] | None: ...
    @property
    def holds(self) -> dict[str, int]: ...  # reason -> count
    def copy_from_host(self, obj: _HostMemory, offset: int = 0) -> None: ...
    def copy_to_host(self, out: _HostMemory | None = None, offset: int = 0, nbytes: int | None = None) -> Any: ...
    def fill(self, value: int | bytes, offset: int = 0, nbytes: int | None = None) -> None: ...
    def copy_from(self, other: Buffer | BufferView, offset: int = 0, source_offset: int = 0, nbytes: int | None = None) -> None: ...
    def spill(self) -> int: ...
    def restore(self) -> None: ...
    def view(self, offset: int, nbytes: int) -> BufferView: ...
    def hold(self, reason: str = "hold") -> Hold: ...
    def export(self, reason: str = "export") -> Exported: ...
    def __reduce_ex__(self, protocol: SupportsIndex, /) -> tuple[Any, ...]: ...
    def __copy__(self) -> Buffer: ...
    def __deepcopy__(self, memo: dict[int, Any], /) -> Buffer: ...

@final
class Buffer(_Memory):
    """One block of device memory that tack_memory owns and counts."""
    def free(self) -> None: ...

@final
class BufferView(_Memory):
    """(base, offset, size): the same methods as Buffer; owns nothing, keeps its base alive. base is None for foreign memory."""
    @property
    def base(self) -> Buffer | None: ...
    @property
    def offset(self) -> int: ...
    @property
    def owner(self) -> object: ...

@final
class Hold:
    def __enter__(self) -> int: ...
    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None, /) -> None: ...

@final
class Exported:
    """Keeps its buffer on the device while it (or what it was given to) lives."""
    @property
    def device_ptr(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def buffer(self) -> Buffer | BufferView: ...
    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def close(self) -> None: ...

def allocate(
    nbytes: _Size, device: _Device = None, *, zero: bool = True, movable: bool = True, reason: str | None = None, label: str | None = None
) -> Buffer: ...
def receive(data: _HostMemory, device: _Device = None, *, label: str | None = None) -> Buffer: ...
def reserve(nbytes: _Size, device: _Device = None) -> Reservation: ...

@final
class Reservation:
    """Room within the budget; given to adopt, or dropped (then the room is given back)."""

    nbytes: int
    def close(self) -> None: ...

def adopt(
    ptr: int,
    nbytes: int,
    device: _Device = None,
    *,
    how: Literal["cuMemAlloc", "cuMemAllocAsync", "hipMalloc", "hipMallocAsync", "zeMemAllocDevice", "host"],
    stream: int | None = None,
    reserved: Reservation | None = None,
    movable: bool = True,
    reason: str | None = None,
    label: str | None = None,
    into: tuple[dict[str, Any], str] | None = None,
) -> Buffer: ...
def disown(buffer: Buffer, *, into: tuple[dict[str, Any], str] | None = None) -> int:
    """The opposite of adopt: makes it resident, forgets it, returns its pointer; the caller owns the memory again.

    into, of both: a dict and a key in which the Buffer, or the pointer, stands when the call returns. Ctrl-C may come before the caller has stored the result."""

def wrap(ptr: int, nbytes: int, device: _Device, owner: object) -> BufferView: ...
def make_room(nbytes: int, device: _Device = None, *, relieved: bool = False) -> int:
    """A host's own allocation of nbytes failed: spill at least that much. Bytes freed; 0 when nothing is left to spill.

    relieved: the host has collected garbage and emptied its caches for this already."""

def enter_launch(buffers: Sequence[Buffer | BufferView], /) -> bool:
    """The host's launch pass: all resident and held. Give the same sequence to leave_launch. True when something was restored."""

def leave_launch(buffers: Sequence[Buffer | BufferView], /) -> None: ...
def during_launch(buffers: Sequence[Buffer | BufferView], function: Callable[..., _Result], /, *args: Any, **named: Any) -> _Result:
    """Call the function, and return what it returns, while a launch on the buffers runs. One call of C: Ctrl-C cannot come in between and leave them held."""

@final
class launch:
    """`with launch(*buffers, stream=None) as pointers`: a tuple of ints; holds until the block ends."""
    def __new__(cls, *buffers: Buffer | BufferView, stream: int | None = None) -> Self: ...
    def __enter__(self) -> tuple[int, ...]: ...
    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None, /) -> None: ...

@final
class PointerSlot:
    """A data descriptor for host classes that keep a device pointer in an attribute.

    It is put on the host's buffer class in place of `_device_ptr`. The instance keeps our Buffer (or the host's own value, while there is no Buffer)
    in its `__dict__` (or slot) under `storage`. Reading returns the Buffer's device_ptr (restoring it, counting a use); assigning calls
    `adopt(instance, value)`, which returns the Buffer (or BufferView), or anything else to be kept and returned as it is; deleting drops it.
    """
    def __init__(self, storage: str, adopt: Callable[[Any, Any], object]) -> None: ...

@final
class HostArrayOwner:
    """What an array over a HostArray's memory has as its base: the memory stays in its place while this lives. It has the buffer protocol."""
    @property
    def buffer(self) -> Buffer | BufferView: ...

@final
class HostArray:
    """Memory that a host reads through arrays of its own (NumPy's): what a HostArraySlot keeps. Only on devices whose memory is the host's, too (cpu, sim-cpu, metal).

    `make(host_array, owner)` returns an array over the owner's memory whose base is the owner: `numpy.ndarray(shape, dtype, owner)`. The memory stays
    in its place while that array, or any view of it, lives. In a launch of the reading thread that has this memory among its arguments the array is kept
    for the next read; everywhere else each read makes one, with an export of the memory.
    """
    def __new__(cls, buffer: Buffer | BufferView, make: Callable[[HostArray, HostArrayOwner], Any], info: Any = None) -> Self: ...
    @property
    def buffer(self) -> Buffer | BufferView: ...
    @property
    def info(self) -> Any: ...
    @property
    def view(self) -> Any: ...  # the array that this launch has read; None outside a launch that holds the memory

@final
class HostArraySlot:
    """A data descriptor like PointerSlot, for host classes that keep an array over their memory in an attribute.

    The instance keeps a HostArray (or the host's own array, where the memory is not ours) in its `__dict__` under `storage`. Reading a HostArray gives an
    array whose memory stays in its place while that array lives, and anything else as it is; assigning calls `assign(instance, value)`, which returns
    what to keep; deleting drops it.
    """
    def __init__(self, storage: str, assign: Callable[[Any, Any], object]) -> None: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...
    def __set__(self, instance: Any, value: Any, /) -> None: ...
    def __delete__(self, instance: Any, /) -> None: ...

@final
class HostLaunch:
    """Stands in the place of a host's method that launches a kernel: `(backend, kernel, arguments, ...)`.

    The third argument (or the keyword `args` or `kernel_args`) is the sequence of the kernel's arguments; where the fourth (or `kwargs`) is a dict, its values are
    arguments, too. For each one that is an `array`, the Buffer, BufferView or HostArray in `argument.<buffer>.__dict__[storage]` is made resident, all in one pass,
    and held until `original` is through. `expand(argument)` is asked about all but arrays and plain scalars: it returns what they consist of, or None for a type that
    never has arrays (it is not asked about that type again). nested="skip": inside a HostLaunch with the same `array` on this thread, where the launches
    of this thread hold all the memory already, `original` is called straight.
    The buffers may be on several devices. settle() is called after the outermost launch of a thread has ended, when a device of its buffers is over its budget; no exception
    is set then, and an Exception that it raises is shown and forgotten.
    """
    def __new__(
        cls,
        original: Callable[..., Any],
        *,
        array: type,
        storage: str,
        buffer: str = "_buffer",
        expand: Callable[[Any], Sequence[Any] | None] | None = None,
        nested: Literal["hold", "skip"] = "hold",
        settle: Callable[[], object] | None = None,
    ) -> Self: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...

@final
class MemoryInfo(tuple[int | None, ...]):
    """A structure sequence: as a tuple the first six, all others as attributes only. Bytes; None: unknown, or no budget."""
    @property
    def in_use(self) -> int: ...
    @property
    def peak(self) -> int: ...
    @property
    def cached(self) -> int | None: ...
    @property
    def spilled(self) -> int: ...
    @property
    def device_free(self) -> int | None: ...
    @property
    def device_total(self) -> int | None: ...
    @property
    def device(self) -> str: ...
    @property
    def budget(self) -> int | None: ...
    @property
    def strict(self) -> bool: ...
    @property
    def footprint(self) -> int: ...
    @property
    def available(self) -> int | None: ...
    @property
    def reserved(self) -> int: ...
    @property
    def pending_free(self) -> int: ...
    @property
    def over_budget(self) -> int: ...
    @property
    def over_budget_count(self) -> int: ...
    @property
    def spill_count(self) -> int: ...
    @property
    def restore_count(self) -> int: ...
    @property
    def spilled_bytes(self) -> int: ...
    @property
    def restored_bytes(self) -> int: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def host_bytes(self) -> int | None: ...
    @property
    def driver_allocated(self) -> int | None: ...
    n_fields: int
    n_sequence_fields: int
    n_unnamed_fields: int
    def _repr_html_(self) -> str | None: ...

def memory_info(device: _Device = None) -> MemoryInfo: ...
def counters(device: _Device = None) -> tuple[int, int, int]:
    """(in_use, peak, spilled): no driver call, works in a forked child."""

def reset_peak_memory(device: _Device = None) -> None: ...

class PeakScope:
    """Base of tack_memory.MemoryPeak (which adds use as a decorator)."""
    def __init__(self, device: _Device = None, label: str | None = None, on_exit: Callable[[Any], object] | None = None) -> None: ...
    _asked: _Device  # the device argument as it was given; it is resolved when the scope is entered, not before
    on_exit: Callable[[Any], object] | None
    device: str
    label: str | None
    bytes: int
    start: int
    end: int | None
    delta: int
    footprint: int
    own: int
    own_end: int  # of own, what is alive on exit; while it is open: now
    spilled_bytes: int
    restored_bytes: int
    seconds: float
    by_device: dict[str, int]
    _figures: dict[str, dict[str, int]]  # of each open device: bytes, delta, footprint, own, own_end, end, spilled_bytes, restored_bytes
    _stack_at_peak: tuple[tuple[str, int, str], ...] | None  # file, line, function, innermost first; None: not noted, or it did not rise
    _stack_at_own: tuple[tuple[str, int, str], ...] | None
    _stack_at_footprint: tuple[tuple[str, int, str], ...] | None
    _at_peak_json: str | None  # a list of the fields of Holder
    def __enter__(self) -> Self: ...
    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None, /) -> None: ...
    def _note_stacks(self, until: CodeType | None, /) -> None:
        """From now on, note the Python stack at each rise of `bytes`, `own` and `footprint`, up to the frame of this code. Some microseconds a rise."""

def set_memory_budget(size: _Size | None, /, device: _Device = None, *, strict: bool = False) -> int | None: ...
def get_memory_budget(device: _Device = None) -> int | None: ...
def get_strict(device: _Device = None) -> bool: ...
def stream(device: _Device = None) -> int: ...
def set_stream(device: _Device, context: int, stream: int) -> None: ...
def synchronize(device: _Device = None) -> None: ...
def empty_cache(device: _Device = None) -> int: ...
def empty_host_pool() -> int: ...
def spill_all(device: _Device = None) -> int: ...
def spill_to_budget(device: _Device = None) -> int:
    """Spills at once what can be, until the device is within its budget; waits for no launch or hold. A soft budget may have been passed by what a launch held."""

def restore_all(device: _Device = None) -> None: ...

@final
class Labelled:
    """What label(name) returns: the block's allocations have this label."""
    def __enter__(self) -> None: ...
    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None, /) -> None: ...

def labelled(name: str | None, /) -> Labelled: ...
def still_open() -> dict[str, int]:
    """How many blocks are open now, in all threads, by what they are: peak scopes, launches and holds, labels."""

def instances_of(classes: tuple[type, ...], /) -> list[Any]:
    """The living objects of these classes and of classes below them, but for those that gc.freeze() has hidden."""

def set_origins(mode: Literal["off", "line", "stack"], /) -> Literal["off", "line", "stack"]: ...
def need_origins(mode: Literal["off", "line", "stack"], /) -> Literal["off", "line", "stack"]:
    """set_origins, unless more than this is recorded already ("stack" is more than "line"). Returns the mode before."""

def set_host_folders(folders: tuple[str, ...], /) -> None:
    """What code in these folders (each with its last slash) allocates has the name of its function for a label, while origins are recorded."""

def set_origin_skip(folders: tuple[str, ...], /) -> None:
    """Code in these folders (each with its last slash) is never an origin: its caller is. This package, and the machinery of host frameworks."""

def alive() -> list[Buffer]:
    """The live Buffers (weak registry walked under the GIL); for reports and uninstall."""
