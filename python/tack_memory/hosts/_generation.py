"""What the adapters of both generations of Tack have in common: plugging in step by step, and out again with nothing left behind."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from . import _features, _images, _names
from ._late_modules import LateModules
from ._patches import Patches
from ._protocol import HostAdapter, HostHasMemoryError, MissingSeamError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

    from ._counted_arrays import CountedBuffers
    from ._field_simulated import SimulatedBuffers
    from ._host_devices import HostDevices
    from ._images import ImagedBuffers

Seams = TypeVar("Seams")
"""The places of one host where we come in between."""

Buffers = TypeVar("Buffers", bound="ImagedBuffers")
"""What looks after its GPU buffers."""


class Generation(HostAdapter, Generic[Seams, Buffers]):
    """A host whose GPU buffers keep their pointer in an attribute. Subclasses say which seams it has, and what takes their place."""

    _buffers: Buffers  # set by subclasses, as the next one
    _devices: HostDevices

    @classmethod
    @abstractmethod
    def find_seams(cls, module: ModuleType) -> tuple[Seams | None, list[str]]:
        """The seams of a host; or None, and what is missing. Imports submodules of the host, changes nothing."""

    @classmethod
    def missing_seams(cls, module: ModuleType) -> list[str]:
        return cls.find_seams(module)[1]

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        seams, missing = self.find_seams(module)
        if seams is None:
            raise MissingSeamError(f"{module.__name__} lacks {', '.join(missing)}")
        self._seams = seams
        self._patches = Patches()
        self._late = LateModules(module.__name__)
        self._replaced: dict[Any, Any] = {}  # functions of the host and what stands in their place

    # ---- plugging in

    def attach(self, *, simulate: int | None = None, simulate_capacity: int | None = None, simulate_addresses: str | None = None) -> None:
        try:
            self._take_places(simulate, simulate_capacity, simulate_addresses)
            self._take_existing()
            for name, function in _names.functions(self).items():
                if not hasattr(self.module, name):
                    self._patches.put(self.module, name, function)
        except BaseException:
            self.detach()
            raise

    @abstractmethod
    def _take_places(self, simulate: int | None, simulate_capacity: int | None, simulate_addresses: str | None) -> None:
        """Put what is ours in the place of each seam, by `_patches`. What `attach` is given comes along."""

    @abstractmethod
    def _take_existing(self) -> None:
        """Adopt or count what the host made before us."""

    def _wrap(self, classes: Iterable[type], wrappers: Mapping[str, Callable[[Any], Any]]) -> None:
        """Put a wrapper around each of these methods, where a class has it."""
        for cls, name, original in _features.places(classes, wrappers):
            self._patches.put(cls, name, wrappers[name](original))

    def _refuse_second_layer(self, cls: type, attribute: str) -> None:
        base = _features.definer(cls, attribute)
        if base is not None:
            there = type(vars(base)[attribute]).__name__
            raise HostHasMemoryError(f"{base.__name__}.{attribute} is already a {there}: something else is plugged in to {self.name}")

    # ---- plugging out

    def detach(self) -> None:
        with self._late:
            self._detach()

    def _detach(self) -> None:
        disturbed = self._patches.disturbed()
        if disturbed:
            raise RuntimeError(f"cannot unplug from {self.name}: {', '.join(disturbed)} was replaced by somebody else after install; take that out first")
        self._give_memory_back()
        self._late.stop()
        self._patches.undo()
        _features.put_back_functions(self.module, self._replaced)
        self._devices.forget()

    def _give_memory_back(self) -> None:
        """What was adopted is the host's again, and nothing is counted any more."""
        self._buffers.give_all_back()
        self._buffers.counted.forget()
        for one in self._host_memory():
            one.give_back()

    @abstractmethod
    def _host_memory(self) -> Sequence[CountedBuffers | SimulatedBuffers]:
        """The buffers of backends whose memory is the host's, too."""

    # ---- texture images

    def _forget_images(self, address: int) -> None:
        _images.forget_images(self._devices.backends(), address)
