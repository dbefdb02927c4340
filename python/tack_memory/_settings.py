"""The switches of the environment.

Their syntax is checked when the package is imported, so that a typing error shows at once; what a value means (a percentage, a
library) is worked out at the first use of the device. An empty variable counts as not set.
"""

from __future__ import annotations

import os
import sys

from ._sizes import parse_size

SIM_KINDS = ("sim", "sim-hip", "sim-level_zero")
"""The kinds of simulated devices: each is a vendor's backend over a software driver with that vendor's ABI. "sim-cuda" is another name of "sim"."""

SIM_CPU_KIND = "sim-cpu"
"""The kind of the simulated device that a framework's CPU backend computes on; there is one, "sim-cpu:0", once `install(host, simulate=...)` asked for it."""

SIMULATED_KINDS = (*SIM_KINDS, SIM_CPU_KIND)
"""The kinds that exist only when they are named or asked for: nobody measures a simulation by accident."""

KINDS = ("cuda", "hip", "level_zero", "metal", "cpu", *SIMULATED_KINDS)
"""The kinds of device, in the order in which a default is looked for."""

ADDRESS_MODES = ("fresh", "reuse")
"""What becomes of the addresses of freed memory on "sim-cpu:0": never used again (a stale pointer crashes), or used again at once (it reads wrong numbers)."""

_SMALLEST_SIM = 2**20
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

SWITCHES = {
    "TACK_MEMORY_BUDGET": 'budget of each device ("8GiB", "80%"), or of some ("cuda:0=8GiB,cuda:1=50%")',
    "TACK_MEMORY_AUTOINSTALL": "0: Tack is not plugged in by itself",
    "TACK_MEMORY_LOG": "level of the log on stderr: debug, info, warning or error",
    "TACK_MEMORY_HOST_LIMIT": 'most bytes that host copies of spilled buffers may take ("16 GiB"); else 80 % of what is available',
    "TACK_MEMORY_CUDA_LIBRARY": "the CUDA driver library to load, in place of libcuda.so.1",
    "TACK_MEMORY_HIP_LIBRARY": "the HIP library to load, in place of libamdhip64.so.7, .6 or .5",
    "TACK_MEMORY_LEVEL_ZERO_LIBRARY": "the Level Zero loader to load, in place of libze_loader.so.1",
    "TACK_MEMORY_POOLS": "0: cuda and hip devices allocate without memory pools, for drivers whose pools fail or whose frees hang (slower)",
    "TACK_MEMORY_SIM": 'capacity of simulated devices ("sim:0", "sim-hip:0", "sim-level_zero:0"), one a device: "256 MiB,64 MiB"',
    "TACK_MEMORY_SIMULATE_ADDRESSES": "freed addresses under install(host, simulate=...): fresh (never used again, so that a stale pointer crashes; the "
    "default) or reuse (used again at once, so that it reads wrong numbers)",
    "TACK_MEMORY_CHECK": "1: verify the books after every operation (slow)",
}
"""Each switch and what it does, in a few words; shown by `python -m tack_memory doctor`."""

_PREFIX = "TACK_MEMORY_"

BUILD_AND_TEST_VARIABLES = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "BUILD_LATER", "FETCH_HEADERS", "CUDA_HEADERS", "HIP_HEADERS", "LEVEL_ZERO_HEADERS",
        "TEST_CHILD", "TEST_DEVICES", "TEST_SEED", "TEST_SIM_FOLDER",
    )
)  # fmt: skip
"""What the build and the tests of this project read: no switches, and no misspelt ones either."""


class Settings:
    """The values of the switches: as written where they depend on a device, parsed otherwise."""

    __slots__ = ("autoinstall", "budget", "budgets", "check", "host_limit", "log", "pools", "sim", "simulate_addresses")

    def __init__(self, environ: os._Environ[str] | dict[str, str]) -> None:
        """Read the switches from `environ`. Raises ValueError, naming the variable, where one has a wrong form."""
        self.autoinstall: bool = _boolean(environ, "TACK_MEMORY_AUTOINSTALL", True)
        self.check: bool = _boolean(environ, "TACK_MEMORY_CHECK", False)
        self.pools: bool = _boolean(environ, "TACK_MEMORY_POOLS", True)
        self.log: str | None = _level(environ, "TACK_MEMORY_LOG")
        self.budget: str | None  # of every device that is not named; a size as written
        self.budgets: dict[str, str]  # device or kind -> size as written
        self.budget, self.budgets = _budgets(environ, "TACK_MEMORY_BUDGET")
        self.host_limit: int | None = _host_limit(environ, "TACK_MEMORY_HOST_LIMIT")
        self.sim: tuple[int, ...] | None = _capacities(environ, "TACK_MEMORY_SIM")
        self.simulate_addresses: str = _one_of(environ, "TACK_MEMORY_SIMULATE_ADDRESSES", ADDRESS_MODES)

    def budget_of(self, device: str) -> tuple[str, bool] | None:
        """The budget of a device as it was written, and whether the device (or its kind) was named; None: no budget."""
        for key in (device, device.partition(":")[0]):
            if key in self.budgets:
                return self.budgets[key], True
        return None if self.budget is None else (self.budget, False)


