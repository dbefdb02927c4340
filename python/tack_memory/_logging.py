"""The logger "tack_memory" and the switch TACK_MEMORY_LOG. The module `logging` is imported only when there is something to log.

The compiled core cannot call Python. What it has to say and no call can raise (the driver failed to free memory; a device broke in a
destructor) it keeps, the first 64 messages of each device and the number of those after them, and the logger gets them with the next call into
the core, of any thread, or when the interpreter ends. A process that is killed before that takes them with it.
"""

from __future__ import annotations

import atexit
import sys

from ._native import _fast
from ._settings import is_command_line, settings, told_unknown, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logging import Logger


_configured = False  # the handler of TACK_MEMORY_LOG is there


def logger() -> Logger:
    """The logger "tack_memory"."""
    import logging

    return logging.getLogger("tack_memory")


def debug(message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
    """Log for those who look for it. Where nobody imported `logging`, nobody can have asked for these messages."""
    if "logging" in sys.modules:
        logger().debug(message, *arguments, exc_info=exc_info)


def configure() -> None:
    """Write the log to stderr from the level that TACK_MEMORY_LOG names; without the switch, leave it to the program."""
    global _configured
    if settings.log is None or _configured:  # it is called again where the package is loaded anew (%reload_ext)
        return
    _configured = True
    import logging

    found = logger()
    found.setLevel(settings.log)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    found.addHandler(handler)
    found.propagate = False  # the program's own root handler would write each line a second time


def tell_unknown_switches() -> None:
    """A misspelt switch does nothing, which nobody would notice: one warning at import for each."""
    for name, meant in unknown.items():
        if is_command_line():  # as an error of a switch is told there
            print(f"tack_memory: {told_unknown(name, meant)}", file=sys.stderr)
        else:
            warn(told_unknown(name, meant))


def drain() -> None:
    """Give the logger what the core has kept for it. The C lane calls this when a call brings word of something; cheap where there is nothing."""
    if sys.is_finalizing():
        return  # the modules are being taken apart, and what a log needs cannot be imported any more
    taken = _fast.take_notices()
    if taken == "[]" or ("logging" not in sys.modules and '"WARNING"' not in taken and '"ERROR"' not in taken):
        return  # where nobody imported `logging`, nobody can have asked for what is for information only, and it costs a few milliseconds
    import json
    import logging

    found = logger()
    for notice in json.loads(taken):
        level = logging.getLevelNamesMapping()[notice["level"]]
        if not found.isEnabledFor(level):
            continue
        record = found.makeRecord(found.name, level, "(tack_memory core)", 0, notice["text"], (), None)
        record.created = notice["seconds"]  # when it happened; this may be much later
        record.msecs = record.created % 1 * 1000
        found.handle(record)


atexit.register(drain)


def warning(message: str, *arguments: object) -> None:
    """Log what a user should see even if nobody asked for a log."""
    logger().warning(message, *arguments)


def warn(message: str) -> None:
    """Give a RuntimeWarning at the line outside of this package that led here, for what is no reason to stop the program.

    Where the program turns warnings into errors, it is logged: an import must not fail with it."""
    try:
        warn_caller(message, RuntimeWarning)
    except RuntimeWarning:
        warning("%s", message)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Give a warning at the line outside of this package that led here, however many functions of ours lie between."""
    import warnings

    inside = ("tack_memory", "importlib", "_frozen_importlib")  # importlib's own core has either name, before and after `import importlib`
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__"), registry)
