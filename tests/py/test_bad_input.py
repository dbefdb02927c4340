"""Every argument of every public call with wrong values: the error of the contract, and books that did not change.

The calls come from the package itself (`__all__`, and the public methods of its classes), and their parameters from their signatures. A new
public function, method or parameter without an entry in the tables below fails `test_every_public_call_and_parameter_has_cases`.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy
import pytest
from support import KIB, MIB, SIMULATED, contents, filled, how_of, pattern

import tack_memory
from tack_memory import _devices
from tack_memory._control import call

DEVICE = "sim:0"
NAN = float("nan")


class Bench:
    """What the calls are tried on; fresh for each."""

    def __init__(self) -> None:
        self.buffer = filled(KIB, DEVICE, 1, label="bench")
        self.other = filled(KIB, DEVICE, 2)
        self.spilled = filled(KIB, DEVICE, 3)
        self.spilled.spill()
        self.view = self.buffer.view(100, 200)
        self.elsewhere = filled(KIB, "sim:1", 4)
        self.freed = filled(KIB, DEVICE)
        self.freed_view = self.freed.view(0, 10)
        self.freed.free()
        self.exported = self.other.export("dlpack")
        self.reserved = tack_memory.reserve(KIB, DEVICE)

    def contents(self) -> list[bytes]:
        return [contents(buffer) for buffer in (self.buffer, self.other, self.spilled, self.elsewhere)]


class Case(NamedTuple):
    """A call that works: its arguments by parameter; those of a variadic parameter as a tuple."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    undo: Callable[[Any], object] = lambda result: None


Wrong = tuple[Any, type[BaseException] | tuple[type[BaseException], ...]]

# ---- wrong values, by what a parameter is

SIZES: list[Wrong] = [
    (-1, ValueError), (2**63, ValueError), (2**64, ValueError), (10**30, ValueError), ("2G", ValueError), ("", ValueError), ("-1 GB", ValueError),
    ("24 MBanana", ValueError), (1.5, TypeError), (0.8, TypeError), (NAN, TypeError), (True, TypeError), (b"1 KiB", TypeError), ([1], TypeError),
    (object(), TypeError), (numpy.float64(8), TypeError),
]  # fmt: skip
NO_DEFAULT_SIZE: list[Wrong] = [*SIZES, (None, TypeError)]
COUNTS: list[Wrong] = [
    (-1, ValueError), (2**63, ValueError), (2**64, ValueError), (10**30, ValueError), (KIB + 1, ValueError), (1.5, TypeError), (NAN, TypeError),
    (True, TypeError), ("x", (TypeError, ValueError)), (b"1", TypeError), ([1], TypeError),
]  # fmt: skip
DEVICES: list[Wrong] = [
    ("gpu", ValueError), ("sim:9", ValueError), ("SIM:0", ValueError), ("", ValueError), (-1, ValueError), (99, ValueError),
    (10**30, ValueError), (True, TypeError), (0.0, TypeError), (b"sim:0", TypeError), (["sim:0"], TypeError), (object(), TypeError),
]  # fmt: skip
FLAGS: list[Wrong] = [("yes", TypeError), (None, TypeError), (2, TypeError), ([], TypeError)]
TRUTHS: list[Wrong] = [(numpy.zeros(2), ValueError)]  # any truth value is legal; this has none
TEXTS: list[Wrong] = [(5, TypeError), (b"text", TypeError), (["text"], TypeError), (1.5, TypeError), ("\ud800", ValueError)]
POINTERS: list[Wrong] = [
    (-1, ValueError), (2**64, ValueError), (10**30, ValueError), (1.5, TypeError), (True, TypeError), ("0x10", TypeError), (b"x", TypeError),
    (None, TypeError), ([], TypeError), (0, ValueError),
]  # fmt: skip
STREAMS: list[Wrong] = [(-1, ValueError), (2**64, ValueError), (1.5, TypeError), ("stream", TypeError), (True, TypeError), ([], TypeError)]
CALLABLES: list[Wrong] = [(5, TypeError), ("print", TypeError), ([], TypeError)]
HOST_MEMORY: list[Wrong] = [
    (None, TypeError), (5, TypeError), ("text", TypeError), ([1, 2], TypeError), (object(), TypeError), (bytes(KIB + 1), ValueError),
    (memoryview(bytes(20))[::2], (ValueError, BufferError)), (numpy.zeros((4, 4), order="F")[::2], (ValueError, BufferError)),
]  # fmt: skip
OUT: list[Wrong] = [
    (5, TypeError), ("text", TypeError), ([1, 2], TypeError), (b"read-only", (TypeError, ValueError, BufferError)),
    (memoryview(bytearray(20))[::2], (TypeError, ValueError, BufferError)), (bytearray(3), ValueError),
]  # fmt: skip
PATTERNS: list[Wrong] = [
    (-1, ValueError), (256, ValueError), (10**30, ValueError), (b"", ValueError), (bytes(17), ValueError), ("x", TypeError), (1.5, TypeError),
    (True, TypeError), (None, TypeError), ([1], TypeError),
]  # fmt: skip
BUFFERS: list[Wrong] = [
    (None, TypeError), (5, TypeError), ("buffer", TypeError), (object(), TypeError), (b"bytes", TypeError),
    (lambda bench: bench.freed, ValueError), (lambda bench: bench.freed_view, ValueError),
]  # fmt: skip
ANYTHING: list[Wrong] = []  # every value is legal

