"""The commands that look at reports in files: `report` and `diff`."""

from __future__ import annotations

import argparse
import json
import sys

from ._report import MemoryReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXAMPLES = """\
a program writes reports with tack_memory.memory_report().save("a.json"); set_origins("line") or ("stack") before makes them name lines

examples:
  python -m tack_memory report a.json                     who held the memory, and why buffers were spilled
  python -m tack_memory report a.json --root . --top 20   paths below this folder shortened, the 20 largest holders
  python -m tack_memory report a.json --html a.html       a page with tables and a flame graph
  python -m tack_memory report a.json --pprof a.pb.gz     for `go tool pprof -http=: a.pb.gz`
  python -m tack_memory diff a.json b.json                what grew from one to the other
  python -m tack_memory diff a.json b.json --json | jq .bytes

exit codes:
  0  all is well; diff: nothing holds more than before
  1  diff: something does
  2  wrong arguments; a file is no report, or cannot be read or written
"""


def add(commands: Any) -> None:
    """Add both to the command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    report = commands.add_parser("report", help="a report that a program has saved", epilog=EXAMPLES, formatter_class=formatter)
    report.add_argument("file", metavar="FILE", help="what MemoryReport.save wrote")
    report.add_argument("--html", metavar="OUT", help="write a web page there")
    report.add_argument("--pprof", metavar="OUT", help="write a profile for go tool pprof there")
    report.add_argument("--top", metavar="N", type=_count, help="print the N largest holders only (the others are added up)")
    _common(report)
    report.set_defaults(run=_report)

    diff = commands.add_parser("diff", help="what grew between two reports; exit code 1 where something did", epilog=EXAMPLES, formatter_class=formatter)
    diff.add_argument("before", metavar="A", help="the earlier report")
    diff.add_argument("after", metavar="B", help="the later one")
    _common(diff)
    diff.set_defaults(run=_diff)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", metavar="DIR", help="shorten paths below this folder")
    parser.add_argument("--json", action="store_true", help="ints of bytes, for programs; null is: unknown")


def _count(text: str) -> int:
    """An argument that is a number of rows."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of holders")
    return int(text)


def _load(file: str, root: str | None) -> MemoryReport:
    report = MemoryReport.load(file)
    return report if root is None else report.relative_to(root)


def _report(arguments: argparse.Namespace) -> int:
    try:
        report = _load(arguments.file, arguments.root)
        if arguments.html is not None:
            report.to_html(arguments.html)
        if arguments.pprof is not None:
            report.to_pprof(arguments.pprof)
    except (OSError, ValueError) as error:
        print(f"tack_memory report: {_said(error)}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(report.to_dict(), indent=2))
    elif arguments.top is not None or arguments.html is arguments.pprof is None:
        from ._report_text import to_text

        print(to_text(report, arguments.top))
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    try:
        before, after = (_load(file, arguments.root) for file in (arguments.before, arguments.after))
    except (OSError, ValueError) as error:
        print(f"tack_memory diff: {_said(error)}", file=sys.stderr)
        return 2
    diff = before.diff(after)
    print(json.dumps(diff.to_dict(), indent=2) if arguments.json else diff)
    return 1 if diff.grew else 0


def _said(error: Exception) -> str:
    """Without the number of an OSError."""
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
