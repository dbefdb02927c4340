"""Ctrl-C while a host is plugged in or out, and a second one while that is undone: the host can be taken out and plugged in again."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import pytest
from flavours import Flavour
from plugging import attributes, same

import tack_memory
from tack_memory import _hosts, hosts
from tack_memory.hosts._array_generation import ArrayGeneration
from tack_memory.hosts._patches import Patches


class Interrupts:
    """Stands in the place of a method: raises KeyboardInterrupt after each of its first calls."""

    def __init__(self, original: Any, times: int) -> None:
        self.original, self.left = original, times

    def __get__(self, instance: Any, _: type) -> Any:
        def method(*args: Any, **named: Any) -> Any:
            result = self.original(instance, *args, **named)
            if self.left:
                self.left -= 1
                raise KeyboardInterrupt
            return result

        return method


@pytest.mark.parametrize("detaches", [0, 1, 2, 3])
def test_an_install_that_is_interrupted(bare: ModuleType, flavour: Flavour, monkeypatch: pytest.MonkeyPatch, detaches: int) -> None:
    """Once at its end; then so many times in what undoes it."""
    before, a = attributes(bare), bare.full(1000, 7)
    with monkeypatch.context() as patched:
        patched.setattr(ArrayGeneration, "attach", Interrupts(ArrayGeneration.attach, 1))
        patched.setattr(Patches, "undo", Interrupts(Patches.undo, detaches))
        with pytest.raises(KeyboardInterrupt):
            tack_memory.install(bare)
    if detaches:
        assert hosts.plugged(bare.__name__) is not None
    else:
        assert hosts.plugged(bare.__name__) is None and same(before, attributes(bare)) and not _hosts.registered()
    tack_memory.install(bare)
    assert bare.memory_info().in_use == a.nbytes
    tack_memory.uninstall(bare)
    assert same(before, attributes(bare)) and a[999] == 7
    assert tack_memory.memory_info(flavour.device()).in_use == 0 and hosts.plugged(bare.__name__) is None and not _hosts.registered()


def test_an_uninstall_that_is_interrupted_can_be_done_again(bare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = attributes(bare)
    tack_memory.install(bare)
    with monkeypatch.context() as patched:
        patched.setattr(ArrayGeneration, "detach", Interrupts(ArrayGeneration.detach, 1))
        with pytest.raises(KeyboardInterrupt):
            tack_memory.uninstall(bare)
    tack_memory.uninstall(bare)
    assert same(before, attributes(bare)) and hosts.plugged(bare.__name__) is None


class Fragile(type):
    """A class whose attributes can be set and deleted, with an interrupt right after."""

    after = 0  # how many times it goes well

    def _done(cls) -> None:
        Fragile.after -= 1
        if Fragile.after < 0:
            Fragile.after = 1000
            raise KeyboardInterrupt

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, value)
        cls._done()

    def __delattr__(cls, name: str) -> None:
        super().__delattr__(name)
        cls._done()


@pytest.mark.parametrize("after", range(6))
def test_an_attribute_is_put_back_whenever_the_signal_comes(after: int) -> None:
    Fragile.after = 1000

    class Owner(metaclass=Fragile):
        there = 1

    patches, replaced, new = Patches(), object(), object()
    Fragile.after = after
    with pytest.raises(KeyboardInterrupt):
        patches.put(Owner, "there", replaced)
        patches.put(Owner, "new", new)
        patches.put(Owner, "there", object())
        patches.undo()
    assert not patches.disturbed()
    patches.undo()
    assert Owner.there == 1 and not hasattr(Owner, "new")


def test_a_child_of_a_thread_that_plugs_in_has_a_lock_of_its_own() -> None:
    before = hosts._lock
    with before:
        child = os.fork()
        if not child:
            os._exit(0 if hosts._lock is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
