"""The command line: `python -m tack_memory info`, `doctor`, `report`, `diff` and `demo`."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from typing import Any

from . import __version__, _cli_reports, _demo, memory_info
from ._devices import devices, resolve_name
from ._errors import DeviceLostError
from ._report import info_to_dict
from ._settings import KINDS, parse_device_name

EXAMPLES = """\
examples:
  python -m tack_memory info                     each device of this machine
  python -m tack_memory info cuda:0 --json       one device, for a program
  python -m tack_memory doctor                   each vendor: which driver was found, what is missing, what to do
  python -m tack_memory doctor cuda && ./run     run only where a CUDA device can be used
  python -m tack_memory demo                     arrays that do not fit, with the same results
  python -m tack_memory report a.json            a report that a program has saved: who held the memory (report --help: as a page, for pprof)
  python -m tack_memory diff a.json b.json       what grew from one report to a later one

exit codes:
  0  all is well; doctor: something can be used (the CPU alone will do), and each device or kind that was named; diff: nothing grew
  1  diff: something grew; demo: the results differ; info: a device cannot be asked; doctor: a device that was named cannot be used, a switch
     names a library that cannot be loaded, or a driver is installed, does not work, and no other device spills
  2  wrong arguments; there is no such device; a file is no report; the output cannot be written; a switch of the environment (TACK_MEMORY_...) has a wrong form
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tack_memory",
        description="Figures of the devices of this machine, a check of what tack_memory needs, and reports that programs have saved.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tack_memory {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="the memory of the devices, one line each", epilog=EXAMPLES, formatter_class=parser.formatter_class)
    info.add_argument("device", nargs="*", help='devices, "cuda:0"; all, if left out')
    info.add_argument("--json", action="store_true", help="ints of bytes, for programs; null is: unknown")
    info.set_defaults(run=_info)

    doctor = commands.add_parser(
        "doctor", help="drivers found and missing, what spilling can do, the switches", epilog=EXAMPLES, formatter_class=parser.formatter_class
    )
    doctor.add_argument("device", nargs="*", help='devices ("cuda:0") or kinds ("cuda") that must be usable for exit code 0')
    doctor.add_argument("--json", action="store_true", help="the same for programs")
    doctor.set_defaults(run=_doctor)

    _demo.add(commands)
    _cli_reports.add(commands)

    parsed = parser.parse_args(arguments)
    _write_any_name()
    try:
        code = int(parsed.run(parsed))
        if sys.stdout is not None:  # it is None where the standard output was closed (">&-"): then print writes nothing
            sys.stdout.flush()
    except BrokenPipeError:  # who read it ("| head") has seen enough
        _write_no_more()
        return 0
    except OSError as error:
        if error.filename is not None:
            raise  # of no file that a command was given: those are told by it
        _write_no_more()
        print(f"tack_memory {parsed.command}: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    return code


def _write_any_name() -> None:
    """What the outputs' encoding has no letter for (labels are any text, names of files any bytes) is written with backslashes, and fails nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _write_no_more() -> None:
    """The standard output takes nothing any more; the interpreter's own flush at its exit must not fail, either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _info(arguments: argparse.Namespace) -> int:
    try:
        names = [resolve_name(device) for device in arguments.device] or devices()
    except (ValueError, TypeError) as error:
        print(f"tack_memory info: {error}", file=sys.stderr)
        return 2
    found: list[Any] = []
    code = 0
    for name in names:
        try:
            found.append(memory_info(name))
        except (RuntimeError, DeviceLostError) as error:
            print(f"tack_memory info: {name}: {error}", file=sys.stderr)
            code = 1
    if arguments.json:
        print(json.dumps([info_to_dict(info) for info in found], indent=2))
    else:
        for info in found:
            print(info)
    return code


def _doctor(arguments: argparse.Namespace) -> int:
    from ._doctor import examine, exit_code, to_text

    wanted = []
    for name in arguments.device:
        parsed = parse_device_name(name)
        if parsed is None:
            print(f"tack_memory doctor: {name!r} is no device and no kind of device; kinds: {', '.join(KINDS)}", file=sys.stderr)
            return 2
        kind, ordinal = parsed
        wanted.append(kind if ordinal is None else f"{kind}:{ordinal}")
    examined = examine(wanted)
    print(json.dumps(examined, indent=2) if arguments.json else to_text(examined))
    return exit_code(examined, wanted)


if __name__ == "__main__":
    sys.exit(main())
