"""The text of a test that went over a limit: by how much, when, what held the memory, and how to allow more."""

from __future__ import annotations

import linecache
import os
import sys
from typing import TYPE_CHECKING

from tack_memory._holders import by_line
from tack_memory._native import PACKAGE_FOLDER
from tack_memory._sizes import format_bytes

from .limits import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tack_memory import Holder, MemoryPeak

    from .limits import Resolved
    from .measure import Measurement

SHOWN_HOLDERS = 5
SHOWN_PLACES = 6

UNITTEST_PARTS = ("setUp", "tearDown", "asyncSetUp", "asyncTearDown")

Place = tuple[str, int, str]


def text(measurement: Measurement, over: Resolved) -> str:
    """All that is known of a limit that a test went over. The first line says it in short."""
    limit, kind, used = over.limit, over.limit.kind, measurement.value(over)
    root = str(measurement.item.config.rootpath)
    rows = [
        ("limit", f"{exactly(over.nbytes)}, {kind}: {KINDS[kind]}"),
        ("", limit.source),
        ("left" if kind == "leak" else "peak", f"{exactly(used)}, {more(used, over.nbytes)}"),
    ]
    scope = measurement.scopes.get(over.device)
    if kind != "leak":
        rows += titled("when", places(measurement, scope, kind, root))
    rows += titled("holders", holders(measurement, over, scope, root))
    figures = measurement.figures(over.device)
    if kind != "leak":
        rows.append(("spilled", moved(figures)))
    rows.append(("allow", allow(over, used)))
    head = f"device memory: {format_bytes(used)} is {format_bytes(used - over.nbytes)} over the limit of {format_bytes(over.nbytes)} ({kind}, {over.device})"
    return "\n".join([head, *(f"  {title:<8} {line}".rstrip() for title, line in rows)])


def exactly(nbytes: int) -> str:
    return format_bytes(nbytes) + (f" ({nbytes:,} bytes)" if nbytes >= 1024 else "")


def more(used: int, limit: int) -> str:
    """How much more than the limit."""
    share = ""
    if limit and used >= 10 * limit:
        share = f", {used // limit:,} times as much"
    elif limit and used - limit >= limit / 1000:
        share = f", {100 * (used - limit) / limit:.3g}%"
    return f"{exactly(used - limit)} more{share}"


def titled(title: str, lines: Iterable[str]) -> list[tuple[str, str]]:
    return [("" if number else title, line) for number, line in enumerate(lines)]


def moved(figures: dict[str, int]) -> str:
    spilled, restored = figures["spilled_bytes"], figures["restored_bytes"]
    if not spilled and not restored:
        return "nothing during the test's body"
    return f"{format_bytes(spilled)} to host memory during the test's body, {format_bytes(restored)} brought back"


# ---- when


def places(measurement: Measurement, scope: MemoryPeak | None, kind: str, root: str) -> list[str]:
    """The line of the test that was running when the peak was reached, and what it had called, down to the allocation."""
    stack = scope and {"own": scope._stack_at_own, "footprint": scope._stack_at_footprint}.get(kind, scope._stack_at_peak)
    if not stack:
        began = kind in ("peak", "footprint") and scope is not None and not measurement.figures(scope.device)["delta"]
        return ["when the test's body began: nothing in it raised the peak" if began else "not known"]
    shown = in_order(stack)
    code = measurement.code
    is_test = code is not None and shown[0][0] == code.co_filename and shown[0][2] == code.co_qualname
    if not is_test:
        shown = inner(shown)
    lines = [
        f"{short(file, root)}:{line}{f' in {function}' if number or not is_test else ''}{source(file, line)}"
        for number, (file, line, function) in enumerate(shown)
    ]
    if len(lines) > SHOWN_PLACES:
        hidden = len(lines) - SHOWN_PLACES + 1
        lines[1 : 1 + hidden] = [f"... {hidden} calls ..."]
    return lines if is_test else [*lines, begun_by(shown[0])]


