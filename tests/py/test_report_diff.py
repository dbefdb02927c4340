"""What changed between two reports."""

from __future__ import annotations

import gc
import json

import pytest
from report_support import HOSTILE, MIB, STACK, holder, report

from tack_memory import allocate, memory_report


def test_what_grew_shrank_is_new_or_gone() -> None:
    before = report(
        holder("a", "x.py:1", 2 * MIB), holder("b", "x.py:2", MIB, MIB, 2), holder("c", None, 5), holder("same", None, 7), holder("few", None, 8, count=2)
    )
    after = report(
        holder("a", "x.py:1", 3 * MIB, count=4), holder("b", "x.py:2", MIB), holder("d", None, MIB), holder("same", None, 7), holder("few", None, 8, count=1)
    )
    diff = before.diff(after)
    assert [(change.name, change.kind, change.bytes, change.buffers) for change in diff.changes] == [
        ("a (x.py:1)", "grew", MIB, 3),
        ("d", "new", MIB, 1),
        ("few", "other", 0, -1),
        ("c", "gone", -5, -1),
        ("b (x.py:2)", "shrank", -MIB, -1),
    ]
    assert diff.bytes == MIB - 5 and [change.name for change in diff.grew] == ["a (x.py:1)", "d"]
    assert (
        str(diff)
        == """\
cuda:0: 4 MiB held, then 5 MiB: +1 MiB
     change  buffers     before      after          holder
     +1 MiB       +3      2 MiB      3 MiB  grew    a (x.py:1)
     +1 MiB       +1        0 B      1 MiB  new     d
        0 B       -1        8 B        8 B          few
       -5 B       -1        5 B        0 B  gone    c
     -1 MiB       -1      2 MiB      1 MiB  shrank  b (x.py:2)"""
    )
    assert repr(diff) == "<ReportDiff cuda:0: +1 MiB in 5 changes>"
    told = json.loads(json.dumps(diff.to_dict()))
    assert told["bytes"] == MIB - 5 and told["changes"][1] == {
        "label": "d", "origin": None, "before": 0, "after": MIB, "count_before": 0, "count_after": 1, "bytes": MIB, "buffers": 1, "kind": "new",
    }  # fmt: skip


def test_stacks_of_one_line_are_one_holder() -> None:
    """Who turns stacks on in the middle must not see all of it as new."""
    before = report(holder("a", "x.py:1", 5))
    after = report(holder("a", "x.py:1", 2, stack=STACK), holder("a", "x.py:1", 3, stack=STACK[:1], count=0))
    assert before.diff(after).changes == [] and str(before.diff(after)) == "cuda:0: nothing changed; 5 B held"


def test_other_devices_are_named() -> None:
    other = report(holder("a", None, 5))
    other.device = "hip:0"
    assert str(report().diff(other)).startswith("cuda:0, then hip:0: 0 B held, then 5 B: +5 B\n")


def test_a_leak_is_found(device: str) -> None:
    kept = [allocate(100, device, label="kept")]
    before = memory_report(device)
    for _ in range(3):
        kept.append(allocate(1000, device, label="leak"))
        allocate(500, device, label="let go")
    gc.collect()
    diff = before.diff(memory_report(device))
    assert [(change.label, change.bytes, change.buffers, change.kind) for change in diff.changes] == [("leak", 3000, 3, "new")] and len(kept) == 4


def test_in_a_notebook_names_are_escaped() -> None:
    html = report().diff(report(holder(HOSTILE, None, 5)))._repr_html_()
    assert "&lt;/script&gt;" in html and HOSTILE not in html and "<td>+5 B</td>" in html and 'class="tack-memory"' in html


@pytest.mark.parametrize("wrong", [None, 7, {}, "b.json"])
def test_something_else_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=f"compared with another MemoryReport, not with {type(wrong).__name__}"):
        report().diff(wrong)  # type: ignore[arg-type]
