"""Hosts in the shape of Tack's field generation (0.1 to 0.4): fields, one buffer class a vendor, and backends that are imported late.

`_field_seams` lists what is needed of a host. The GPU buffers keep their pointer in an attribute (`_pointer_buffers`, `_field_buffers`); those of the CPU
backend keep a NumPy array, which is only counted (`_counted_arrays`), or lies on a simulated device (`_field_simulated`).
"""

from __future__ import annotations

from functools import partial

from .._logging import warning
from .._native import SIM_LIBRARIES, _fast
from . import _ablation, _counted, _features, _field_buffers, _field_launches, _field_seams, _holds, _host_access, _images, _pointer_buffers
from ._counted_arrays import CountedBuffers
from ._field_simulated import SimulatedBuffers
from ._generation import Generation
from ._host_devices import HostDevices
from ._library import kind_on_library
from ._payloads import pack_buffers
from ._pointer_buffers import POINTER
from ._protocol import HostDevice, MissingSeamError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, ClassVar

    from .._native._fast import Buffer, BufferView
    from ._field_seams import Vendor

_EXPORTED_BEFORE = "exported before install"


class FieldGeneration(Generation[_field_seams.Seams, _field_buffers.GPUBuffers]):
    """A host with fields (`lang.field`), and backends of which one is current (`runtime.dispatch`)."""

    shape: ClassVar[str] = "field generation"
    simulates: ClassVar[bool] = True
    _buffers: _field_buffers.GPUBuffers

    @classmethod
    def find_seams(cls, module: ModuleType) -> tuple[_field_seams.Seams | None, list[str]]:
        return _field_seams.find(module)

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self._buffers = _field_buffers.GPUBuffers(self._device_of_buffer, self._forget_images)
        self._cpu: CountedBuffers | SimulatedBuffers | None = None
        self._metal: CountedBuffers | None = None
        self._classes: dict[type, Vendor] = {}  # the GPU buffer classes that are patched
        self._exportable: set[type] = set()  # the classes of memory that the host can share
        dispatch = self._seams.dispatch
        self._devices = HostDevices(self._ask, lambda: dispatch._current_backend, self._buffers.leave_backend)

    @property
    def memory_error(self) -> type[BaseException] | None:
        return None  # hosts of this shape have no error of their own for this

    # ---- plugging in

    def _take_places(self, simulate: int | None, simulate_capacity: int | None, simulate_addresses: str | None) -> None:
        seams = self._seams
        if simulate is None and simulate_capacity is None:
            self._cpu = CountedBuffers(seams.numpy_buffer, _field_seams.DATA, "cpu", base_is_foreign=True)
        else:
            from ._simulate import configure

            self.simulated = configure(simulate, simulate_capacity, simulate_addresses)
            self._cpu = SimulatedBuffers(seams.numpy_buffer, self.simulated)
            self._patch_numpy_buffer(self._cpu)
        self._patch_functions()
        self._late.watch(_field_seams.CPU_MODULE, self._cpu_came)
        self._late.watch(_field_seams.METAL_MODULE, self._metal_came)
        for vendor in _field_seams.VENDORS:
            self._late.watch(vendor.module, partial(self._vendor_came, vendor))

    def _patch_functions(self) -> None:
        seams = self._seams
        if _ablation.wanted("dlpack"):
            self._replaced[seams.to_dlpack] = _holds.exporter(seams.to_dlpack, self._movable)
        if _ablation.wanted("pack"):
            self._replaced[seams.create_pack_fields] = self._buffers.unmovable(seams.create_pack_fields, "scalar pack")
        _features.replace_functions(self._patches, self.module, self._replaced)

    def _patch_numpy_buffer(self, simulated: SimulatedBuffers) -> None:
        cls = self._seams.numpy_buffer
        self._refuse_second_layer(cls, _field_seams.DATA)
        wrappers = {"__init__": simulated.initializer, "to_numpy": simulated.reader, "from_numpy": simulated.writer, "fill": simulated.filler}
        self._wrap((cls,), wrappers)
        size = next((vars(base)["nbytes"] for base in cls.__mro__ if isinstance(vars(base).get("nbytes"), property)), None)
        if size is not None:
            self._patches.put(cls, "nbytes", simulated.size(size))
        self._patches.put(cls, _field_seams.DATA, simulated.slot())

    def _cpu_came(self, module: ModuleType) -> None:
        backend, missing = _field_seams.backend_seams(module, _field_seams.CPU_BACKEND, _field_seams.CPU_METHODS)
        if backend is None or missing:
            raise MissingSeamError(f"{self.name} lacks {', '.join(missing)}")
        cpu = self._cpu
        if isinstance(cpu, CountedBuffers):
            self._wrap((backend,), {"allocate_field": cpu.allocator})
        elif cpu is not None:
            wrappers: dict[str, Callable[[Any], Any]] = {"allocate_field": cpu.allocator, "wrap_ptr": cpu.wrapper_of_foreign}
            if _ablation.wanted("launch"):
                wrappers["execute"] = lambda original: self._launch(original, _field_seams.DATA, settle=cpu.settle)
            if _ablation.wanted("dispatch"):
                wrappers["_dispatch"] = lambda original: self._launch(original, _field_seams.DATA, settle=cpu.settle, nested="skip")
            self._wrap((backend,), wrappers)

    def _metal_came(self, module: ModuleType) -> None:
        backend, missing = _field_seams.backend_seams(module, _field_seams.METAL_BACKEND, ("allocate_field",))
        buffer = vars(module).get(_field_seams.METAL_BUFFER)
        if backend is None or missing or not isinstance(buffer, type):
            raise MissingSeamError(f"{self.name} lacks {', '.join(missing or [f'{module.__name__}.{_field_seams.METAL_BUFFER}'])}")
        self._metal = CountedBuffers(buffer, _field_seams.METAL_VIEW, _field_seams.METAL_DEVICE, base_is_foreign=False)
        self._wrap((backend,), {"allocate_field": self._metal.allocator})

    def _vendor_came(self, vendor: Vendor, module: ModuleType) -> None:
        backend, missing = _field_seams.backend_seams(module, vendor.backend, _field_seams.GPU_METHODS)
        buffer, missing_of_buffer = _field_seams.buffer_seams(module, vendor.buffer)
        missing += missing_of_buffer
        if backend is None or buffer is None or missing:
            raise MissingSeamError(f"{self.name} lacks {', '.join(missing)}")
        self._refuse_second_layer(buffer, POINTER)
        buffers, ours = self._buffers, _pointer_buffers.ours
        wrappers: dict[str, Callable[[Any], Any]] = {
            "__init__": buffers.initializer,
            "__del__": buffers.finalizer,
            "to_numpy": lambda original: _host_access.reader(_holds.holder(original, ours)),
            "from_numpy": lambda original: _host_access.writer(_holds.holder(original, ours)),
            "fill": _host_access.filler,
            "read_range": lambda original: _host_access.range_reader(_holds.holder(original, ours)),
            "_copy_to_device": lambda original: _holds.holder(original, ours),
            "_copy_from_device": lambda original: _holds.holder(original, ours),
        }
        if _ablation.wanted("export"):
            wrappers["export_memory"] = lambda original: _holds.holder(original, ours)
        self._wrap((buffer,), wrappers)
        exportable = vars(module).get(_field_seams.EXPORTABLE)
        if isinstance(exportable, type):
            self._wrap((exportable,), {"__init__": buffers.export_initializer, "__del__": _counted.finalizer})
            self._exportable.add(exportable)
        self._patches.put(buffer, POINTER, buffers.slot() if vendor.pointer_is_number else buffers.typed_slot())
        self._classes[buffer] = vendor
        self._wrap((backend,), self._backend_wrappers())

    def _backend_wrappers(self) -> dict[str, Callable[[Any], Any]]:
        buffers, device_of = self._buffers, self._device_of_backend
        pin = self._buffers.pin if _ablation.wanted("image") else None
        wrappers: dict[str, Callable[[Any], Any]] = {
            "allocate_field": lambda original: buffers.allocator(original, device_of),
            "wrap_ptr": buffers.wrapper_of_foreign,
        }
        if _ablation.wanted("launch"):
            wrappers["execute"] = lambda original: self._launch(original, POINTER, pin)

        def reducer(original: Any) -> Any:
            with_room = buffers.with_room_for_result(original, device_of)
            return _holds.reducer(with_room, buffers.thread, _pointer_buffers.ours) if _ablation.wanted("reduce") else with_room

        wrappers["reduce_field"] = reducer
        return wrappers

    def _launch(self, original: Any, storage: str, pin: Callable[[Any], object] | None = None, **options: Any) -> Any:
        """What stands in the place of a function that launches: all arrays are resident and held before the host reads any address."""
        expand = _field_launches.expander(self._seams.field, self._seams.texture, pin)
        return _fast.HostLaunch(original, array=self._seams.field, storage=storage, expand=expand, **options)

    def _take_existing(self) -> None:
        """Adopt what the host made before us. What is exported already stays where it is: its consumer keeps a pointer."""
        parts = [part for entry in list(self._seams.exported.values()) for part in entry]
        exported = {id(part._buffer): part._buffer for part in parts if isinstance(part, self._seams.field)}
        left: list[Any] = []
        if isinstance(self._cpu, SimulatedBuffers):
            left += self._cpu.take_existing(exported.values())
        elif self._cpu is not None:
            left += self._cpu.count_existing()
        if self._metal is not None:
            left += self._metal.count_existing()
        if self._classes:
            left += self._adopt_existing(set(exported))
        if left:
            nbytes = sum(one.nbytes for one in left)
            warning("%s: %d arrays older than install, of %d bytes together, are not counted: others have their memory", self.name, len(left), nbytes)

    def _adopt_existing(self, exported: set[int]) -> list[Any]:
        """Adopt GPU buffers; returns those whose range overlaps memory that is known already, so that it cannot be their own."""
        classes, exportable = tuple(self._classes), tuple(self._exportable)
        objects = _features.instances((*classes, *exportable))
        existing = [one for one in objects if issubclass(type(one), classes) and POINTER in one.__dict__]
        backend = self._seams.dispatch._current_backend
        if backend is not None and self._vendor_of(backend) is not None:
            self._device_of_backend(backend)
        for buffer in [one for one in objects if issubclass(type(one), exportable) and POINTER in one.__dict__]:
            self._buffers.count_exportable(buffer)
        packs = pack_buffers(self._devices.backends(), self._seams.field)
        left = self._buffers.adopt_all(existing, lambda one: _EXPORTED_BEFORE if id(one) in exported else "scalar pack" if id(one) in packs else None)
        _images.forget_images(self._devices.backends(), None)
        return left

    # ---- plugging out

    def _detach(self) -> None:
        super()._detach()
        if self.simulated is not None:
            _fast.set_memory_budget(None, self.simulated)
            self.simulated = None

    def _give_memory_back(self) -> None:
        if isinstance(self._cpu, SimulatedBuffers):
            self._cpu.check_nothing_in_use()
        super()._give_memory_back()

    def _host_memory(self) -> list[CountedBuffers | SimulatedBuffers]:
        return [one for one in (self._cpu, self._metal) if one is not None]

    # ---- what the rest of the package asks

    def current_device(self) -> str:
        backend = self._seams.dispatch._current_backend
        return self._cpu_device() if backend is None else self._name_of_backend(backend)

    def own_device(self, obj: object) -> str | None:
        known = any(obj is backend for backend, _ in self._devices.all()) or obj is self._seams.dispatch._current_backend
        return self._name_of_backend(obj) if known and obj is not None else None

    def own_name(self, name: str) -> str:
        kind, _, ordinal = name.partition(":")
        if kind == "cpu":
            return self._cpu_device()
        for backend, device in self._devices.all():
            used = device.name.partition(":")[0]
            if backend.name == kind and used in SIM_LIBRARIES:
                return f"{used}:{ordinal or device.name.partition(':')[2]}"
        return name

    def buffers_of(self, array: object) -> list[Buffer | BufferView] | None:
        if isinstance(array, self._seams.texture):
            fields = [value for value in vars(array).values() if isinstance(value, self._seams.field)]
            return [mine for field in fields for mine in self.buffers_of(field) or ()]
        buffer = getattr(array, "_buffer", None)
        if not isinstance(array, self._seams.field) or not isinstance(buffer, self._seams.device_buffer):
            return None
        mine = self._movable(buffer) or _counted.count_of(buffer)
        return [] if mine is None else [mine]

    def _movable(self, buffer: Any) -> Buffer | BufferView | None:
        """Our Buffer in a host's buffer, where it is more than a count."""
        mine = _pointer_buffers.ours(buffer)
        if mine is None and isinstance(self._cpu, SimulatedBuffers):
            mine = self._cpu.of(buffer)
        return mine

    # ---- the host's devices

    def _cpu_device(self) -> str:
        return self.simulated or "cpu"

    def _vendor_of(self, backend: Any) -> Vendor | None:
        return next((vendor for vendor in _field_seams.VENDORS if vendor.kind == backend.name), None)

    def _name_of_backend(self, backend: Any) -> str:
        if self._vendor_of(backend) is not None:
            return self._device_of_backend(backend).name
        return _field_seams.METAL_DEVICE if backend.name == "metal" else self._cpu_device()

    def _device_of_buffer(self, buffer: Any) -> HostDevice | None:
        """The device of a GPU buffer. Most classes do not say which backend theirs is: it is that of the call which makes them, else the current
        one, else the only one of its kind."""
        kind = next((vendor.kind for cls, vendor in self._classes.items() if isinstance(buffer, cls)), None)
        if kind is None:
            kind = "cuda"  # the one vendor whose exportable memory is a class of its own
        for backend in (getattr(buffer, "_backend", None), self._buffers.thread.backend, self._seams.dispatch._current_backend):
            if backend is not None and backend.name == kind:
                return self._device_of_backend(backend)
        of_kind = [device for backend, device in self._devices.all() if backend.name == kind]
        return of_kind[0] if len({device.name for device in of_kind}) == 1 else None

    def _device_of_backend(self, backend: Any) -> HostDevice:
        return self._devices.of(backend)

    def _ask(self, backend: Any) -> HostDevice:
        """What a backend tells of its device. Hosts of this shape use one device of a vendor: the first, or the one that was current."""
        vendor = self._vendor_of(backend)
        if vendor is None:
            raise MissingSeamError(f"{type(backend).__name__}.name is {backend.name!r}, which is no vendor that is known")
        needed = [name for name in (vendor.stream, "_device") if isinstance(name, str) and not hasattr(backend, name)]
        if needed:
            raise MissingSeamError(f"{type(backend).__name__} has no attribute {', '.join(needed)}")
        kind = kind_on_library(vendor.kind, getattr(getattr(backend, "driver", None), "library", None))
        ordinal = int(backend._device) if vendor.device_is_number else 0  # Level Zero's is a handle, of the first device
        context = _pointer_buffers.address_of(getattr(backend, "_context", None))
        stream = vendor.stream if isinstance(vendor.stream, int) else _pointer_buffers.address_of(getattr(backend, vendor.stream))
        return HostDevice(f"{kind}:{ordinal}", context, stream, vendor.how, None)
