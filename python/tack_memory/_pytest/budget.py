"""`--device-memory-budget`: a run of pytest under a budget, as if TACK_MEMORY_BUDGET had said it."""

from __future__ import annotations

import os

from tack_memory import _devices, get_memory_budget
from tack_memory._native import _fast
from tack_memory._settings import SIM_CPU_KIND, parse_budgets, settings

VARIABLE = "TACK_MEMORY_BUDGET"


def with_budgets() -> list[str]:
    """The devices that are open, but for NumPy's memory, which is counted only."""
    return [name for name in _devices.open_names() if name != _devices.NUMPY]


class Budget:
    """The budgets that one run asks for: of the devices that are open, of those that will be opened, and of processes that the tests start."""

    def __init__(self, text: str, flag: str) -> None:
        """Raises ValueError for a text of a wrong form."""
        self.text = text
        self.budget, self.budgets = parse_budgets(text, flag)

    def start(self) -> None:
        """Set them. Raises ValueError where a percentage is of an unknown total."""
        self.settings = settings.budget, settings.budgets
        self.variable = os.environ.get(VARIABLE)
        self.before = {name: (get_memory_budget(name), _fast.get_strict(name)) for name in with_budgets()}
        self._set(self.budget, self.budgets, self.text)
        try:
            for name in self.before:
                _devices.apply_budget(name)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Another run of pytest in this process may ask for something else."""
        self._set(*self.settings, self.variable)
        for name in with_budgets():
            if name.startswith(SIM_CPU_KIND):
                continue  # its budget is what --device-memory-simulate or install() asked for
            size, strict = self.before.get(name, (None, False))
            _fast.set_memory_budget(size, name, strict=strict)
            if name not in self.before:
                _devices.apply_budget(name)

    def _set(self, budget: str | None, budgets: dict[str, str], variable: str | None) -> None:
        settings.budget, settings.budgets = budget, budgets
        if variable is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = variable

    def __str__(self) -> str:
        named = [f"{device} {size}" for device, size in self.budgets.items()]
        return "device memory: budget " + ", ".join(named + ([f"{self.budget} on each {'other ' if named else ''}device"] if self.budget else []))
