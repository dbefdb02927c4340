"""A figure of all ranks: the least, the most, and the sum; and how rows of ranks are shown."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from .._sizes import format_bytes

Number = TypeVar("Number", int, float)

MOST_ROWS = 40
"""Rows of ranks that a table shows; `rows` has all."""


@dataclass(frozen=True, slots=True)
class Figure(Generic[Number]):
    """One figure over all ranks. Where no rank knows it, all but `known` are None.

    Attributes
    ----------
    minimum, maximum : int or float or None
        The least and the most, of the ranks that know it.
    minimum_rank, maximum_rank : int or None
        The ranks that have them; the lowest, where several have.
    sum : int or float or None
        Of the ranks that know it. What several ranks tell of one device that they share counts once (free and total memory of the device): then it is the
        lowest rank's.
    known : int
        How many ranks know it.
    """

    minimum: Number | None
    maximum: Number | None
    sum: Number | None
    minimum_rank: int | None
    maximum_rank: int | None
    known: int

    @classmethod
    def of(cls, values: Sequence[Number | None], shared: Sequence[Hashable] | None = None) -> Figure[Number]:
        """Of all ranks' values. `shared` says for each rank of what it is: equal ones count once in the sum."""
        known = [(value, rank) for rank, value in enumerate(values) if value is not None]
        if not known:
            return cls(None, None, None, None, None, 0)
        least, most = min(known), max(known, key=lambda one: (one[0], -one[1]))
        whose: dict[Hashable, Any] = {rank if shared is None else shared[rank]: value for value, rank in reversed(known)}
        total: Any = sum(whose.values())  # of the numbers' own type, whatever type checkers make of sum's 0
        return cls(least[0], most[0], total, least[1], most[1], len(known))

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values."""
        return asdict(self)


def size(nbytes: int | None) -> str:
    """For a cell."""
    return "-" if nbytes is None else format_bytes(nbytes)


def summary(figures: Sequence[Figure[int] | None], ranks: int, counts: Sequence[bool]) -> list[list[str]]:
    """The last lines of a table: minimum, maximum and sum, each with the rank, and "known" where not all ranks know."""

    def cell(value: int | None, rank: int | None, count: bool) -> str:
        if value is None:
            return "-"
        text = str(value) if count else format_bytes(value)
        return text if rank is None else f"{text} ({rank})"

    pairs = list(zip(figures, counts, strict=True))
    lines = [
        ["minimum (rank)", *("" if one is None else cell(one.minimum, one.minimum_rank, count) for one, count in pairs)],
        ["maximum (rank)", *("" if one is None else cell(one.maximum, one.maximum_rank, count) for one, count in pairs)],
        ["sum", *("" if one is None else cell(one.sum, None, count) for one, count in pairs)],
    ]
    if any(one is not None and 0 < one.known < ranks for one, _ in pairs):
        lines.append([f"known by, of {ranks}", *("" if one is None else str(one.known) for one, _ in pairs)])
    return lines


def text_table(heads: Sequence[str], lines: Sequence[Sequence[str]], last: Sequence[Sequence[str]], left: int) -> str:
    """Aligned, so many columns to the left; `last` are the lines below the rule."""
    shown = lines[:MOST_ROWS]
    widths = [max(len(line[column]) for line in (heads, *shown, *last)) for column in range(len(heads))]

    def aligned(line: Sequence[str]) -> str:
        cells = (cell.ljust(width) if place < left else cell.rjust(width) for place, (cell, width) in enumerate(zip(line, widths, strict=True)))
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    more = [f"... and {len(lines) - MOST_ROWS} more ranks"] if len(lines) > MOST_ROWS else []
    return "\n".join([aligned(heads), rule, *map(aligned, shown), *more, rule, *map(aligned, last)])


def html_table(heads: Sequence[str], lines: Sequence[Sequence[str]], last: Sequence[Sequence[str]], left: int, notes: Sequence[str]) -> str:
    """For notebooks."""
    from .._cards import card, text

    def row(cells: Sequence[str], tag: str) -> str:
        kinds = [' class="tm-name"'] * left + [""] * (len(cells) - left)
        return "<tr>" + "".join(f"<{tag}{kind}>{text(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True)) + "</tr>"

    body = "".join(row(line, "td") for line in lines[:MOST_ROWS])
    if len(lines) > MOST_ROWS:
        body += f'<tr><td class="tm-name" colspan="{len(heads)}">... and {len(lines) - MOST_ROWS} more ranks</td></tr>'
    body += "".join(row(line, "th") for line in last)
    warnings = "".join(f'<div class="tm-warn">{text(note)}</div>' for note in notes)
    return card(f'<div class="tm-scroll"><table class="tm-table"><thead>{row(heads, "th")}</thead><tbody>{body}</tbody></table></div>', warnings)