BAD: dict[str, list[Wrong]] = {
    "device": DEVICES,
    "zero": TRUTHS,
    "movable": TRUTHS,
    "strict": FLAGS,
    "label": TEXTS,
    "reason": TEXTS,
    "offset": COUNTS,
    "source_offset": COUNTS,
    "stream": STREAMS,
    "ptr": POINTERS,
    "on_exit": CALLABLES,
    "owner": ANYTHING,
    "buffers": BUFFERS,
    "arrays": BUFFERS,
    "how": [("malloc", ValueError), ("", ValueError), (5, TypeError), (None, TypeError), (b"cuMemAlloc", TypeError)],
    "into": [(5, TypeError), ({}, TypeError), ((), TypeError), (({}, 5), TypeError), ((5, "place"), TypeError), (["x", "y"], TypeError)],
    "reserved": [(5, TypeError), ("token", TypeError), (object(), TypeError)],
    "capacity": [(0, ValueError), (-1, ValueError), (2**40, ValueError), (1.5, TypeError), ("many", TypeError), (True, TypeError), (None, TypeError)],
    "mode": [("everything", ValueError), ("", ValueError), (5, TypeError), (None, TypeError), (True, TypeError)],
    "kind": [("peak", ValueError), ("", ValueError), (None, TypeError), (7, TypeError), (b"in_use", TypeError), ([], TypeError)],
    "function": [(None, TypeError), (5, TypeError), (int, TypeError)],
    "path": [(10**6, TypeError), (True, TypeError), (None, TypeError), (1.5, TypeError), ([], TypeError), ("a\0b", ValueError)],
    "root": [(5, TypeError), (None, TypeError), (1.5, TypeError), (b"/tmp", TypeError)],
    "later": [(5, TypeError), (None, TypeError), ("b.json", TypeError), ({}, TypeError)],
    "file": [(5, TypeError), (b"text", TypeError), ("report.txt", TypeError), ([], TypeError), (io.BytesIO(), TypeError)],
    "host": [(5, TypeError), ("numpy", TypeError), (object(), TypeError), (gc, (RuntimeError, ValueError))],
}
"""By the parameter's name; BAD_IN has the exceptions."""

BAD_IN: dict[tuple[str, str], list[Wrong]] = {
    ("allocate", "nbytes"): NO_DEFAULT_SIZE,
    ("reserve", "nbytes"): NO_DEFAULT_SIZE,
    ("adopt", "nbytes"): [wrong for wrong in NO_DEFAULT_SIZE if not isinstance(wrong[0], str)],
    ("hold", "reason"): [*TEXTS, (None, TypeError)],
    ("wrap", "nbytes"): [wrong for wrong in NO_DEFAULT_SIZE if not isinstance(wrong[0], str)],
    ("set_memory_budget", "size"): [*SIZES, (0, ValueError), ("0 GiB", ValueError)],
    ("label", "name"): [wrong for wrong in TEXTS if wrong[0] != "\ud800"],
}
for kind in ("Buffer", "BufferView"):
    BAD_IN |= {
        (f"{kind}.copy_from_host", "obj"): HOST_MEMORY,
        (f"{kind}.copy_to_host", "out"): OUT,
        (f"{kind}.copy_to_host", "nbytes"): COUNTS,
        (f"{kind}.fill", "value"): PATTERNS,
        (f"{kind}.fill", "nbytes"): COUNTS,
        (f"{kind}.copy_from", "other"): [*BUFFERS, (lambda bench: bench.elsewhere, ValueError)],
        (f"{kind}.copy_from", "nbytes"): COUNTS,
        (f"{kind}.view", "offset"): [*COUNTS, (None, TypeError)],
        (f"{kind}.view", "nbytes"): [*COUNTS, (None, TypeError)],
    }

