"""Minihost's modules of the same name, and what this host has beside them."""

from minihost import lang as _minihosts

__path__ = [*__path__, *_minihosts.__path__]
