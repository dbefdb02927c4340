"""Hosts in the shape of Tack's array generation, modelled on its plan.

Each buffer of such a host keeps its pointer in `_device_ptr`. A PointerSlot takes that attribute's place on the class, and the
instance's `__dict__["_device_ptr"]` holds our Buffer (or BufferView) in place of the number. A number there means: not ours (yet).
`_array_seams` lists what is needed of a host, `_array_buffers` and `_array_launches` have what takes its place.
"""

from __future__ import annotations

import gc
import os
from _thread import RLock

from .._devices import resolve
from .._logging import logger
from .._native import SIM_LIBRARIES, _fast, sim_library_path
from . import _array_launches, _array_seams, _names
from ._array_buffers import Buffers, ours
from ._array_seams import POINTER
from ._patches import Patches
from ._protocol import HostAdapter, HostDevice, HostHasMemoryError, MissingSeamError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, ClassVar

    from .._native._fast import Buffer, BufferView

_EXPORTED_BEFORE = "exported before install"


class ArrayGeneration(HostAdapter):
    """A host with arrays (`lang.array`), GPU backends (`runtime.backend`) and one buffer class a vendor."""

    shape: ClassVar[str] = "array generation"

    @classmethod
    def missing_seams(cls, module: ModuleType) -> list[str]:
        return _array_seams.find(module)[1]

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        seams, missing = _array_seams.find(module)
        if seams is None:
            raise MissingSeamError(f"{module.__name__} lacks {', '.join(missing)}")
        self._seams = seams
        self._patches = Patches()
        self._buffers = Buffers(self._device_of_backend)
        self._lock = RLock()  # guards _devices; nothing of the host is called under it but plain attributes
        self._devices: dict[int, tuple[Any, HostDevice]] = {}  # id of a backend -> itself (so that the id stays its own), what it told

    @property
    def memory_error(self) -> type[BaseException]:
        return self._seams.memory_error

    # ---- plugging in

    def attach(self, *, simulate: Any = None, simulate_capacity: Any = None) -> None:
        self._refuse_second_layer()
        try:
            self._patch_buffers()
            self._patch_backends()
            self._patch_functions()
            self._adopt_existing()
            for name, function in _names.functions(self).items():
                if not hasattr(self.module, name):
                    self._patches.put(self.module, name, function)
        except BaseException:
            self.detach()
            raise

    def _refuse_second_layer(self) -> None:
        own = [name for name in _names.OWN_ACCOUNTING if hasattr(self.module, name)]
        if own:
            raise HostHasMemoryError(f"{self.name} has {' and '.join(own)} of its own: it is never given a second spiller")
        for cls in self._seams.buffers:
            base = _array_seams.definer(cls, POINTER)
            if base is not None:
                there = type(vars(base)[POINTER]).__name__
                raise HostHasMemoryError(f"{base.__name__}.{POINTER} is already a {there}: something else is plugged in to {self.name}")

    def _patch_buffers(self) -> None:
        wrappers = {
            "__init__": self._buffers.initializer,
            "__del__": self._buffers.finalizer,
            "to_numpy": self._buffers.reader,
            "read_range": self._buffers.range_reader,
            "from_numpy": self._buffers.writer,
            "fill_bytes": self._buffers.filler,
            "copy_from": _array_launches.copier,
        }
        for cls, name, original in _array_seams.places(self._seams.buffers, wrappers):
            self._patches.put(cls, name, wrappers[name](original))
        for cls in self._seams.buffers:
            self._patches.put(cls, POINTER, self._buffers.slot())

    def _patch_backends(self) -> None:
        thread, array = self._buffers.thread, self._seams.array
        wrappers = {
            "execute": lambda original: _array_launches.executor(original, array),
            "reduce": lambda original: _array_launches.reducer(original, thread),
            "wrap_ptr": self._buffers.wrapper_of_foreign,
        }
        for cls, name, original in _array_seams.places(self._seams.backends, wrappers):
            self._patches.put(cls, name, wrappers[name](original))

    def _patch_functions(self) -> None:
        allocate, to_dlpack = self._seams.allocate, self._seams.to_dlpack
        replaced = {
            allocate: _array_launches.allocator(allocate, self._buffers.thread, self._device_of_backend, self.memory_error),
            to_dlpack: _array_launches.exporter(to_dlpack),
        }
        # Every module that has the function under some name: "from x import y" makes another reference.
        for module in _array_seams.modules(self.module):
            for name, value in list(vars(module).items()):
                for original, replacement in replaced.items():
                    if value is original:
                        self._patches.put(module, name, replacement)

    def _adopt_existing(self) -> None:
        """Adopt what the host made before us. What is exported already stays where it is: its consumer keeps a pointer."""
        exported = {id(getattr(part, "_buffer", None)) for entry in list(self._seams.exported.values()) for part in entry}
        classes = tuple(self._seams.buffers)
        existing = [one for one in gc.get_objects() if issubclass(type(one), classes) and POINTER in one.__dict__]
        for buffer in existing:
            held = id(buffer) in exported
            try:
                self._buffers.adopt(buffer, movable=not held, reason=_EXPORTED_BEFORE if held else None)
            except ValueError as error:  # its range overlaps memory that is known already, so it cannot be this buffer's own
                logger().warning("%s: %d bytes at %#x are not counted: %s", self.name, buffer._nbytes, buffer._device_ptr, error)
        for buffer in existing:
            if not getattr(buffer, "_owned", True):
                self._buffers.wrap(buffer)

    def detach(self) -> None:
        disturbed = self._patches.disturbed()
        if disturbed:
            raise RuntimeError(f"cannot unplug from {self.name}: {', '.join(disturbed)} was replaced by somebody else after install; take that out first")
        self._give_back()
        self._patches.undo()
        with self._lock:
            devices, self._devices = self._devices, {}
        for _, device in devices.values():
            _fast.set_relief(resolve(device.name), None)
            _fast.set_stream(device.name, 0, 0)

    def _give_back(self) -> None:
        """Every buffer's memory is the host's again, on the device. All or none."""
        gc.collect()  # garbage need not come back to the device
        views: list[tuple[Any, BufferView]] = []
        done: dict[int, tuple[Any, int]] = {}  # id of our Buffer -> the host's buffer, its pointer
        try:
            for buffer in self._buffers.adopted():
                mine = ours(buffer)
                if isinstance(mine, _fast.BufferView):
                    views.append((buffer, mine))
                elif mine is not None:
                    done[id(mine)] = buffer, _fast.disown(mine)
                    self._buffers.give_back(*done[id(mine)])
        except BaseException:
            for buffer, _ in done.values():
                self._buffers.adopt(buffer)
            raise
        for buffer, view in views:
            base = done.get(id(view.base))
            self._buffers.give_back(buffer, view.device_ptr if base is None else base[1] + view.offset)

    # ---- what the rest of the package asks

    def current_device(self) -> str:
        return self._device_of_backend(self._seams.current_backend()).name

    def own_device(self, obj: object) -> str | None:
        backend = getattr(obj, "backend", None)
        return self._device_of_backend(backend).name if isinstance(backend, self._seams.backends) else None

    def own_name(self, name: str) -> str:
        kind, _, ordinal = name.partition(":")
        for backend, device in list(self._devices.values()):
            used = device.name.partition(":")[0]
            if backend.name == kind and used in SIM_LIBRARIES:
                return f"{used}:{ordinal or self.current_device().partition(':')[2]}"
        return name

    def buffers_of(self, array: object) -> list[Buffer | BufferView] | None:
        buffer = getattr(array, "_buffer", None)
        if not isinstance(buffer, tuple(self._seams.buffers)):
            return None
        mine = ours(buffer)
        return [] if mine is None else [mine]

    # ---- the host's devices

    def _device_of_backend(self, backend: Any) -> HostDevice:
        known = self._devices.get(id(backend))
        if known is not None:
            return known[1]
        with self._lock:
            known = self._devices.get(id(backend))
            if known is None:
                device = self._ask(backend)
                index = resolve(device.name)
                _fast.set_stream(device.name, device.context, device.stream)
                _fast.set_relief(index, device.empty_cache)
                known = self._devices[id(backend)] = backend, device
        return known[1]

    def _ask(self, backend: Any) -> HostDevice:
        """What a backend tells of its device."""
        lacking = [name for name in ("ordinal", "context", "stream", "has_pools") if not hasattr(backend, name)]
        if lacking:
            raise MissingSeamError(f"{type(backend).__name__} has no attribute {', '.join(lacking)}")
        vendor = next((vendor for vendor in self._seams.buffers.values() if vendor.kind == backend.name), None)
        if vendor is None:
            raise MissingSeamError(f"{type(backend).__name__}.name is {backend.name!r}, which is no vendor that is known")
        kind = _kind_on_library(vendor.kind, getattr(getattr(backend, "driver", None), "library", None))
        how = vendor.with_pools if backend.has_pools else vendor.without_pools
        return HostDevice(f"{kind}:{backend.ordinal}", backend.context, backend.stream, how, backend.empty_cache)


def _kind_on_library(kind: str, library: str | None) -> str:
    """The kind of device in our words, from the driver library that the host loaded (None: the system's).

    A pointer can only be adopted by the very library that it came from."""
    if library is None:
        return kind
    for simulated in SIM_LIBRARIES:
        if os.path.realpath(library) == os.path.realpath(sim_library_path(simulated)):
            return simulated
    switch = f"TACK_MEMORY_{kind.upper()}_LIBRARY"
    if os.path.realpath(library) != os.path.realpath(os.environ.get(switch, "")):
        raise MissingSeamError(f"the host runs on the driver {library}, and tack_memory does not: set {switch} to the same path")
    return kind