# ---- calls that work, to change one argument at a time


def methods_of(kind: str, pick: Callable[[Bench], Any]) -> dict[str, Callable[[Bench], Case]]:
    return {
        f"{kind}.copy_from_host": lambda b: Case(pick(b).copy_from_host, {"obj": b"abc", "offset": 2}),
        f"{kind}.copy_to_host": lambda b: Case(pick(b).copy_to_host, {"out": bytearray(8), "offset": 2, "nbytes": 8}),
        f"{kind}.fill": lambda b: Case(pick(b).fill, {"value": b"xy", "offset": 2, "nbytes": 4}),
        f"{kind}.copy_from": lambda b: Case(pick(b).copy_from, {"other": b.spilled, "offset": 1, "source_offset": 2, "nbytes": 4}),
        f"{kind}.spill": lambda b: Case(pick(b).spill, {}),
        f"{kind}.restore": lambda b: Case(pick(b).restore, {}),
        f"{kind}.view": lambda b: Case(pick(b).view, {"offset": 1, "nbytes": 4}),
        f"{kind}.hold": lambda b: Case(pick(b).hold, {"reason": "texture"}),
        f"{kind}.export": lambda b: Case(pick(b).export, {"reason": "dlpack"}),
    }


def some_function() -> None: ...


CALLS: dict[str, Callable[[Bench], Case]] = {
    "allocate": lambda b: Case(tack_memory.allocate, {"nbytes": 64, "device": DEVICE, "zero": True, "movable": False, "reason": "MPI", "label": "x"}),
    "reserve": lambda b: Case(tack_memory.reserve, {"nbytes": 64, "device": DEVICE}),
    "adopt": lambda b: Case(
        tack_memory.adopt,
        {
            "ptr": address(b),
            "nbytes": KIB,
            "device": DEVICE,
            "how": "cuMemAllocAsync",
            "stream": 0,
            "reserved": b.reserved,
            "movable": False,
            "reason": "MPI",
            "label": "x",
            "into": ({}, "place"),
        },
    ),  # fmt: skip
    "wrap": lambda b: Case(tack_memory.wrap, {"ptr": 1 << 41, "nbytes": 64, "device": DEVICE, "owner": None}),
    "launch": lambda b: Case(entered(tack_memory.launch), {"buffers": (b.buffer, b.view), "stream": 0}),
    "hold": lambda b: Case(entered(tack_memory.hold), {"arrays": (b.buffer, b.view), "reason": "texture"}),
    "spill": lambda b: Case(tack_memory.spill, {"arrays": (b.buffer, b.view)}),
    "restore": lambda b: Case(tack_memory.restore, {"arrays": (b.buffer, b.spilled)}),
    "label": lambda b: Case(tack_memory.label, {"name": "mesh", "arrays": (b.buffer,)}),
    "stream": lambda b: Case(tack_memory.stream, {"device": DEVICE}),
    "synchronize": lambda b: Case(tack_memory.synchronize, {"device": DEVICE}),
    "empty_cache": lambda b: Case(tack_memory.empty_cache, {"device": DEVICE}),
    "empty_host_pool": lambda b: Case(tack_memory.empty_host_pool, {}),
    "devices": lambda b: Case(tack_memory.devices, {}),
    "memory_info": lambda b: Case(tack_memory.memory_info, {"device": DEVICE}),
    "reset_peak_memory": lambda b: Case(tack_memory.reset_peak_memory, {"device": DEVICE}),
    "get_memory_budget": lambda b: Case(tack_memory.get_memory_budget, {"device": DEVICE}),
    "set_memory_budget": lambda b: Case(
        tack_memory.set_memory_budget, {"size": "1 MiB", "device": DEVICE, "strict": True}, lambda _: tack_memory.set_memory_budget(None, DEVICE)
    ),
    "memory_report": lambda b: Case(tack_memory.memory_report, {"device": DEVICE}),
    "set_origins": lambda b: Case(tack_memory.set_origins, {"mode": "line"}, lambda before: tack_memory.set_origins(before)),
    "memory_peak": lambda b: Case(entered(tack_memory.memory_peak), {"device": DEVICE, "label": "x", "on_exit": print_nothing}),
    "memory_peak.__call__": lambda b: Case(tack_memory.memory_peak(DEVICE).__call__, {"function": some_function}),
    "MemoryPeak": lambda b: Case(entered(tack_memory.MemoryPeak), {"device": DEVICE, "label": "x", "on_exit": print_nothing}),
    "MemoryPeak.__call__": lambda b: Case(tack_memory.memory_peak(DEVICE).__call__, {"function": some_function}),
    "memory_budget": lambda b: Case(entered(tack_memory.memory_budget), {"size": "1 MiB", "device": DEVICE, "strict": True}),
    "record_timeline": lambda b: Case(entered(tack_memory.record_timeline), {"device": DEVICE, "capacity": 10}),
    "Timeline": lambda b: Case(entered(tack_memory.Timeline), {"device": DEVICE, "capacity": 10}),
    "Timeline.to_csv": lambda b: Case(recorded().to_csv, {"path": os.devnull}),
    "Timeline.to_html": lambda b: Case(recorded().to_html, {"path": os.devnull}),
    **{
        f"MemoryReport.{name}": lambda b, name=name: Case(getattr(tack_memory.memory_report(DEVICE), name), {"path": os.devnull})  # type: ignore[misc]
        for name in ("save", "to_html")
    },
    "MemoryReport.to_pprof": lambda b: Case(tack_memory.memory_report(DEVICE).to_pprof, {"path": os.devnull, "kind": "spilled"}),
    "MemoryReport.load": lambda b: Case(tack_memory.MemoryReport.load, {"path": saved_report()}),
    "MemoryReport.relative_to": lambda b: Case(tack_memory.memory_report(DEVICE).relative_to, {"root": "/tmp"}),
    "MemoryReport.diff": lambda b: Case(tack_memory.memory_report(DEVICE).diff, {"later": tack_memory.memory_report(DEVICE)}),
    "MemoryReport.print": lambda b: Case(tack_memory.memory_report(DEVICE).print, {"file": io.StringIO()}),
    "MemoryReport.to_dict": lambda b: Case(tack_memory.memory_report(DEVICE).to_dict, {}),
    "Holder.to_dict": lambda b: Case(tack_memory.memory_report(DEVICE).holders[0].to_dict, {}),
    "DeviceMemoryError.fields": lambda b: Case(tack_memory.DeviceMemoryError(device=DEVICE, requested=KIB).fields, {}),
    "Buffer.free": lambda b: Case(filled(8, DEVICE).free, {}),
    **methods_of("Buffer", lambda b: b.buffer),
    **methods_of("BufferView", lambda b: b.buffer.view(0, KIB)),
    "Exported.close": lambda b: Case(b.exported.close, {}),
    "Exported.__dlpack__": lambda b: Case(b.exported.__dlpack__, {"stream": None, "max_version": (1, 0), "dl_device": (1, 0), "copy": False}),
    "Exported.__dlpack_device__": lambda b: Case(b.exported.__dlpack_device__, {}),
    "Reservation.close": lambda b: Case(b.reserved.close, {}),
    "event_counts": lambda b: Case(tack_memory.event_counts, {}),
    "event_hook": lambda b: Case(entered(tack_memory.event_hook), {"hook": print_nothing, "domains": ("numpy", "device"), "sync": True}),
    "flush_events": lambda b: Case(tack_memory.flush_events, {}),
    "get_include": lambda b: Case(tack_memory.get_include, {}),
    "set_progress": lambda b: Case(tack_memory.set_progress, {"progress": print_four, "after": 0.5}, lambda before: tack_memory.set_progress(before)),
    "set_arrival_device": lambda b: Case(tack_memory.set_arrival_device, {"device": DEVICE}, lambda before: tack_memory.set_arrival_device(before)),
    "set_event_hook": lambda b: Case(
        tack_memory.set_event_hook, {"hook": print_four, "user_data": "x", "sync": True}, lambda before: tack_memory.set_event_hook(before)
    ),
}
BAD_IN[("memory_budget", "size")] = BAD_IN[("set_memory_budget", "size")]
BAD_IN |= {
    ("Exported.__dlpack__", "stream"): [("x", TypeError), (1.5, TypeError), ([], TypeError)],
    ("Exported.__dlpack__", "max_version"): [(5, TypeError), ("1.0", TypeError), ((1,), (TypeError, ValueError)), (("a", "b"), TypeError)],
    ("Exported.__dlpack__", "dl_device"): [(5, TypeError), ((99, 0), (BufferError, ValueError)), (("a", 0), TypeError)],
    ("Exported.__dlpack__", "copy"): TRUTHS,
    ("memory_peak", "label"): [wrong for wrong in TEXTS if wrong[0] != "\ud800"],
    ("MemoryPeak", "label"): [wrong for wrong in TEXTS if wrong[0] != "\ud800"],
}

