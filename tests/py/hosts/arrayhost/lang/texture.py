"""Textures: an array of three dimensions that kernels read through an image of it."""

from .array import array


class Texture3D:
    """An argument for kernels. The image is made at the first launch, and kept by the backend."""

    def __init__(self, source: array) -> None:
        if source.ndim != 3:
            raise ValueError(f"a texture has 3 dimensions, not {source.ndim}")
        self.source = source
