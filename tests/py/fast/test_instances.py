"""`_fast.instances_of`: the living objects of some classes, without Python's list of all objects."""

from __future__ import annotations

import sys

import pytest

from tack_memory._native import _fast


class Base:
    pass


class Below(Base):
    pass


class Other:
    pass


def test_objects_of_the_classes_and_of_those_below() -> None:
    base, below, other = Base(), Below(), Other()
    base.kept = below.kept = other.kept = []  # type: ignore[attr-defined]
    assert {id(one) for one in _fast.instances_of((Base,))} == {id(base), id(below)}
    assert {id(one) for one in _fast.instances_of((Below, Other))} == {id(below), id(other)}
    assert len(_fast.instances_of((Base, Below))) == 2  # each once
    assert _fast.instances_of(()) == []


def test_no_reference_is_left() -> None:
    base = Base()
    before = sys.getrefcount(base)
    for _ in range(3):
        assert _fast.instances_of((Base,)) == [base]
    assert sys.getrefcount(base) == before


@pytest.mark.parametrize("classes", [[Base], Base, (1,), (Base, None)])
def test_what_is_no_tuple_of_classes_is_refused(classes: object) -> None:
    with pytest.raises(TypeError, match="instances_of: a (tuple of classes, not|class is needed, not)"):
        _fast.instances_of(classes)  # type: ignore[arg-type]