BAD_IN |= {
    ("event_hook", "hook"): [(5, TypeError), ("print", TypeError), (None, TypeError)],
    ("event_hook", "domains"): [("gpu", ValueError), ((), ValueError), (("numpy", "gpu"), ValueError), (5, TypeError), ((5,), TypeError), (None, TypeError)],
    ("event_hook", "sync"): TRUTHS,
    ("set_event_hook", "hook"): [(5, TypeError), ("print", TypeError), ([], TypeError)],
    ("set_event_hook", "user_data"): ANYTHING,
    ("set_event_hook", "sync"): TRUTHS,
    ("set_progress", "progress"): [(5, TypeError), ("bar", ValueError), ([], TypeError), (True, TypeError)],
    ("set_progress", "after"): [(-1, ValueError), (NAN, ValueError), (float("inf"), ValueError), ("1", TypeError), (True, TypeError), (None, TypeError)],
}

NOT_CALLED = {
    "Event": "a result",
    "EventHook": "made by set_event_hook only",
    "install": "a host is needed; its bad arguments are below",
    "uninstall": "a host is needed; its bad arguments are below",
    "Timeline.plot": "matplotlib is needed; its bad arguments are below",
    "Buffer": "made by allocate and adopt only",
    "BufferView": "made by view and wrap only",
    "Exported": "made by export only",
    "Reservation": "made by reserve only",
    "MemoryInfo": "a result",
    "MemoryReport": "a result",
    "Holder": "a result",
    "DeviceMemoryError": "an error",
    "DeviceLostError": "an error",
    "ForkError": "an error",
    "StreamCaptureError": "an error",
    "HostHasMemoryError": "an error",
    "MissingSeamError": "an error",
}
PROTOCOLS = {"__call__", "__dlpack__", "__dlpack_device__"}


