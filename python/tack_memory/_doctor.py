"""What `python -m tack_memory doctor` says: for each vendor the library, the devices, what spilling can do, what is missing and what to do."""

from __future__ import annotations

import contextlib
import os
import sys

from . import __version__
from ._devices import budgets_for_nothing, describe, resolve
from ._settings import KINDS, SIM_CPU_KIND, SIM_KINDS, SIMULATED_KINDS, SWITCHES, told_unknown, unknown
from ._sizes import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VENDORS = {
    "cuda": "NVIDIA GPUs, through CUDA",
    "hip": "AMD GPUs, through HIP",
    "level_zero": "Intel GPUs, through Level Zero",
    "metal": "Apple GPUs, through Metal",
    "cpu": "this computer's own memory",
    "sim": "simulated, on the software CUDA driver",
    "sim-hip": "simulated, on the software HIP driver",
    "sim-level_zero": "simulated, on the software Level Zero driver",
    "sim-cpu": "simulated, for the CPU backend of a framework",
}
"""What each kind of device is, for people."""

_OWN = ("cpu", "metal", "sim-cpu")
"""The kinds that need no vendor's library to be found, and have no memory pools."""

_NO_LIBRARY = {
    "cuda": "NVIDIA's driver has libcuda.so.1: install the driver (https://www.nvidia.com/drivers); in a container, let it in (docker run --gpus all)",
    "hip": "ROCm's runtime has libamdhip64: install the package hip-runtime-amd or rocm-hip-runtime of AMD's repository (https://rocm.docs.amd.com), or "
    "libamdhip64-5 of Debian",
    "level_zero": "the loader is libze_loader.so.1: install the package libze1 (level-zero with some distributions) and Intel's driver for it, "
    "libze-intel-gpu1 or intel-level-zero-gpu (https://dgpu-docs.intel.com)",
}
_NO_DEVICE = {
    "cuda": "see whether nvidia-smi shows a GPU, and whether CUDA_VISIBLE_DEVICES hides it",
    "hip": "see whether rocminfo shows a GPU, whether this user may open /dev/kfd and /dev/dri/renderD* (groups render and video), and "
    "whether HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES hides it",
    "level_zero": "see whether Intel's driver for the loader is installed (libze-intel-gpu1 or intel-level-zero-gpu), whether this user may open "
    "/dev/dri/renderD* (group render), and whether ZE_AFFINITY_MASK hides the GPU",
}
_HIDING = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "hip": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "level_zero": ("ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY"),
}
"""Variables with which a vendor's library hides devices, or renumbers them."""


def examine(wanted: list[str]) -> dict[str, Any]:
    """What there is, as plain values fit for JSON: None is unknown, or does not apply.

    `wanted` is devices ("cuda:0") or kinds that have to be usable; under "refused" is which of them are not, and why. The vendors'
    libraries are loaded to find out; no context is created on any device. Simulated devices are told where they were configured, or
    where one is wanted. May be called from any thread.
    """
    for kind in {name.partition(":")[0] for name in wanted}:
        if kind in SIM_KINDS:
            with contextlib.suppress(ValueError):  # why it cannot be had is told with the others
                resolve(f"{kind}:0")
    found = describe()
    vendors = []
    for kind in KINDS:
        devices = [_told(device) for device in found if device["kind"] == kind]
        if devices:
            vendors.append(_vendor(kind, devices))
    all_devices = [device for vendor in vendors for device in vendor.pop("all")]
    usable = {name for device in all_devices if device["usable"] for name in (device["name"], device["kind"])}
    return {
        "version": __version__,
        "python": sys.version.split()[0],
        "vendors": vendors,
        "devices": all_devices,
        "refused": {name: _refusal(name, vendors, all_devices) for name in wanted if name not in usable},
        "switches": {name: os.environ.get(name) or None for name in SWITCHES},
        "unknown_switches": unknown,
        "budgets_for_nothing": budgets_for_nothing(found),
    }


def exit_code(examined: dict[str, Any], wanted: list[str]) -> int:
    """0 where what is wanted (devices or kinds; [] is anything) can be used.

    With nothing wanted it is 1 only where a switch names a library that cannot be loaded, or where a driver is installed, does not
    work, and nothing else spills here: the CPU alone, on a machine that has no driver, is all right.
    """
    if wanted:
        return 1 if examined["refused"] else 0
    vendors = examined["vendors"]
    if any(vendor["named_by"] and not vendor["loaded"] for vendor in vendors):
        return 1
    if any(device["spills"] or (device["usable"] and device["kind"] == "metal") for device in examined["devices"]):
        return 0
    return 1 if any(vendor["loaded"] and not vendor["usable"] for vendor in vendors) else 0


