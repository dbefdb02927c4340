"""The command line: `python -m tack_memory info` and `doctor`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from . import __version__, memory_info
from ._devices import describe, devices, resolve_name
from ._errors import DeviceLostError
from ._report import info_to_dict
from ._settings import SWITCHES, settings
from ._sizes import format_bytes

EXAMPLES = """\
examples:
  python -m tack_memory info                     each device of this machine
  python -m tack_memory info cuda:0 --json       one device, for a program
  python -m tack_memory doctor                   which drivers were found, and what is missing

exit codes:
  0  all is well
  1  a driver that is installed does not work (doctor), or a device cannot be asked (info)
  2  wrong arguments; there is no such device
"""

_SPILLING = {
    "cpu": "accounting only: its memory is the host's",
    "metal": "accounting only: its memory is the host's, and macOS pages it",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tack_memory",
        description="Figures of the devices of this machine, and a check of what tack_memory needs.",
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
    doctor.add_argument("--json", action="store_true", help="the same for programs")
    doctor.set_defaults(run=_doctor)

    parsed = parser.parse_args(arguments)
    try:
        code = int(parsed.run(parsed))
        sys.stdout.flush()
    except BrokenPipeError:  # who read it ("| head") has seen enough; the interpreter's own flush at its exit must not fail, either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


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
    found = describe()
    for device in found:
        device["spilling"] = _spilling(device)
    switches = {name: os.environ.get(name) or None for name in SWITCHES}
    broken = [device for device in found if not device["usable"] and device["library"]]
    if arguments.json:
        print(json.dumps({"version": __version__, "python": sys.version.split()[0], "devices": found, "switches": switches}, indent=2))
        return 1 if broken else 0
    print(f"tack_memory {__version__}, Python {sys.version.split()[0]}")
    print("\ndevices")
    for device in found:
        print(f"  {device['name']}: {_driver(device)}")
        print(f"    spilling: {device['spilling']}")
        for note in device["notes"]:
            print(f"    {note}")
    print("\nswitches")
    for name, meaning in SWITCHES.items():
        value = "not set" if switches[name] is None else f"= {switches[name]}"
        print(f"  {name} {value}\n    {meaning}")
    if settings.sim is None and not any(device["kind"] not in ("cpu", "sim") and device["usable"] for device in found):
        print('\nNo GPU can be used here. To try spilling without one: TACK_MEMORY_SIM="256 MiB", and the device "sim:0".')
    return 1 if broken else 0


def _driver(device: dict[str, Any]) -> str:
    """Library, version, size, or why the device cannot be used."""
    if not device["usable"]:
        where = f" ({device['library']})" if device["library"] else ""
        return f"not usable{where}: {device['why']}"
    parts = [device["product"]] if device["product"] else []
    parts.append(device["library"] or "no driver needed")
    if device["version"]:
        parts.append(f"version {device['version']}")
    total = device["total"]
    if total is not None and total >= 0:
        parts.append(f"{format_bytes(total)} in total")
    if device["pools"] is not None and device["kind"] not in ("cpu", "metal"):
        parts.append("with memory pools" if device["pools"] else "without memory pools")
    return ", ".join(parts)


def _spilling(device: dict[str, Any]) -> str:
    """What spilling can do on a device, in a few words."""
    if not device["usable"]:
        return "none: the device cannot be used"
    if device["kind"] in _SPILLING:
        return _SPILLING[device["kind"]]
    return "under a budget, and when an allocation fails" + (" (simulated: nothing is measured here)" if device["kind"] == "sim" else "")


if __name__ == "__main__":
    sys.exit(main())