def print_nothing(_: object) -> None: ...


def print_four(old: int, new: int, size: int, user_data: object) -> None: ...


def saved_report() -> str:
    path = os.path.join(tempfile.gettempdir(), f"tack_memory-report-{os.getpid()}.json")
    tack_memory.memory_report(DEVICE).save(path)
    return path


def recorded() -> tack_memory.Timeline:
    with tack_memory.record_timeline(DEVICE) as timeline:
        pass
    return timeline


def address(bench: Bench) -> int:
    """Memory that is the caller's again, as a framework's would be."""
    from tack_memory._native import _fast

    return _fast.disown(bench.other if not bench.other.holds else filled(KIB, DEVICE, 6))


def entered(context: Callable[..., Any]) -> Callable[..., Any]:
    """The context manager's arguments count when the block is entered, at the latest."""

    def enter(*args: Any, **kwargs: Any) -> None:
        with context(*args, **kwargs):
            pass

    enter.__signature__ = inspect.signature(context)  # type: ignore[attr-defined]
    return enter


def public_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in tack_memory.__all__:
        value = getattr(tack_memory, name)
        if callable(value):
            yield name, value
            if isinstance(value, type):
                yield from ((f"{name}.{member}", function) for member, function in public_methods(value))


def public_methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those that the package wrote, not what every tuple or exception has."""
    for name in dir(kind):
        written = next(base for base in kind.__mro__ if name in vars(base)).__module__ != "builtins"
        if written and (not name.startswith("_") or name in PROTOCOLS) and callable(value := getattr(kind, name)):
            yield name, value


def test_every_public_call_and_parameter_has_cases() -> None:
    bench = Bench()
    for name, _ in public_calls():
        assert name in CALLS or name in NOT_CALLED, f"{name} is public and has no case here"
        if name in CALLS:
            case = CALLS[name](bench)
            for parameter in inspect.signature(case.function).parameters:
                assert parameter in case.arguments, f"{name}: the parameter {parameter} has no value in its case"
                assert (name, parameter) in BAD_IN or parameter in BAD, f"{name}: the parameter {parameter} has no wrong values"
            release_adopted(name, case)
    assert {*CALLS, *NOT_CALLED} <= {name for name, _ in public_calls()}, "an entry for something that is no longer public"


def release_adopted(name: str, case: Case) -> None:
    if name == "adopt":  # the case took memory out of the books: give it back
        tack_memory.adopt(case.arguments["ptr"], case.arguments["nbytes"], DEVICE, how="cuMemAllocAsync").free()


def run(case: Case, arguments: dict[str, Any]) -> Any:
    """Call with arguments by position where they must be, else by keyword."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, parameter in inspect.signature(case.function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            args.extend(arguments[name])
        elif (
            parameter.kind is parameter.POSITIONAL_ONLY
            or any(later.kind is later.VAR_POSITIONAL for later in inspect.signature(case.function).parameters.values())
            and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ):
            args.append(arguments[name])
        else:
            kwargs[name] = arguments[name]
    return case.function(*args, **kwargs)


