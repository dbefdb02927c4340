"""The stub says what the compiled module does, and each public docstring says what a user has to know: units, errors, threads."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tack_memory

NO_STUB_CAN_SAY = r"""
tack_memory\._native\.(_fast\.MemoryInfo|_events\.Event)\.(__match_args__|__replace__)  # the second from Python 3.13 on
tack_memory\._native\._fast\.(launch|PeakScope|PointerSlot)  # PEP 800's disjoint_base, which older type checkers do not know
tack_memory\._native\._numpy\.(Handler|Track)  # types' names
"""


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed here; the checkout's own environment has it")
@pytest.mark.parametrize("module", ["_fast", "_events", "_numpy"])
def test_the_stub_agrees_with_the_compiled_module(module: str, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text(NO_STUB_CAN_SAY)
    command = [sys.executable, "-m", "mypy.stubtest", f"tack_memory._native.{module}", "--concise", "--allowlist", str(allowed), "--ignore-unused-allowlist"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def public() -> dict[str, object]:
    """What is public and called or made by a user, and the methods of a Buffer and its views."""
    found: dict[str, object] = {}
    for name in tack_memory.__all__:
        value = getattr(tack_memory, name)
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        if not is_error and name not in ("__version__", "Holder", "MemoryReport"):
            found[name] = value
    for kind in (tack_memory.Buffer, tack_memory.BufferView):
        for name, value in vars(kind).items():
            if not name.startswith("_") and callable(value):
                found[f"{kind.__name__}.{name}"] = value
    return found


@pytest.mark.parametrize("name", public())
def test_a_public_docstring_says_units_errors_and_threads(name: str) -> None:
    value = public()[name]
    text = inspect.getdoc(value) or ""
    # Nothing of theirs is called with arguments.
    plain_data = name in ("Event", "EventHook", "MemoryInfo", "Exported", "Reservation", "BufferView")
    assert "thread" in text or name == "MemoryInfo", f"{name}: whether it may be used from any thread"
    assert "Raises\n------" in text or plain_data or name == "devices", f"{name}: its errors"
    try:
        parameters = set(inspect.signature(value).parameters) - {"self", "function", "fields", "iterable"}  # type: ignore[arg-type]
    except ValueError:
        parameters = set()
    if "The parameters are those of" in text:
        return
    described = {word.strip(" *") for line in text.splitlines() if line[:1].strip() for word in line.partition(" : ")[0].split(",")}
    assert parameters <= described, f"{name}: not described: {parameters - described}"
    if parameters & {"nbytes", "size", "offset"}:
        assert "bytes" in text.lower(), f"{name}: the unit of its sizes"
