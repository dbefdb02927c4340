"""Hosts in the shape of Tack's array generation, modelled on its plan.

Each buffer of such a host keeps its pointer in `_device_ptr`. A PointerSlot takes that attribute's place on the class, and the
instance's `__dict__["_device_ptr"]` holds our Buffer (or BufferView) in place of the number. A number there means: not ours (yet).
`_array_seams` lists what is needed of a host, and what it may have beside that; `_array_buffers`, `_array_launches`, `_host_access`, `_holds`, `_handed_out`
and `_images` have what takes its place. Backends whose memory is the host's are only counted (`_counted_arrays`).
"""

from __future__ import annotations

from functools import partial, wraps

from .._logging import warning
from .._native import SIM_LIBRARIES
from . import _ablation, _array_launches, _array_seams, _counted, _features, _handed_out, _holds, _host_access, _images
from ._array_buffers import ArrayBuffers
from ._attributes import attributes_of
from ._counted_arrays import CountedBuffers
from ._generation import Generation
from ._host_caches import HostCaches
from ._host_devices import HostDevices
from ._library import kind_on_library
from ._payloads import pack_buffers
from ._pointer_buffers import POINTER, address_of, ours
from ._protocol import HostDevice, MissingSeamError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any, ClassVar

    from .._native._fast import Buffer, BufferView

_EXPORTED_BEFORE = "exported before install"
_SHARED_BEFORE = "shared before install"
_PERHAPS_MPI = "older than install: may be for mpi"


