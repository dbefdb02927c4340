"""HostLaunch: the arrays of a launch are found among whatever a host's kernels take."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from standin_host import DEVICE, Array, HostBuffer, Special, Texture, array, backend, free_to_move, raw, set_up, states
from support import KIB, run_python

from tack_memory import memory_info, spill
from tack_memory._native import _fast


@pytest.fixture(autouse=True)
def device_of_the_arrays() -> None:
    set_up()


class Scalar:
    pass


def test_the_arguments_reach_the_original_untouched() -> None:
    given: list[Any] = []

    class Backend:
        def execute(self, *args: Any, **named: Any) -> None:
            given.append((self, args, named))

    Backend.execute = _fast.HostLaunch(Backend.execute, array=Array, storage="_data")  # type: ignore[method-assign]
    one, arguments = Backend(), [array(8), 1]
    one.execute("kernel", arguments, 5, last=6)
    Backend.execute(one, "kernel", args=arguments)
    one.execute()
    (self, args, named), second, third = given
    assert self is one and args == ("kernel", arguments, 5) and args[1] is arguments and named == {"last": 6}
    assert second == (one, ("kernel",), {"args": arguments}) and third == (one, (), {})


@pytest.mark.parametrize("way", ["list", "tuple", "sequence", "args", "kernel_args", "fourth", "kwargs"])
def test_where_the_arrays_are_found(way: str) -> None:
    one = raw(KIB)
    spill(one.memory)

    class Backend:
        def execute(self, kernel: Any, *args: Any, **named: Any) -> str:
            return one.memory.state

    execute = _fast.HostLaunch(Backend.execute, array=Array, storage="_data").__get__(Backend())

    class Arguments(list[Any]):
        def __iter__(self) -> Any:
            return iter([one])

    results = {
        "list": lambda: execute(None, [one]),
        "tuple": lambda: execute(None, (1, one)),
        "sequence": lambda: execute(None, Arguments()),
        "args": lambda: execute(None, args=[one]),
        "kernel_args": lambda: execute(None, x=1, kernel_args=(one,)),
        "fourth": lambda: execute(None, [], {"x": one}),
        "kwargs": lambda: execute(None, [], kwargs={"x": one}),
    }
    assert results[way]() == "resident"
    assert free_to_move(one)


@pytest.mark.parametrize("arguments", [None, 5, [], (), {}, "text"])
def test_strange_arguments_are_left_to_the_host(arguments: Any) -> None:
    class Backend:
        def execute(self, kernel: Any, args: Any) -> Any:
            return args

    execute = _fast.HostLaunch(Backend.execute, array=Array, storage="_data")
    assert execute(Backend(), None, arguments) is arguments


def test_memory_that_is_not_ours_and_arrays_that_are_half_made_hold_nothing() -> None:
    half = Array.__new__(Array)
    without = Array.__new__(Array)
    without._buffer = object()  # type: ignore[assignment]
    empty = Array.__new__(Array)
    empty._buffer = HostBuffer.__new__(HostBuffer)
    foreign = Array([1, 2, 3])
    assert backend().execute(lambda *args: len(args), [half, without, empty, foreign]) == 4


def test_an_error_of_an_arrays_own_is_raised() -> None:
    class Strange(Array):
        @property
        def _buffer(self) -> Any:
            raise ZeroDivisionError

        @_buffer.setter
        def _buffer(self, value: Any) -> None: ...

    one, strange = array(KIB), Strange(None)
    with pytest.raises(ZeroDivisionError):
        backend().execute(lambda *_: None, [one, strange])
    assert free_to_move(one)


def test_subclasses_are_arrays() -> None:
    one = array(KIB, kind=Special)
    spill(one.memory)
    for _ in range(3):
        assert backend().execute(lambda a: a.memory.state, [one]) == "resident"


def test_expand_says_what_other_arguments_consist_of() -> None:
    asked: list[Any] = []

    def expand(argument: Any) -> Any:
        asked.append(argument)
        return argument.parts if isinstance(argument, Texture) else None

    host = backend(expand=expand)
    first, second, third = array(KIB), array(KIB), array(KIB, kind=Special)
    textures = [Texture(first), Texture(), Texture(Texture(second), 5, third)]
    spill(first.memory, second.memory, third.memory)
    scalar, other = Scalar(), Scalar()
    for _ in range(2):
        host.execute(lambda *_: None, [scalar, *textures, other, 1, 2.0, True, None, "text"])
        assert states(first, second, third) == ["resident"] * 3
    assert asked == [scalar, *textures, textures[2].parts[0], *textures, textures[2].parts[0]], "a type without arrays is asked about once"
    assert free_to_move(first, second, third)


def test_expand_that_raises_and_one_that_never_ends() -> None:
    one, called = array(KIB), list[Any]()

    def fails(_: Any) -> Any:
        raise LookupError("of expand")

    with pytest.raises(LookupError, match="of expand"):
        backend(expand=fails).execute(called.append, [one, Scalar()])
    with pytest.raises(RecursionError):
        backend(expand=lambda argument: [argument]).execute(called.append, [one, Scalar()])
    with pytest.raises(TypeError, match="not iterable"):
        backend(expand=lambda _: 5).execute(called.append, [one, Scalar()])
    assert called == [] and free_to_move(one)


def test_what_is_known_of_a_type_ends_with_the_type() -> None:
    """A type at the address of one that is gone, and a type that was changed, are asked about again."""
    asked = []

    def expand(argument: Any) -> None:
        asked.append(type(argument).__name__)

    host = backend(expand=expand)
    addresses = set()
    for number in range(300):
        kind = type(f"Kind{number}", (), {})
        addresses.add(id(kind))
        for _ in range(3):
            host.execute(lambda *_: None, [kind()])
        gc.collect() if number % 50 == 0 else None
    assert len(addresses) < 300, "no address came twice: the test says nothing"
    assert asked == [f"Kind{number}" for number in range(300)]
    del asked[:]
    host.execute(lambda *_: None, [Scalar()])
    Scalar.changed = True  # type: ignore[attr-defined]
    host.execute(lambda *_: None, [Scalar()])
    host.execute(lambda *_: None, [Scalar()])
    assert asked == ["Scalar", "Scalar"]


def test_types_of_arguments_are_not_kept_alive() -> None:
    kind = type("Kind", (), {})
    host = backend(expand=lambda _: None)
    host.execute(lambda *_: None, [kind()])
    gone = weakref.ref(kind)
    del kind
    gc.collect()
    assert gone() is None


def test_a_list_that_changes_while_it_is_walked_over() -> None:
    """expand (or a property, or another thread) may empty it; what was found before is held to the end all the same."""
    first, second = array(KIB, fill=1), array(KIB, fill=2)
    memories = [first.memory, second.memory]
    arguments: list[Any] = [first, second, Scalar(), array(KIB)]

    def expand(_: Any) -> tuple[()]:
        arguments.clear()
        return ()

    def original(self: Any, kernel: Any, args: Any) -> list[int]:
        return [memory.spill() for memory in memories]

    execute = _fast.HostLaunch(original, array=Array, storage="_data", expand=expand)
    del first, second
    assert execute(None, None, arguments) == [0, 0]
    assert [memory.spill() for memory in memories] == [KIB, KIB]


def test_an_argument_that_ends_while_expand_looks_at_it() -> None:
    done = run_python(
        """
        from standin_host import backend

        class Scalar:
            pass

        def expand(argument):
            arguments.clear()

        arguments = [Scalar()]
        backend(expand=expand).execute(lambda *_: print("ended"), arguments)
        """,
        PYTHONMALLOC="debug",  # what was freed is overwritten
    )
    assert done.stdout == "ended\n", done.stderr


def test_arrays_that_are_dropped_while_their_launch_runs() -> None:
    arguments = [array(KIB, fill=9), raw(KIB)]
    before = memory_info(DEVICE).in_use

    def original(self: Any, kernel: Any, args: list[Any]) -> int | None:
        args.clear()
        gc.collect()
        return memory_info(DEVICE).in_use

    assert _fast.HostLaunch(original, array=Array, storage="_data")(None, None, arguments) == before
    assert memory_info(DEVICE).in_use == before - 2 * KIB  # type: ignore[operator]
