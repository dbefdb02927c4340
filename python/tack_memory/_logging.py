"""The logger "tack_memory" and the switch TACK_MEMORY_LOG. The module `logging` is imported only when there is something to log."""

from __future__ import annotations

import sys

from ._settings import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logging import Logger


def logger() -> Logger:
    """The logger "tack_memory"."""
    import logging

    return logging.getLogger("tack_memory")


def debug(message: str, *arguments: object) -> None:
    """Log for those who look for it. Where nobody imported `logging`, nobody can have asked for these messages."""
    if "logging" in sys.modules:
        logger().debug(message, *arguments)


def configure() -> None:
    """Write the log to stderr from the level that TACK_MEMORY_LOG names; without the switch, leave it to the program."""
    if settings.log is None:
        return
    import logging

    found = logger()
    found.setLevel(settings.log)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    found.addHandler(handler)
    found.propagate = False  # the program's own root handler would write each line a second time


def warning(message: str, *arguments: object) -> None:
    """Log what a user should see even if nobody asked for a log."""
    logger().warning(message, *arguments)