class ArrayGeneration(Generation[_array_seams.Seams, ArrayBuffers]):
    """A host with arrays (`lang.array`), GPU backends (`runtime.backend`) and one buffer class a vendor."""

    shape: ClassVar[str] = "array generation"

    _buffers: ArrayBuffers

    @classmethod
    def find_seams(cls, module: ModuleType) -> tuple[_array_seams.Seams | None, list[str]]:
        return _array_seams.find(module)

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self._extras = _array_seams.extras(module)
        self._buffers = ArrayBuffers(lambda buffer: self._device_of_backend(buffer._backend), self._forget_images)
        self._counted = {one.kind: CountedBuffers(cls, one.array, one.device, base_is_foreign=one.base_is_foreign) for cls, one in self._extras.counted.items()}
        self._caches = HostCaches()
        self._devices = HostDevices(self._ask, self._seams.current_backend, self._buffers.leave_backend)

    @property
    def memory_error(self) -> type[BaseException]:
        return self._seams.memory_error

    # ---- plugging in

    def _take_places(self, simulate: int | None, simulate_capacity: int | None, simulate_addresses: str | None) -> None:
        for cls in self._seams.buffers:
            self._refuse_second_layer(cls, POINTER)
        self._patch_buffers()
        self._patch_backends()
        self._patch_images()
        self._patch_functions()
        for path in _array_seams.MPI_MODULES:
            self._late.watch(path, self._mpi_came)

    def _patch_buffers(self) -> None:
        wrappers: dict[str, Callable[[Any], Any]] = {
            "__init__": self._buffers.initializer,
            "__del__": self._buffers.finalizer,
            "to_numpy": _host_access.reader,
            "read_range": _host_access.range_reader,
            "from_numpy": _host_access.writer,
            "write_range": _host_access.range_writer,
            "fill_bytes": _host_access.byte_filler,
        }
        if _ablation.wanted("copy"):
            for name in ("copy_from", *_array_seams.EXTRA_COPIES):
                wrappers[name] = lambda original: _holds.holder(original, ours)
        if _ablation.wanted("share"):
            for name in _array_seams.HANDS_OUT:
                wrappers[name] = partial(_handed_out.hander, reason=name)
        self._wrap(self._seams.buffers, wrappers)
        for cls in self._seams.buffers:
            self._patches.put(cls, POINTER, self._buffers.slot())

    def _patch_backends(self) -> None:
        thread, array, textures = self._buffers.thread, self._seams.array, self._extras.textures
        wrappers: dict[str, Callable[[Any], Any]] = {"wrap_ptr": self._buffers.wrapper_of_foreign, "create_texture_image": self._image_maker}
        if _ablation.wanted("launch"):
            wrappers["execute"] = lambda original: _array_launches.launcher(original, array, textures, self._buffers.pin)
        if _ablation.wanted("reduce"):
            wrappers["reduce"] = lambda original: _holds.reducer(original, thread, ours)
        if _ablation.wanted("mpi"):
            wrappers[_array_seams.ALLOCATES_FOR_MPI] = self._mpi_allocator
        self._wrap(self._seams.backends, wrappers)

    def _patch_images(self) -> None:
        self._wrap(self._extras.counted, {"__del__": _counted.finalizer})
        wrappers: dict[str, Callable[[Any], Any]] = {"__del__": _counted.finalizer}
        if _ablation.wanted("upload"):
            wrappers["upload"] = _array_launches.uploader
        self._wrap(self._extras.images, wrappers)

    def _patch_functions(self) -> None:
        to_dlpack = self._seams.to_dlpack
        self._replaced[self._seams.allocate] = self._allocator(self._seams.allocate)
        if _ablation.wanted("dlpack"):
            self._replaced[to_dlpack] = _holds.exporter(to_dlpack, ours)
        if _ablation.wanted("pack"):
            self._replaced.update({packer: self._buffers.unmovable(packer, "scalar pack") for packer in self._extras.packers})
        if _ablation.wanted("mpi"):
            self._replaced.update({one: self._mpi_allocator(one) for one in _array_seams.functions(self.module, _array_seams.ALLOCATES_FOR_MPI)})
        _features.replace_functions(self._patches, self.module, self._replaced)

    def _mpi_came(self, module: ModuleType) -> None:
        """A module for MPI was imported after us."""
        new = {one: self._mpi_allocator(one) for one in _array_seams.functions(module, _array_seams.ALLOCATES_FOR_MPI) if not hasattr(one, "__wrapped__")}
        if _ablation.wanted("mpi") and new:
            self._replaced.update(new)
            _features.replace_functions(self._patches, self.module, new)

    def _allocator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        counting = {kind: counted.allocator(original) for kind, counted in self._counted.items()}
        allocate = _array_launches.allocator(original, self._buffers.thread, self._seams.current_backend, self._device_of_backend, self.memory_error, counting)

        @wraps(original)
        def _allocate(*args: Any, **named: Any) -> Any:
            result = allocate(*args, **named)
            self.refresh()  # the host's cache may have given what it kept
            return result

        return _allocate

    def _mpi_allocator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Memory for MPI, which gets its address: it is counted, and stays the host's (which may allocate it by another call, since MPI libraries cannot
        share what comes from a stream's pool)."""
        counted = self._buffers.only_counted(original, "mpi")
        return _array_launches.allocator_beside(counted, self._buffers.thread, self._device_in, self.memory_error)

    def _image_maker(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The memory of a texture image, be it the driver's own, which is counted, or that of a private array: it stays where it is."""
        allocate = self._buffers.unmovable(original, "texture image")
        allocate = _array_launches.allocator_beside(allocate, self._buffers.thread, self._device_in, self.memory_error)

        @wraps(original)
        def create_texture_image(backend: Any, *args: Any, **named: Any) -> Any:
            image = allocate(backend, *args, **named)
            self._count_image(image, self._device_of_backend(backend).name)
            return image

        return create_texture_image

    def _count_image(self, image: Any, device: str) -> None:
        if isinstance(image, self._extras.images):
            self._buffers.counted.count(image, address_of(image.__dict__.get(POINTER)), getattr(image, "_nbytes", 0), device, "texture image")

    def _take_existing(self) -> None:
        """Adopt or count what the host made before us. What others have the address of stays where it is, and so does what they may have it of."""
        exported = {id(getattr(part, "_buffer", None)) for entry in list(self._seams.exported.values()) for part in entry}
        classes, images = tuple(self._seams.buffers), tuple(self._extras.images)
        objects = _features.instances((*classes, *images))
        existing = [one for one in objects if issubclass(type(one), classes) and POINTER in one.__dict__]
        backends = list({id(one._backend): one._backend for one in existing}.values())
        packs = pack_buffers(backends, self._seams.array)
        for_mpi = {id(one): _array_seams.is_for_mpi(one) for one in existing} if _ablation.wanted("mpi") else {}
        # Buffers that do not tell: where others do, these are none of MPI's.
        nobody_tells = not any(told is not None for told in for_mpi.values()) and _array_seams.allocates_for_mpi(self.module, self._seams.backends)

        def reason(buffer: Any) -> str | None:
            if id(buffer) in exported:
                return _EXPORTED_BEFORE
            if id(buffer) in packs:
                return "scalar pack"
            if getattr(buffer, _array_seams.SHARED_MARK, False) is True:
                return _SHARED_BEFORE
            return _PERHAPS_MPI if nobody_tells and id(buffer) in for_mpi else None

        for buffer in [one for one in existing if for_mpi.get(id(one))]:
            self._count_for_mpi(buffer)
        left = self._buffers.adopt_all([one for one in existing if not for_mpi.get(id(one))], reason)
        for image in [one for one in objects if issubclass(type(one), images)]:
            self._count_image(image, self._device_of_backend(image._backend).name)
        for counted in self._counted.values():
            left += counted.count_existing()
        for buffer in left:
            warning("%s: an array of %d bytes is not counted: its memory is known already as part of another one", self.name, buffer._nbytes)
        _images.forget_images(backends, None)
        self.refresh()

    def _count_for_mpi(self, buffer: Any) -> None:
        if getattr(buffer, "_owned", True):
            self._buffers.counted.count(buffer, address_of(buffer.__dict__[POINTER]), buffer._nbytes, self._device_of_backend(buffer._backend).name, "mpi")

    # ---- plugging out

    def _give_memory_back(self) -> None:
        super()._give_memory_back()
        self._caches.forget()

    def _host_memory(self) -> list[CountedBuffers]:
        return list(self._counted.values())

    # ---- what the rest of the package asks

    def current_device(self) -> str:
        return self._device_of_backend(self._seams.current_backend()).name

    def own_device(self, obj: object) -> str | None:
        backend = getattr(obj, "backend", None)
        known = isinstance(backend, self._seams.backends) or getattr(backend, "name", None) in self._counted  # the CPU's is no GPU backend
        return self._device_of_backend(backend).name if known else None

    def own_name(self, name: str) -> str:
        kind, _, ordinal = name.partition(":")
        if not any(backend.name == kind for backend, _ in self._devices.all()):
            current = self._seams.current_backend()
            if current.name == kind:
                self._device_of_backend(current)
        for backend, device in self._devices.all():
            used = device.name.partition(":")[0]
            if backend.name == kind and used in SIM_LIBRARIES:
                return f"{used}:{ordinal or self.current_device().partition(':')[2]}"
        return name

    def buffers_of(self, array: object) -> list[Buffer | BufferView] | None:
        if isinstance(array, self._extras.textures):
            held = attributes_of(array) or ()
            return [mine for one in held if isinstance(one, self._seams.array) for mine in self.buffers_of(one) or ()]
        buffer = getattr(array, "_buffer", None)
        if not isinstance(buffer, (*self._seams.buffers, *self._extras.counted)):
            return None
        mine = ours(buffer) or _counted.count_of(buffer)
        return [] if mine is None else [mine]

    def refresh(self) -> None:
        for backend, device in self._devices.all():
            self._caches.tell(backend, device.name)

    # ---- the host's devices

    def _device_of_backend(self, backend: Any) -> HostDevice:
        device = self._devices.known(backend)
        if device is None:
            device = self._devices.of(backend)
            self._caches.tell(backend, device.name)
        return device

    def _ask(self, backend: Any) -> HostDevice:
        """What a backend tells of its device."""
        only_counted = self._counted.get(backend.name)
        if only_counted is not None:
            return HostDevice(only_counted.device, 0, 0, "host", None)
        lacking = [name for name in ("ordinal", "context", "stream", "has_pools") if not hasattr(backend, name)]
        if lacking:
            raise MissingSeamError(f"{type(backend).__name__} has no attribute {', '.join(lacking)}")
        vendor = next((vendor for vendor in self._seams.buffers.values() if vendor.kind == backend.name), None)
        if vendor is None:
            raise MissingSeamError(f"{type(backend).__name__}.name is {backend.name!r}, which is no vendor that is known")
        kind = kind_on_library(vendor.kind, getattr(getattr(backend, "driver", None), "library", None))
        how = vendor.with_pools if backend.has_pools else vendor.without_pools
        name = f"{kind}:{backend.ordinal}"

        def empty_cache() -> None:
            backend.empty_cache()
            self._caches.tell(backend, name)

        return HostDevice(name, backend.context, backend.stream, how, empty_cache)

    def _device_in(self, arguments: Mapping[str, Any]) -> str:
        """The device that a call's arguments name; the host's current one where they name none."""
        for name in ("backend", "self"):
            if isinstance(arguments.get(name), self._seams.backends):
                return self._device_of_backend(arguments[name]).name
        device = arguments.get("device")
        if device is None:
            return self.current_device()
        return self.own_device(device) or self.own_name(str(device))
