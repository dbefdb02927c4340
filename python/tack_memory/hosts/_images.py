"""Texture images that a host makes of an array and keeps under the array's address: that address must mean this array for as long as there is an image."""

from __future__ import annotations

from functools import wraps

from ._payloads import payload_parts
from ._pointer_buffers import PointerBuffers, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from .._native._fast import Exported
    from ._protocol import HostDevice

IMAGE = "_tack_memory_image"
"""Attribute of a host's buffer of which a texture image was made: our Pin."""

IMAGE_CACHES = ("_tex_cache", "_image_cache")
"""Where a backend, or a kernel that it compiled, keeps texture images: dicts whose keys begin with the address of the memory that they were made of."""


class Pin:
    """Keeps a host's buffer where it is, and forgets the images of it when it ends, which is before others can get the address."""

    __slots__ = ("_export", "_purge")

    def __init__(self, export: Exported, purge: Callable[[int], object]) -> None:
        self._export = export
        self._purge = purge

    def forget(self) -> None:
        self._purge(self._export.device_ptr)

    __del__ = forget


def forget_images(backends: Iterable[Any], address: int | None) -> None:
    """Take the images that were made of memory at this address out of the backends' caches; None: all images.

    What is allocated at that address later must not be taken for the memory that was there."""
    for backend in backends:
        for keeper in (backend, *payload_parts(backend)):
            for name in IMAGE_CACHES:
                images: dict[Any, Any] = getattr(keeper, name, {})
                for key in list(images):
                    if address is None or key[0] == address:
                        images.pop(key, None)


class ImagedBuffers(PointerBuffers):
    """Buffers of a host that keeps images of them under their addresses."""

    def __init__(self, device_of: Callable[[Any], HostDevice | None], purge: Callable[[int], object]) -> None:
        super().__init__(device_of)
        self._purge = purge  # of the texture images of an address

    def pin(self, buffer: Any) -> None:
        """Keep a buffer where it is from now on: the host caches the image that it makes of it under its address."""
        mine = ours(buffer)
        if mine is not None and IMAGE not in buffer.__dict__:
            buffer.__dict__[IMAGE] = Pin(mine.export("texture image"), self._purge)

    def finalizer(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        ended = super().finalizer(original)

        @wraps(original)
        def __del__(buffer: Any) -> None:
            # The images go with the buffer's __dict__. Of a reference cycle the pin may have ended already, and an image been made once more since.
            pin = buffer.__dict__.pop(IMAGE, None)
            if pin is not None:
                pin.forget()
            ended(buffer)

        return __del__

    def _give_back(self, buffers: Sequence[Any], wanted: str) -> None:
        """As for all; a buffer that only an image of it keeps in its place is given back, too, and its image is forgotten."""
        for buffer in buffers:
            buffer.__dict__.pop(IMAGE, None)  # made anew with the next image, where giving back fails
        super()._give_back(buffers, wanted)
