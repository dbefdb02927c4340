"""A report by line as a profile of pprof: its protocol buffer (profile.proto of github.com/google/pprof), written by hand, and zipped."""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._track_report import Report

SAMPLES = (("live", "bytes"), ("peak", "bytes"), ("allocations", "count"), ("total", "bytes"))
"""What each sample has, and its unit; `peak` is what was live at the peak."""


def profile(report: Report) -> bytes:
    """The bytes of the file."""
    texts: dict[str, int] = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    lines: dict[tuple[int, int], int] = {}
    out = bytearray()

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    for name, unit in SAMPLES:
        out += _message(1, _number(1, text(name)) + _number(2, text(unit)))
    for row in report.rows:
        # pprof adds up what has one function's name, so that has the line of what is in no function
        name = row.function if row.function not in (None, "<module>") else row.name
        function = functions.setdefault((name or "", row.file or ""), len(functions) + 1)
        location = lines.setdefault((function, row.line or 0), len(lines) + 1)
        label = _message(3, _number(1, text("device")) + _number(2, text(row.device)))
        values = (row.live, row.at_peak or 0, row.allocations or 0, row.total or 0)
        out += _message(2, _packed(1, [location]) + _packed(2, values) + label)
    for (function, line), location in lines.items():
        out += _message(4, _number(1, location) + _message(4, _number(1, function) + _number(2, line)))
    for (name, file), function in functions.items():
        out += _message(5, _number(1, function) + _number(2, text(name)) + _number(3, text(name)) + _number(4, text(file)))
    out += _number(9, time.time_ns()) + _number(10, int(report.seconds * 1e9))
    comment, default = text("array memory by line"), text("peak")
    out += _number(13, comment) + _number(14, default)
    for value in texts:  # last: all are there now
        out += _message(6, value.encode("utf-8", "backslashreplace"))
    return gzip.compress(bytes(out))


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