def unknown_switches(environ: os._Environ[str] | dict[str, str]) -> dict[str, str | None]:
    """The variables that are named as ours are and that nobody reads; for each the switch that was meant, or None where none is near."""
    names = [name for name in environ if name.startswith(_PREFIX) and name not in SWITCHES and name not in BUILD_AND_TEST_VARIABLES]
    if not names:
        return {}
    from difflib import get_close_matches  # costs more than all of this module, so only where there is something to say

    known = [name.removeprefix(_PREFIX) for name in SWITCHES]
    near = {name: get_close_matches(name.removeprefix(_PREFIX).upper(), known, 1) for name in sorted(names)}
    return {name: _PREFIX + found[0] if found else None for name, found in near.items()}


def told_unknown(name: str, meant: str | None) -> str:
    """The sentence for one of `unknown_switches`."""
    return f"{name} is no setting of tack_memory, and does nothing; " + (
        f"did you mean {meant}?" if meant else "python -m tack_memory doctor lists those there are"
    )


def parse_device_name(text: str) -> tuple[str, int | None] | None:
    """Split "cuda:1" into its kind and ordinal (None for the kind alone); None: not the form of a device's name."""
    kind, colon, ordinal = text.partition(":")
    if kind == "sim-cuda":
        kind = "sim"
    if kind not in KINDS:
        return None
    if not colon:
        return kind, None
    if not (ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= 4 and str(int(ordinal)) == ordinal):
        return None
    return kind, int(ordinal)


def _read(environ: os._Environ[str] | dict[str, str], name: str) -> str | None:
    return (environ.get(name) or "").strip() or None


def _boolean(environ: os._Environ[str] | dict[str, str], name: str, default: bool) -> bool:
    text = _read(environ, name)
    if text is None:
        return default
    if text.lower() in _ON:
        return True
    if text.lower() in _OFF:
        return False
    raise ValueError(f"{name}={text}: must be {', '.join(_ON)} (it is on) or {', '.join(_OFF)} (it is off)")


def _one_of(environ: os._Environ[str] | dict[str, str], name: str, choices: tuple[str, ...]) -> str:
    """The choice that was written; the first where nothing was."""
    text = _read(environ, name)
    if text is not None and text.lower() not in choices:
        raise ValueError(f"{name}={text}: must be {' or '.join(choices)}")
    return choices[0] if text is None else text.lower()


def _level(environ: os._Environ[str] | dict[str, str], name: str) -> str | None:
    text = _read(environ, name)
    if text is not None and text.upper() not in _LEVELS:
        raise ValueError(f"{name}={text}: must be one of {', '.join(_LEVELS).lower()}")
    return None if text is None else text.upper()


def _host_limit(environ: os._Environ[str] | dict[str, str], name: str) -> int | None:
    text = _read(environ, name)
    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as wrong:
        raise ValueError(f"{name}: {wrong}") from None


def _capacities(environ: os._Environ[str] | dict[str, str], name: str) -> tuple[int, ...] | None:
    text = _read(environ, name)
    if text is None:
        return None
    capacities = []
    for part in text.split(","):
        try:
            capacities.append(parse_size(part))
        except ValueError as wrong:
            raise ValueError(f"{name}: {wrong}") from None
    if min(capacities) < _SMALLEST_SIM:  # it is no flag: "1" would be a device of one byte
        raise ValueError(f'{name}={text}: it is the capacity of simulated devices, 1 MiB or more each; write for example "256 MiB"')
    return tuple(capacities)


def _budgets(environ: os._Environ[str] | dict[str, str], name: str) -> tuple[str | None, dict[str, str]]:
    text = _read(environ, name)
    return (None, {}) if text is None else parse_budgets(text, name)


def parse_budgets(text: str, name: str) -> tuple[str | None, dict[str, str]]:
    """The size for every device (None: none), and those of named devices and kinds, as written: of "8GiB", "cuda:0=8GiB,cuda:1=50%".

    Raises ValueError, naming what it was read from.
    """
    everyone: str | None = None
    named: dict[str, str] = {}
    for part in text.split(","):
        device, equals, size = part.rpartition("=")
        device, size = device.strip(), size.strip()
        try:
            if parse_size(size, lambda: 2**40) == 0:
                raise ValueError(f"{size!r}: a budget must be above 0; to have no budget, leave it out")
            if equals:
                parsed = parse_device_name(device)
                if parsed is None:
                    raise ValueError(f"{device!r} is not a device; write for example cuda:0=8GiB")
                kind, ordinal = parsed
                device = kind if ordinal is None else f"{kind}:{ordinal}"  # by the name that the device has: there are two for "sim"
            if device in named or (not equals and everyone is not None):
                raise ValueError(f"{device or 'the budget of every device'} is given twice")
        except ValueError as wrong:
            raise ValueError(f"{name}={text}: {wrong}") from None
        if equals:
            named[device] = size
        else:
            everyone = size
    return everyone, named


def is_command_line() -> bool:
    """This import is on the way to `python -m tack_memory`: the interpreter looks for the module to run, and says so in sys.argv."""
    if sys.argv[:1] != ["-m"]:
        return False
    options = "".join(f" {argument}" for argument in sys.orig_argv[1:])
    return options.partition(" -m")[2].split(maxsplit=1)[:1] == [__package__]


def _of_this_process() -> Settings:
    try:
        return Settings(os.environ)
    except ValueError as wrong:
        if not is_command_line():
            raise
        # Who asks `python -m tack_memory doctor` what is wrong wants a line that says it: a traceback of this package's import does not.
        print(f"tack_memory: {wrong}", file=sys.stderr)
        sys.exit(2)


settings = _of_this_process()
unknown = unknown_switches(os.environ)
"""Variables of this process that look like switches and are none, as the package found them at its import; and what was meant."""
