"""Sizes: what a user may write, and how bytes are written for people.

The rules are those of the public contract, "Rules for all of it": a size is an int of bytes or a whole string with a unit. They are
parsed by hand, since importing `re` would cost more than the rest of this package's Python.
"""

from __future__ import annotations

from operator import index as _index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsIndex

    Size = SupportsIndex | str

LIMIT = 2**63  # sizes are signed 64-bit integers everywhere below Python

_UNITS = {
    "b": 1,
    "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
_PREFIXES = {"k": "k", "m": "M", "g": "G", "t": "T"}
_DIGITS = frozenset("0123456789")
_EXAMPLES = 'write an int of bytes, or a string such as "24 MiB", "1.5GB" or "80%"'
_COMMA = '; write the decimal point as ".", and "_" or nothing between groups of digits'
_ABSOLUTE = 'write an int of bytes, or a string such as "24 MiB" or "1.5GB"'  # where there is nothing to take a share of


def parse_size(size: object, total: Callable[[], int | None] | None = None, *, of: str = "the device") -> int:
    """Return a size in bytes.

    Parameters
    ----------
    size : int or str
        Bytes, or a string: a decimal number and a unit (B, kB, MB, GB, TB = powers of 1000; KiB, MiB, GiB, TiB = powers of 1024; any
        case), or a percentage. A string without a unit is a whole number of bytes. Fractions of a byte are cut off.
    total : callable, optional
        Returns what 100 % is, in bytes, or None where that is unknown; it is called for a percentage, and to advise none where none is possible.
        Without it the size is no share of anything: a percentage is a ValueError.
    of : str
        What a percentage is a share of, for the error message.

    Raises
    ------
    TypeError
        For bool, float and whatever else is neither an int nor a string.
    ValueError
        For a string that is not a size, a negative size, one of 2**63 bytes or more, a percentage above 100, and one of an unknown total.
    """
    if isinstance(size, str):
        return _checked(_parse_text(size, total, of), size)
    if isinstance(size, bool):
        raise TypeError(f"a size cannot be the bool {size}; {_examples(total)}")
    try:
        nbytes = _index(size)  # type: ignore[arg-type]  # whatever is no integer raises
    except TypeError:
        raise TypeError(_not_a_size(size, total)) from None
    return _checked(nbytes, size)


def format_bytes(nbytes: int | None) -> str:
    """Bytes for people, in IEC units: "512 B", "24 MiB", "1.46 GiB"; "unknown" for None."""
    if nbytes is None:
        return "unknown"
    if nbytes < 0:
        return "-" + format_bytes(-nbytes)
    if nbytes < 1024:
        return f"{nbytes} B"
    value = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if value < 999.5 or unit == "PiB":
            break
    text = f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {unit}"


def format_seconds(seconds: float) -> str:
    """ "12 ns", "3.4 ms", "2 min 5 s"."""
    for unit, size in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * size:
            return f"{seconds / size:.3g} {unit}"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _examples(total: Callable[[], int | None] | None) -> str:
    """What to write instead: never a percentage where the next error would be that there is nothing to take a share of."""
    return _ABSOLUTE if total is None or total() is None else _EXAMPLES


def _not_a_size(size: object, total: Callable[[], int | None] | None) -> str:
    examples = _examples(total)
    if isinstance(size, float):
        if 0 < size < 1 and examples is _EXAMPLES:
            return f'a size cannot be the float {size!r}; for a share of the device write "{size * 100:g}%"'
        if 1 <= size < 1e6:
            return f'a size cannot be the float {size!r}; with a unit it is a string, for example "{size:g} GB"'
        if 1e6 <= size < LIMIT:
            unit, scale = ("GB", 1e9) if size >= 1e9 else ("MB", 1e6)
            return f'a size cannot be the float {size!r}; write an int of bytes, or "{size / scale:g} {unit}"'
        return f"a size cannot be the float {size!r}; {examples.replace('24 MiB', '8 GB')}"
    return f"a size cannot be of type {type(size).__name__}; {examples}"


def _checked(nbytes: int, size: object) -> int:
    if nbytes < 0:
        raise ValueError(f"a size cannot be negative: {size!r}")
    if nbytes >= LIMIT:
        raise ValueError(f"a size must be below 2**63 bytes (8 EiB): {size!r}")
    return nbytes


def _parse_text(text: str, total: Callable[[], int | None] | None, of: str) -> int:
    body = text.strip()
    if body.startswith(("-", "\N{MINUS SIGN}")):
        raise ValueError(f"a size cannot be negative: {text!r}")
    end = 0
    while end < len(body) and (body[end] in _DIGITS or body[end] in "._"):
        end += 1
    number, unit = body[:end], body[end:].strip()
    digits, scale = _parse_number(number, text, total)
    if unit == "%":
        if total is None:
            raise ValueError(f"{text!r}: a percentage is not possible here; {_ABSOLUTE}")
        if digits > 100 * scale:
            raise ValueError(f"{text!r} is more than all: a percentage is from 0% to 100% of the total memory of {of}")
        whole = total()
        if whole is None:
            raise ValueError(f"{text!r} is a share of the total memory of {of}, which is unknown; {_ABSOLUTE}")
        return digits * whole // (scale * 100)
    lower = unit.lower()
    if not unit or lower == "b":
        if digits % scale:
            raise ValueError(f"{text!r} is a fraction of a byte; did you forget the unit? {_examples(total)}")
        return digits // scale
    if lower in _UNITS:
        return digits * _UNITS[lower] // scale
    if lower in _PREFIXES or (len(lower) == 2 and lower[1] == "i" and lower[0] in _PREFIXES):
        prefix = _PREFIXES[lower[0]]
        decimal, binary = digits * _UNITS[lower[0] + "b"] // scale, digits * _UNITS[lower[0] + "ib"] // scale
        raise ValueError(
            f'{text!r} can be read in two ways: "{number} {prefix}B" ({decimal:,} bytes) or "{number} {prefix}iB" ({binary:,} bytes); write one of them'
        )
    what = _COMMA if unit.startswith(",") else f": unknown unit {unit!r}"
    raise ValueError(f"{text!r} is not a size{what}; {_examples(total)}")


def _parse_number(number: str, text: str, total: Callable[[], int | None] | None) -> tuple[int, int]:
    """Return (digits, scale): the number is digits / scale, exactly."""
    whole, dot, fraction = number.partition(".")
    if not (whole or fraction) or not _is_digits(whole) or not _is_digits(fraction):
        hint = _COMMA if "," in text else ""
        raise ValueError(f"{text!r} is not a size{hint}; {_examples(total)}")
    if len(number) > 100:
        raise ValueError(f"{text[:40]!r}... is not a size: too many digits; {_examples(total)}")
    return int((whole + fraction).replace("_", "")), 10 ** len(fraction.replace("_", ""))


def _is_digits(part: str) -> bool:
    """Digits with single underscores between them, as in Python; or nothing."""
    return not part or (part[0] != "_" and part[-1] != "_" and "__" not in part and "." not in part)