def to_text(examined: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"tack_memory {examined['version']}, Python {examined['python']}"]
    for vendor in examined["vendors"]:
        lines += ["", f"{vendor['kind']}: {vendor['title']}"]
        lines += _library_lines(vendor)
        for device in examined["devices"]:
            if device["kind"] == vendor["kind"] and device["name"] in vendor["devices"]:
                lines += _device_lines(device)
        if vendor["why"]:
            lines.append(f"  not usable: {vendor['why']}")
        lines += [f"  {missing}" for missing in vendor["missing"]]
        if vendor["loaded"]:
            lines += [f'  hides or renumbers devices: {name}="{value}"' for name, value in vendor["hiding"].items()]
        if vendor["advice"]:
            lines.append(f"  what to do: {vendor['advice']}")
    lines += ["", "switches"]
    for name, meaning in SWITCHES.items():
        value = examined["switches"][name]
        lines += [f"  {name} {'not set' if value is None else f'= {value}'}", f"    {meaning}"]
        if name == "TACK_MEMORY_BUDGET":
            lines += [f"    the budget of {device} is for nothing: {why}" for device, why in examined["budgets_for_nothing"].items()]
    lines += [f"  {told_unknown(name, meant)}" for name, meant in examined["unknown_switches"].items()]
    if not any(device["usable"] and device["kind"] in ("cuda", "hip", "level_zero", "metal") for device in examined["devices"]):
        names = ", ".join(f'"{kind}:0"' for kind in SIM_KINDS)
        at_will = " The exit code tells that only where a GPU is asked for, as in: doctor cuda" if exit_code(examined, []) == 0 else ""
        lines += ["", f"No GPU can be used here.{at_will}"]
        if not any(device["usable"] and device["kind"] in SIM_KINDS for device in examined["devices"]):
            lines.append(f"To try spilling without a GPU, name a simulated device in any call: {names}.")
    if examined["refused"]:
        lines += ["", "asked for and not usable:", *(f"  {name}: {why}" for name, why in examined["refused"].items())]
    return "\n".join(lines)


def _told(device: dict[str, Any]) -> dict[str, Any]:
    """What Go tells of a device, with None for what it does not know."""
    usable = device["usable"]
    total = device["total"]
    notes = device["notes"]
    return {
        "name": device["name"],
        "kind": device["kind"],
        "ordinal": device["ordinal"],
        "usable": usable,
        "why": device["why"] or None,
        "product": device["product"] or None,
        "uuid": device["uuid"] or None,
        "total": total if total is not None and total >= 0 else None,
        "pools": device["pools"] if usable and device["kind"] not in _OWN else None,
        "spills": usable and device["spills"],
        "spilling": _spilling(device),
        "library": device["library"] or None,
        "version": device["version"] or None,
        "notes": [note for note in notes if not note.startswith("missing: ")],
        "missing": [note for note in notes if note.startswith("missing: ")],
    }


def _spilling(device: dict[str, Any]) -> str:
    """What spilling can do on a device, in a few words."""
    if not device["usable"]:
        return "none: the device cannot be used"
    if device["kind"] == "metal":
        return "accounting only: its memory is the host's, and macOS pages it"
    if not device["spills"]:
        return "accounting only: its memory is the host's"
    when = "when the device is full by its figures" if device["kind"].endswith("level_zero") else "when an allocation fails"
    return f"under a budget, and {when}" + (" (simulated: nothing is measured here)" if device["kind"] in SIMULATED_KINDS else "")


def _vendor(kind: str, devices: list[dict[str, Any]]) -> dict[str, Any]:
    usable = [device["name"] for device in devices if device["usable"]]
    library = devices[0]["library"]
    switch = f"TACK_MEMORY_{kind.upper()}_LIBRARY"
    named = os.environ.get(switch, "").strip() if switch in SWITCHES else ""
    there = [device for device in devices if device["usable"] or device["name"] != kind]  # else it only says why the kind has none
    advice = None
    if not usable:
        advice = (_NO_DEVICE if library else _NO_LIBRARY).get(kind)
    if named and not library:
        advice = f"correct {switch}, which names this library, or unset it, so that the library is looked for"
    return {
        "kind": kind,
        "title": VENDORS[kind],
        "usable": bool(usable),
        "library": library or named or None,
        "loaded": bool(library),
        "named_by": switch if named else None,
        "version": devices[0]["version"],
        "needs_library": kind not in _OWN,
        "devices": [device["name"] for device in there],
        "missing": sorted({text for device in devices for text in device["missing"]}),
        "hiding": {name: os.environ[name] for name in _HIDING.get(kind, ()) if name in os.environ},
        "why": None if usable else devices[0]["why"],
        "advice": advice,
        "all": there,
    }


def _refusal(name: str, vendors: list[dict[str, Any]], devices: list[dict[str, Any]]) -> str:
    """Why a device or a kind that was asked for cannot be used."""
    for device in devices:
        if device["name"] == name:
            return str(device["why"])
    for vendor in vendors:
        if vendor["kind"] == name.partition(":")[0]:
            return vendor["why"] or "there are only " + ", ".join(vendor["devices"])
    if name.partition(":")[0] == SIM_CPU_KIND:
        return 'it comes to be in a process that calls tack_memory.install(host, simulate="64 MiB"), for the framework\'s CPU backend to compute on'
    return "there is none"


def _library_lines(vendor: dict[str, Any]) -> list[str]:
    if not vendor["library"]:
        return ["  library: not found"] if vendor["needs_library"] else []
    line = f"  library: {vendor['library']}"
    if vendor["version"]:  # the loader's own, where it tells it, stands behind its file already
        line += f", {'driver interface' if vendor['kind'].endswith('level_zero') else 'version'} {vendor['version']}"
    if not vendor["loaded"]:
        line += f", named by {vendor['named_by']}: it cannot be loaded"
    return [line]


def _device_lines(device: dict[str, Any]) -> list[str]:
    if not device["usable"]:
        return [f"  {device['name']}: not usable: {device['why']}"]
    parts = [device["product"]] if device["product"] else []
    if device["total"] is not None:
        parts.append(f"{format_bytes(device['total'])} in total")
    if device["pools"] is not None:
        parts.append("with memory pools" if device["pools"] else "without memory pools")
    if device["uuid"]:
        parts.append(device["uuid"])
    return [
        f"  {device['name']}: {', '.join(parts) or 'nothing more is known'}",
        f"    spilling: {device['spilling']}",
        *(f"    {note}" for note in device["notes"]),
    ]
