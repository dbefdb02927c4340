"""What changed between two reports: for leaks."""

from __future__ import annotations

from typing import NamedTuple

from ._errors import name_of
from ._holders import by_line
from ._report import MemoryReport, write_text
from ._sizes import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO


class Change(NamedTuple):
    """What one place held in the first report, and in the second: bytes on the device and spilled, together."""

    label: str | None
    origin: str | None
    before: int
    after: int
    count_before: int
    count_after: int

    @property
    def bytes(self) -> int:
        """By how much it grew; negative where it shrank."""
        return self.after - self.before

    @property
    def buffers(self) -> int:
        """How many buffers more it has."""
        return self.count_after - self.count_before

    @property
    def kind(self) -> str:
        """ "new", "grew", "shrank", "gone", or "other" where only the number of buffers changed."""
        if not self.count_before:
            return "new"
        if not self.count_after:
            return "gone"
        return "grew" if self.bytes > 0 else "shrank" if self.bytes < 0 else "other"

    @property
    def name(self) -> str:
        """Label and origin in one piece, for people."""
        return name_of(self.label, self.origin)


class ReportDiff:
    """What changed from one report to a later one, by label and origin: `before.diff(after)`.

    Attributes
    ----------
    before, after : MemoryReport
        The two.
    changes : list of Change
        What holds more or less, or another number of buffers, than before; what grew most first, what shrank most last.
    bytes : int
        By how much all of it grew (on the device and spilled, together); negative where it shrank.
    """

    __slots__ = ("after", "before", "bytes", "changes")

    def __init__(self, before: MemoryReport, after: MemoryReport) -> None:
        if not isinstance(after, MemoryReport):
            raise TypeError(f"a report is compared with another MemoryReport, not with {type(after).__name__}")
        self.before: MemoryReport = before
        self.after: MemoryReport = after
        old, new = by_line(before.holders), by_line(after.holders)
        changes = []
        for key in old.keys() | new.keys():
            one, other = old.get(key), new.get(key)
            counts = one.count if one else 0, other.count if other else 0
            change = Change(*key, one.bytes if one else 0, other.bytes if other else 0, *counts)
            if change.bytes or change.buffers:
                changes.append(change)
        self.changes: list[Change] = sorted(changes, key=lambda change: (-change.bytes, -change.buffers, change.name))
        self.bytes: int = sum(change.bytes for change in changes)

    @property
    def grew(self) -> list[Change]:
        """What holds more than before, or is new; what grew most first."""
        return [change for change in self.changes if change.bytes > 0]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values (ints of bytes), fit for JSON."""
        return {
            "device": self.after.device,
            "before": {"in_use": self.before.info.in_use, "spilled": self.before.info.spilled, "time_ns": round(self.before.seconds * 1e9)},
            "after": {"in_use": self.after.info.in_use, "spilled": self.after.info.spilled, "time_ns": round(self.after.seconds * 1e9)},
            "bytes": self.bytes,
            "changes": [{**change._asdict(), "bytes": change.bytes, "buffers": change.buffers, "kind": change.kind} for change in self.changes],
        }

    def print(self, file: TextIO | None = None) -> None:
        """Write it as text, to `file` or to the standard output.

        Raises
        ------
        TypeError
            `file` is no open text file.
        """
        write_text(str(self), file)

    def __str__(self) -> str:
        lines = [self._head()]
        if self.changes:
            lines.append(f"{'change':>11} {'buffers':>8} {'before':>10} {'after':>10}  {'':6}  holder")
        for change in self.changes:
            sizes = f"{signed(change.bytes):>11} {change.buffers:>+8,} {format_bytes(change.before):>10} {format_bytes(change.after):>10}"
            lines.append(f"{sizes}  {'' if change.kind == 'other' else change.kind:6}  {change.name}")
        return "\n".join(lines)

    def _head(self) -> str:
        devices = self.after.device if self.after.device == self.before.device else f"{self.before.device}, then {self.after.device}"
        if not self.changes:
            return f"{devices}: nothing changed; {format_bytes(held(self.after))} held"
        return f"{devices}: {format_bytes(held(self.before))} held, then {format_bytes(held(self.after))}: {signed(self.bytes)}"

    def __repr__(self) -> str:
        return f"<ReportDiff {self.after.device}: {signed(self.bytes)} in {len(self.changes)} change{'' if len(self.changes) == 1 else 's'}>"

    def _repr_html_(self) -> str:
        from ._cards import card, text

        head = "".join(f"<th>{name}</th>" for name in ("change", "buffers", "before", "after", "")) + '<th class="tm-name">holder</th>'
        rows = []
        for change in self.changes:
            cells = signed(change.bytes), f"{change.buffers:+,}", format_bytes(change.before), format_bytes(change.after), change.kind
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + f'<td class="tm-name">{text(change.name)}</td></tr>')
        table = f'<div class="tm-scroll"><table class="tm-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>' if rows else ""
        return card(f'<p class="tm-head">{text(self._head())}</p>', table)


def held(report: MemoryReport) -> int:
    """Bytes of all buffers, wherever they are."""
    return report.info.in_use + report.info.spilled


def signed(nbytes: int) -> str:
    """ "+6 MiB", "-512 B", "0 B"."""
    return ("+" if nbytes > 0 else "-" if nbytes < 0 else "") + format_bytes(abs(nbytes))