@pytest.mark.parametrize("name", CALLS)
def test_the_case_itself_works(name: str) -> None:
    case = CALLS[name](Bench())
    case.undo(run(case, case.arguments))
    gc.collect()


def figures() -> list[tuple[Any, ...]]:
    found = []
    for device in ("sim:0", "sim:1"):
        info = tack_memory.memory_info(device)
        found.append((info.in_use, info.spilled, info.reserved, info.budget, info.strict, info.spilled_bytes, info.restored_bytes, info.over_budget_count))
    return found


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_the_contracts_errors_and_change_nothing(name: str) -> None:
    bench = Bench()
    case = CALLS[name](bench)
    contents_before, before = bench.contents(), figures()
    problems = []
    for parameter, good in case.arguments.items():
        variadic = inspect.signature(case.function).parameters[parameter].kind is inspect.Parameter.VAR_POSITIONAL
        for value, expected in BAD_IN.get((name, parameter), BAD.get(parameter, [])):
            wrong = value(bench) if inspect.isfunction(value) and value.__name__ == "<lambda>" else value
            try:
                result = run(case, {**case.arguments, parameter: (*good, wrong) if variadic else wrong})
            except expected:
                pass
            except BaseException as error:
                problems.append(f"{parameter}={value!r}: {type(error).__name__}: {error}, expected {expected}")
            else:
                problems.append(f"{parameter}={value!r} was accepted: {result!r}")
                del result
    gc.collect()
    assert not problems, "\n".join(problems)
    assert figures() == before
    if name != "adopt":
        assert bench.contents() == contents_before
    for device in ("sim:0", "sim:1"):
        call("Check", _devices.resolve(device))
    release_adopted(name, case)


@pytest.mark.parametrize("name", CALLS)
def test_unknown_keywords_and_too_many_arguments_are_type_errors(name: str) -> None:
    case = CALLS[name](Bench())
    before = figures()
    with pytest.raises(TypeError):
        case.function(**case.arguments, no_such_argument=1)
    if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in inspect.signature(case.function).parameters.values()):
        with pytest.raises(TypeError):
            case.function(*range(20))
    required = [p for p in inspect.signature(case.function).parameters.values() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if required:
        with pytest.raises(TypeError):
            case.function()
    assert figures() == before
    release_adopted(name, case)


NO_BLOCK: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "host memory": lambda block, host: (host, KIB),
    "nothing": lambda block, host: (1 << 40, KIB),
    "inside a block": lambda block, host: (block + 64, 64),
    "larger than the block": lambda block, host: (block, 2 * MIB),
}
"""(address of a block of 1 MiB, address of host memory) -> what is wrongly said to be a block."""


