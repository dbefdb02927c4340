"""What is left to undo, and is undone whatever comes in between: Ctrl-C, a signal handler that raises, a step that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Undo:
    """Steps that each undo something, the last one first.

    A step is added before what it undoes is done, and taken out after it has run: so Ctrl-C between the two never loses one. Hence a step may run
    where there is nothing to undo, and twice.
    """

    __slots__ = ("_added", "_steps")

    def __init__(self) -> None:
        self._steps: dict[int, Callable[[], object]] = {}
        self._added = 0

    def add(self, step: Callable[[], object]) -> None:
        self._added += 1
        self._steps[self._added] = step

    def __bool__(self) -> bool:
        """Whether something is left."""
        return bool(self._steps)

    def run(self) -> None:
        """Run all of them, also after one that fails; the first exception is raised then. What Ctrl-C has stopped is gone through once more."""
        try:
            self._each(last=False)
        except BaseException:
            self._each(last=True)
            raise

    def _each(self, *, last: bool) -> None:
        """last: a step that has failed before is given up."""
        failed: Exception | None = None
        for number in sorted(self._steps, reverse=True):
            step = self._steps.get(number)
            if step is None:  # another thread has run it
                continue
            try:
                step()
            except Exception as error:
                failed = failed or error
                if not last:
                    continue
            self._steps.pop(number, None)
        if failed is not None:
            raise failed
