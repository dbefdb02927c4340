"""The control plane: gopy's module with typed errors, and with its JSON turned into Python values. Nothing hot goes through here."""

from __future__ import annotations

from ._errors import ForkError, typed
from ._logging import drain
from ._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def call(name: str, *arguments: object) -> Any:
    """Call a function of Go's package `bindings`; its errors arrive as the exceptions that they mean."""
    if _fast.forked():
        raise ForkError(
            "this cannot be done in a process made by fork(): the Go runtime and the drivers do not survive it. "
            'Start processes with the "spawn" or "forkserver" method (multiprocessing.set_start_method)'
        )
    from ._native import bindings  # at the first call: importing gopy's module takes long

    try:
        return typed(getattr(bindings, name))(*arguments)
    finally:
        drain()


def call_json(name: str, *arguments: object) -> Any:
    """Call a function whose result is a JSON text, and return its value."""
    import json

    return json.loads(call(name, *arguments))
