"""What the file of a report must have in it. Whatever passes here can be printed, drawn and compared; what does not is refused when it is read."""

from __future__ import annotations

from ._report import INFO_FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 2**63
"""Figures are below it: bytes, numbers of times, and nanoseconds, which as a date are of the year 2262."""


class Figure:
    """A whole number that is not negative: bytes, times, or nanoseconds."""

    says = "a whole number that is neither negative nor beyond 64 bits"

    @staticmethod
    def fits(value: object) -> bool:
        """Python takes True for 1; JSON does not."""
        return type(value) is int and 0 <= value < MOST


class Text:
    """A label, a place, a cause."""

    says = "a text"

    @staticmethod
    def fits(value: object) -> bool:
        """JSON has no other."""
        return type(value) is str


class Switch:
    """What is so, or not."""

    says = "true or false"

    @staticmethod
    def fits(value: object) -> bool:
        """Nothing else counts as one."""
        return type(value) is bool


class Maybe:
    """What may be null, for unknown or none."""

    def __init__(self, of: Any) -> None:
        self.of = of


PLACE = {"label": Maybe(Text), "origin": Maybe(Text), "stack": Maybe([Text])}
HOLDER = {**PLACE, "device": Text, "bytes": Figure, "resident": Figure, "spilled": Figure, "count": Figure, "holds": Text}
INFO: dict[str, Any] = {
    **dict.fromkeys(INFO_FIELDS, Maybe(Figure)),
    **dict.fromkeys(("in_use", "peak", "spilled", "spill_count", "restore_count"), Figure),
    "device": Text,
    "strict": Maybe(Switch),
}
REPORT = {
    "device": Text,
    "time_ns": Maybe(Figure),
    "info": INFO,
    "holders": [HOLDER],
    "at_peak": Maybe({"bytes": Figure, "spilled": Figure, "time_ns": Figure, "holders": [HOLDER]}),
    "spilled": Figure,
    "spills": [
        {
            **PLACE, "bytes": Figure, "nbytes": Figure, "count": Figure, "restores": Figure, "out_ns": Figure, "still_out": Figure, "cause": Text,
            "by_label": Maybe(Text), "by_origin": Maybe(Text), "by_stack": Maybe([Text]), "by_nbytes": Maybe(Figure), "last_ns": Figure,
        }
    ],
    "spills_lost": Maybe(Figure),
    "thrashing": Maybe(
        {"rounds": Figure, "bytes": Figure, "since_ns": Figure, "holders": [{**PLACE, "spills": Figure, "restores": Figure, "bytes": Figure}]}
    ),
    "cached": Maybe(Figure),
    "host_pool": Maybe({"used": Maybe(Figure), "pooled": Maybe(Figure)}),
    "origins": Maybe(Text),
}  # fmt: skip
"""What may be null may be absent, too, and other keys, of a newer version, are let be. `holds` has reasons for keys."""


def check(told: dict[str, Any]) -> None:
    """Raise a ValueError that names the first thing that cannot be of a report."""
    _check(told, REPORT, "")
    holds = told.get("holds")
    if not isinstance(holds, dict):
        raise ValueError("holds must be an object")
    for reason, nbytes in holds.items():
        _check(nbytes, Figure, f"holds.{reason}")


def _check(value: Any, kind: Any, where: str) -> None:
    if isinstance(kind, Maybe):
        if value is None:
            return
        kind = kind.of
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be an object")
        for key, of in kind.items():
            name = f"{where}.{key}" if where else key
            if key in value:
                _check(value[key], of, name)
            elif not isinstance(of, Maybe):
                raise ValueError(f"{name} is missing")
    elif isinstance(kind, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list")
        for number, one in enumerate(value):
            _check(one, kind[0], f"{where}[{number}]")
    elif not kind.fits(value):
        raise ValueError(f"{where} must be {kind.says}")
