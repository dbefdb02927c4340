"""The version, in its one place: the package's metadata and the Go library's Version() are made from it."""

__version__ = "0.1.0"
