"""The file format of pprof (profile.proto of github.com/google/pprof): a protocol buffer, written by hand, and zipped. `go tool pprof FILE` opens it."""

from __future__ import annotations

import gzip
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Frame(NamedTuple):
    """A place in a program."""

    name: str  # of the function
    file: str
    line: int


class Profile:
    """A profile that is being made: samples are added, then `to_bytes` ends it.

    Parameters
    ----------
    samples : sequence of (str, str)
        What each sample has, and its unit: ("live", "bytes").
    default : str
        Which of them is shown unless another one is asked for.
    comment : str
        What `pprof -comments` prints.
    """

    def __init__(self, samples: Iterable[tuple[str, str]], default: str, comment: str) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str], int] = {}
        self._lines: dict[tuple[int, int], int] = {}
        self._out = bytearray()
        for name, unit in samples:
            self._out += _message(1, _number(1, self._text(name)) + _number(2, self._text(unit)))
        self._end = _number(13, self._text(comment)) + _number(14, self._text(default))

    def add(self, stack: Iterable[Frame], values: Iterable[int], labels: Mapping[str, str]) -> None:
        """A sample: its frames, the innermost first, and a value for each of the profile's kinds. Labels that are empty are left out."""
        locations = []
        for frame in stack:
            function = self._functions.setdefault((frame.name, frame.file), len(self._functions) + 1)
            locations.append(self._lines.setdefault((function, frame.line), len(self._lines) + 1))
        told = b"".join(_message(3, _number(1, self._text(name)) + _number(2, self._text(value))) for name, value in labels.items() if value)
        self._out += _message(2, _packed(1, locations) + _packed(2, values) + told)

    def to_bytes(self, time_ns: int, duration_ns: int = 0) -> bytes:
        """The file's content. `time_ns`: when it was, since 1970."""
        out = self._out
        for (function, line), location in self._lines.items():
            out += _message(4, _number(1, location) + _message(4, _number(1, function) + _number(2, line)))
        for (name, file), function in self._functions.items():
            out += _message(5, _number(1, function) + _number(2, self._text(name)) + _number(3, self._text(name)) + _number(4, self._text(file)))
        out += _number(9, time_ns) + (_number(10, duration_ns) if duration_ns else b"") + self._end
        for value in self._texts:  # last: all are there now
            out += _message(6, value.encode("utf-8", "backslashreplace"))
        return gzip.compress(bytes(out))

    def _text(self, value: str) -> int:
        return self._texts.setdefault(value, len(self._texts))


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # negative numbers are their two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(map(_varint, values)))
