"""What a host's backends keep for kernels that they compiled: the variants of each kernel, and in them buffers for scalars and texture images."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


def payload_parts(backend: Any) -> Iterator[Any]:
    """The parts of all variants' payloads."""
    for variants in list(getattr(backend, "_cache", {}).values()):
        for variant in list(variants.values()):
            payload = variant.payload
            yield from payload if isinstance(payload, (tuple, list)) else (payload,)


def pack_buffers(backends: Iterable[Any], array: Any) -> set[int]:
    """The host's buffers (by id) in which it packs the scalars of launches: lists of arrays in the payloads."""
    packs = (part for backend in backends for part in payload_parts(backend) if isinstance(part, list))
    return {id(one._buffer) for pack in packs for one in pack if isinstance(one, array)}