@pytest.mark.parametrize("device", SIMULATED)
@pytest.mark.parametrize("wrong", NO_BLOCK)
def test_what_is_no_block_of_the_driver_is_not_adopted(device: str, wrong: str) -> None:
    from tack_memory._native import _fast

    how, host = how_of(device), ctypes.create_string_buffer(MIB)
    block = _fast.disown(filled(MIB, device))
    pointer, nbytes = NO_BLOCK[wrong](block, ctypes.addressof(host))
    kept = filled(KIB, device)
    before = tack_memory.memory_info(device)
    for reserved in (None, tack_memory.reserve(64, device)):
        place: dict[str, object] = {"pointer": pointer}
        with pytest.raises(ValueError, match=f"^{device} cannot adopt") as refused:
            tack_memory.adopt(pointer, nbytes, device, how=how, reserved=reserved, into=(place, "pointer"))
        assert place == {"pointer": pointer}, "the caller keeps it"
        if wrong not in ("host memory", "nothing"):
            assert f"{block + MIB:#x}" in str(refused.value), "where the block ends"
    after = tack_memory.memory_info(device)
    assert (after.in_use, after.spilled, after.reserved, after.spill_count) == (before.in_use, before.spilled, 0, before.spill_count)
    tack_memory.adopt(block, MIB, device, how=how).free()
    assert contents(kept) == pattern(KIB)


@pytest.mark.parametrize("device", SIMULATED)
def test_memory_of_another_device_is_not_adopted(device: str) -> None:
    """A mistake of one digit: the memory is counted where it lies, and its free here would pull it away there."""
    mine, other = filled(KIB, device), f"{device[:-1]}1"
    pointer = mine.device_ptr
    with pytest.raises(ValueError, match=f"^{other} cannot adopt"):
        tack_memory.adopt(pointer, KIB, other, how=how_of(other))
    after = tack_memory.memory_info(other)
    assert (after.in_use, after.reserved) == (0, 0)
    assert mine.device_ptr == pointer and contents(mine) == pattern(KIB)


SIMULATED_BY: dict[str, list[Wrong]] = {
    "simulate": [*SIZES, ("50%", ValueError)],
    "simulate_capacity": [*SIZES, ("50%", ValueError), (0, ValueError)],
    "simulate_addresses": [("old", ValueError), ("", ValueError), (1, ValueError), (b"fresh", ValueError)],
}


@pytest.mark.parametrize("argument", SIMULATED_BY)
def test_wrong_ways_to_simulate_are_refused(argument: str) -> None:
    host = ModuleType("host")  # what is wrong with it would come later
    more = {"simulate": "64 KiB"} if argument == "simulate_addresses" else {}
    for wrong, expected in SIMULATED_BY[argument]:
        with pytest.raises(expected):
            tack_memory.install(host, **{argument: wrong}, **more)  # type: ignore[arg-type]
    assert tack_memory._hosts.registered() == []


@pytest.mark.parametrize(("function", "arguments"), [("install", ["host", *SIMULATED_BY]), ("uninstall", ["host"])])
def test_wrong_hosts_are_refused(function: str, arguments: list[str]) -> None:
    call_ = getattr(tack_memory, function)
    assert list(inspect.signature(call_).parameters) == arguments
    for wrong, expected in BAD["host"]:
        with pytest.raises(expected):
            call_(wrong)
    assert tack_memory._hosts.registered() == []


def test_a_timeline_is_drawn_into_axes_only() -> None:
    figures = pytest.importorskip("matplotlib.figure", reason="needs matplotlib, as in the extras demo and bench; the checkout's own environment has it")
    timeline = recorded()
    assert list(inspect.signature(timeline.plot).parameters) == ["ax"]
    for wrong in (5, "ax", [], figures.Figure(), figures.Figure().subplots(2)):
        with pytest.raises(TypeError, match=f"one matplotlib Axes, not {type(wrong).__name__}"):
            timeline.plot(wrong)


@pytest.mark.parametrize("kind", ["buffer", "view", "exported", "reserved"])
def test_attributes_cannot_be_set_or_deleted(kind: str) -> None:
    found = getattr(Bench(), kind)
    for name in [name for name in dir(type(found)) if not name.startswith("_")]:
        if name == "label":
            for wrong, expected in TEXTS:
                with pytest.raises(expected):
                    found.label = wrong
            assert found.label == "bench"
            continue
        with pytest.raises((AttributeError, TypeError)):
            setattr(found, name, 1)
        with pytest.raises((AttributeError, TypeError)):
            delattr(found, name)
    with pytest.raises(AttributeError):
        found.no_such_attribute = 1


def test_the_bench_is_what_the_cases_assume() -> None:
    bench = Bench()
    assert bench.contents() == [pattern(KIB, seed) for seed in (1, 2, 3, 4)]
    assert bench.spilled.is_spilled and bench.freed.state == "freed"
