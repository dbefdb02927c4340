"""What a host adapter must tell, and what it gets: the contract for those who write another one.

A host tells, for each of its devices (`HostDevice`): kind and ordinal, context and stream, how it allocates, and how to empty its
caches. An adapter (`HostAdapter`) recognises a shape of hosts by its features, and puts itself between the host and its memory:

1. *Allocation.* Reserve room (`_fast.reserve`) before the host allocates; when the host's own allocation fails, make room
   (`_fast.make_room`) and try again while there is progress, and once more when there is none: what was dropped is back by then. Once
   the host's buffer is fully built, adopt its pointer (`_fast.adopt`).
   Not earlier: until then host code uses the pointer without a hold, and another thread may spill what is adopted.
2. *Pointers.* Put a `_fast.PointerSlot` in place of the attribute that keeps the pointer, or a `_fast.HostArraySlot` in place of one that keeps a NumPy
   array over host memory. Whatever reads it gets one that is valid now: code nobody foresaw is slow at worst.
3. *Launches.* Put a `_fast.HostLaunch` in place of the function that launches, before anything of a launch reads an address. Around native reductions
   and copies on the device: `_fast.during_launch(buffers, function, ...)`. Two reads one after the other are not enough, since restoring the second
   buffer may spill the first. (`_fast.enter_launch` and a `try` let a signal come in between, and leave the buffers held.)
4. *Host access.* Reads and writes by the host go to `Buffer.copy_to_host`, `copy_from_host` and `fill`: they work on the host copy of a
   spilled buffer and bring nothing back.
5. *Memory handed out.* `Buffer.export` for as long as somebody else has the pointer. Memory that somebody else owns: `_fast.wrap`.
6. *Destructors.* Dropping our Buffer frees the memory; the host's own free must not run.
7. *Devices that never spill* (the CPU, Metal). Adopt with how="host": the memory is counted as long as our Buffer lives, and the host goes on
   freeing it, after that. On Metal the address is that of the MTLBuffer's contents, and what the host's own pool keeps is told with
   `call("SetHostCache", index, nbytes)` whenever it changes: nobody else can know.

docs/hosts.md has the seams of the hosts that are known, the kinds of holds, and how to write another adapter. What hosts of different shapes need alike is
in modules of its own: `_pointer_buffers`, `_host_access`, `_holds`, `_room`, `_features`, `_library`, `_patches`, `_names`.

An adapter gets the locks' order from this: a host's own locks may be held when it is called, and it calls the host (caches, garbage
collection) with no lock of ours held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import index
from typing import NamedTuple

from .._devices import from_ordinal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import ClassVar, Literal, SupportsIndex

    How = Literal["cuMemAlloc", "cuMemAllocAsync", "hipMalloc", "hipMallocAsync", "zeMemAllocDevice", "host"]

    from .._native._fast import Buffer, BufferView


class MissingSeamError(RuntimeError):
    """A host has not the shape of any that is known; the text names what is missing."""

    __module__ = "tack_memory"  # what a traceback calls it


class HostHasMemoryError(RuntimeError):
    """A host counts and spills by itself, or something else is plugged into it: a second spiller is never added."""

    __module__ = "tack_memory"  # what a traceback calls it


class HostDevice(NamedTuple):
    """One device of a host, as the host tells."""

    name: str
    """In our words: "cuda:0"; "sim:0" where the host runs on the software driver."""
    context: int
    """Handle of the driver's context; 0 where the vendor has none."""
    stream: int
    """Handle of the stream on which the host does everything."""
    how: How
    """The driver's call that it allocates with, as `adopt` takes it: "cuMemAllocAsync"."""
    empty_cache: Callable[[], object] | None
    """Waits for the device and gives back what the host's caches keep; None: it has none. Called with no lock of ours held."""


class CurrentDevice:
    """Stands for a host's current device, or for what a host means by an ordinal or a kind ("cuda"); looked up when it is used."""

    __slots__ = ("asked", "host")

    def __init__(self, host: HostAdapter, asked: SupportsIndex | str | None = None) -> None:
        self.host = host
        self.asked = asked

    def name(self) -> str:
        """The device's name in our words, as it is now; a kind that the host is not on stays a kind."""
        current = self.host.current_device()
        if self.asked is None:
            return current
        if not isinstance(self.asked, str):
            return from_ordinal(index(self.asked), current)
        name = self.host.own_name(self.asked)
        return current if name == current.partition(":")[0] else name


class HostAdapter(ABC):
    """One plugged-in host. Subclasses know one shape of hosts.

    Made by `install`, and registered with the rest of the package before `attach`. Apart from `attach` and `detach`, which run one at a
    time, everything may be called from any thread.
    """

    shape: ClassVar[str]
    """What hosts of this shape are called in errors: "array generation"."""
    machinery: ClassVar[tuple[str, ...]] = ("lang", "runtime")
    """Submodules of the host that allocate on behalf of others: a line in them is never where an array comes from (`set_origins`)."""
    simulates: ClassVar[bool] = False
    """Whether `simulate` is understood: the host has a CPU backend that can be put on a simulated device."""
    simulated: str | None = None
    """The device on which the CPU backend computes while the host is attached with `simulate`."""

    @classmethod
    @abstractmethod
    def missing_seams(cls, module: ModuleType) -> list[str]:
        """What this shape needs and the host lacks, by name; an empty list: the host has this shape. Changes nothing."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    @property
    def name(self) -> str:
        """The host's name, for people."""
        return self.module.__name__

    @property
    @abstractmethod
    def memory_error(self) -> type[BaseException] | None:
        """The host's own out-of-memory error: ours are instances of it, too."""

    @abstractmethod
    def attach(self, *, simulate: int | None = None, simulate_capacity: int | None = None, simulate_addresses: str | None = None) -> None:
        """Plug in. On an error nothing has changed.

        Where `simulates` is True, either size (in bytes) puts the CPU backend on a simulated device, with that soft budget, of that
        capacity: see `install`."""

    @abstractmethod
    def detach(self) -> None:
        """Undo `attach`. On an error the host stays plugged in and no array is lost. Where a signal ends it on the way, it is called again for the rest."""

    @abstractmethod
    def current_device(self) -> str:
        """The device that the host uses now, in our words."""

    def device_of(self, obj: object) -> str | None:
        """The name of one of the host's device objects, in our words; None: not one of them."""
        if isinstance(obj, CurrentDevice):
            return obj.name() if obj.host is self else None
        return self.own_device(obj)

    def refresh(self) -> None:
        """Figures are going to be shown through the host's names: tell what the rest of the package cannot know by itself (`SetHostCache`)."""
        return

    @abstractmethod
    def own_device(self, obj: object) -> str | None:
        """The name of one of the host's own device objects, in our words; None: not one of them."""

    @abstractmethod
    def own_name(self, name: str) -> str:
        """A device name as the host writes it ("cuda:0") in our words ("sim:0", where the host runs on the software driver)."""

    @abstractmethod
    def buffers_of(self, array: object) -> list[Buffer | BufferView] | None:
        """The buffers that an array lies in (none for an array without memory of ours); None: not an array of this host."""
