"""Which kind of device a host runs on, told by the driver library that it loaded."""

from __future__ import annotations

import os

from .._native import SIM_LIBRARIES, sim_library_path
from ._protocol import MissingSeamError


def kind_on_library(kind: str, library: str | None) -> str:
    """The kind of device in our words, from the driver library that the host loaded (None: the system's).

    A pointer can only be adopted by the very library that it came from."""
    if library is None:
        return kind
    for simulated in SIM_LIBRARIES:
        if os.path.realpath(library) == os.path.realpath(sim_library_path(simulated)):
            return simulated
    switch = f"TACK_MEMORY_{kind.upper()}_LIBRARY"
    if os.path.realpath(library) != os.path.realpath(os.environ.get(switch, "")):
        raise MissingSeamError(f"the host runs on the driver {library}, and tack_memory does not: set {switch} to the same path")
    return kind