def begun_by(outermost: Place) -> str:
    """What a place has to do with the test, whose own code is not above it."""
    function = outermost[2].rpartition(".")[2]
    if function in UNITTEST_PARTS:
        return f"in {function}, which unittest runs with the test"
    return "in a task or a thread that the test had started"


def in_order(stack: tuple[Place, ...]) -> list[Place]:
    """The outermost first, a line once (a comprehension may have a frame of its own), without this package and the machinery of the frameworks that are
    plugged in."""
    hosts = sys.modules.get("tack_memory.hosts")  # not there: nothing is plugged in
    skipped = (PACKAGE_FOLDER, *(hosts.machinery() if hosts is not None else ()))
    lines: dict[tuple[str, int], Place] = {}
    for place in reversed(stack):
        if not place[0].startswith(skipped):
            lines.setdefault(place[:2], place)
    return list(lines.values()) or list(reversed(stack))


def inner(shown: list[Place]) -> list[Place]:
    """What ran inside the standard library's event loop, or thread; the outermost first."""
    library = os.path.dirname(os.__file__) + os.sep
    outside = [number for number, (file, _, _) in enumerate(shown) if file.startswith(library) and "-packages" not in file]
    return shown[outside[-1] + 1 :] if outside and outside[-1] + 1 < len(shown) else shown[-1:]


def source(file: str, line: int) -> str:
    """The text of a line, after a colon; nothing where it cannot be read."""
    written = linecache.getline(file, line).strip()
    if len(written) > 100:
        written = written[:97] + "..."
    return f": {written}" if written else ""


def short(file: str, root: str) -> str:
    """A file's path from the project's root, where it lies there."""
    return file[len(root) + 1 :] if file.startswith(root + os.sep) else file


# ---- holders


def holders(measurement: Measurement, over: Resolved, scope: MemoryPeak | None, root: str) -> list[str]:
    """What held most, the largest first: at the peak, or, of a leak, what was left."""
    if over.limit.kind == "leak":
        found: list[Holder] | None = measurement.left(over.device)
        when = "left behind"
    else:
        told = scope.at_peak if scope is not None else None
        found = None if told is None else list(by_line(told).values())
        when = f"when most was in use on {over.device}, {format_bytes(measurement.figures(over.device)['bytes'])}"
    if found is None:
        return ["not known: nothing on this device says where it was allocated"]
    if not found:
        return [f"{when}: none"]
    width = max(len(format_bytes(holder.bytes)) for holder in found[:SHOWN_HOLDERS])
    lines = [f"{when}:", *(f"  {format_bytes(holder.bytes):>{width}}  {name(holder, root)}" for holder in found[:SHOWN_HOLDERS])]
    rest = found[SHOWN_HOLDERS:]
    if rest:
        lines.append(f"  {format_bytes(sum(holder.bytes for holder in rest)):>{width}}  {len(rest)} more")
    return lines


def name(holder: Holder, root: str) -> str:
    """Label and origin, and how many buffers."""
    origin = holder.origin and short(holder.origin, root)
    told = f"{holder.label} ({origin})" if holder.label and origin else holder.label or origin or "allocated before origins were recorded"
    return told + (f" x{holder.count}" if holder.count > 1 else "")


# ---- how to allow more


def allow(over: Resolved, used: int) -> str:
    return over.limit.allow.replace("ARGUMENTS", over.limit.arguments(rounded_up(used)))


def rounded_up(nbytes: int) -> str:
    """A size as people write it, of three digits, that is not below nbytes."""
    if nbytes < 1024:
        return f"{nbytes} B"
    unit, scale = next(
        (unit, scale) for unit, scale in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40)) if nbytes < 1000 * scale or unit == "TiB"
    )
    whole = len(str(nbytes // scale))
    parts = 10 ** max(0, 3 - whole)
    return f"{-(-nbytes * parts // scale) / parts:g} {unit}"
