"""Finalizers that run in the middle of something else, as Python may run one anywhere."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

WAYS = ("__del__", "finalize")
"""How an object says what is to be done at its end."""


class _Cycle:
    """Only the garbage collector finds it."""

    def __init__(self) -> None:
        self.me = self


class _Finalized(_Cycle):
    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.work = work

    def __del__(self) -> None:
        self.work()


def run_as_finalizer(work: Callable[[], object], way: str = "__del__") -> None:
    """Let the garbage collector run `work` now."""
    if way == "__del__":
        _Finalized(work)
    else:
        weakref.finalize(_Cycle(), work)
    gc.collect()


def interrupted(function: Callable[..., Any], work: Callable[[], object], way: str = "__del__") -> Callable[..., Any]:
    """A function in whose first call a finalizer runs before all else."""
    waiting = [work]

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        while waiting:
            run_as_finalizer(waiting.pop(), way)
        return function(*args, **named)

    return call
