"""Holders by their line: for whoever shows lines, while a person may have stacks recorded (`set_origins("stack")`)."""

from __future__ import annotations

from ._errors import Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def by_line(holders: Iterable[Holder]) -> dict[tuple[str | None, str | None], Holder]:
    """Holders by label and origin, the largest first; those that only their stacks tell apart are added up in new ones."""
    merged: dict[tuple[str | None, str | None], Holder] = {}
    for holder in holders:
        key = holder.label, holder.origin
        before = merged.get(key)
        merged[key] = holder if before is None else _sum(before, holder)
    return dict(sorted(merged.items(), key=lambda item: -item[1].bytes))


def _sum(one: Holder, other: Holder) -> Holder:
    """Of both; neither is changed, for a report may have them."""
    fields = {name: getattr(one, name) + getattr(other, name) for name in ("bytes", "resident", "spilled", "count")}
    reasons = {reason for holder in (one, other) for reason in holder.holds.split(", ") if reason}
    return Holder({"label": one.label, "origin": one.origin, "device": one.device, "holds": ", ".join(sorted(reasons)), **fields})
