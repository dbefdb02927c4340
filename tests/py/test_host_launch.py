"""HostLaunch: a host's launch function with all its arrays resident and held, found among whatever its kernels take."""

from __future__ import annotations

import gc
import inspect
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from standin_host import DEVICE, Array, HostBuffer, Special, Stock, array, array_over, backend, raw, set_up
from support import KIB, MIB, SIMULATED, contents, filled, pattern, run_python

import tack_memory
from tack_memory import DeviceMemoryError, allocate, memory_info, spill
from tack_memory._native import _fast


@pytest.fixture(autouse=True)
def device_of_the_arrays() -> None:
    set_up()


class Memory:
    """Arrays on one device, as a host of that kind of device has them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._make: Callable[..., Array] = array if device == DEVICE else raw

    def __call__(self, nbytes: int, fill: int = 0) -> Array:
        return self._make(nbytes, self.device, fill)


@pytest.fixture(params=[DEVICE, *SIMULATED])
def memory(request: pytest.FixtureRequest) -> Memory:
    return Memory(request.param)


def states(*arrays: Array) -> list[str]:
    return [one.memory.state for one in arrays]


def free_to_move(*arrays: Array) -> bool:
    """Whether nothing holds them any more. Spills them."""
    return all(one.memory.holds == {} and one.memory.spill() == one.memory.nbytes for one in arrays)


# ---- what is held, and for how long


def test_all_arrays_of_a_launch_are_resident_and_held_until_it_ends(memory: Memory) -> None:
    arrays = [memory(KIB, seed) for seed in range(5)]
    spill(*(one.memory for one in arrays[1:4]))
    before = memory_info(memory.device).restore_count

    def kernel(*args: Any) -> str:
        assert states(*arrays) == ["resident"] * 5
        assert [one.memory.spill() for one in arrays] == [0] * 5, "held"
        assert args == (*arrays, 7)
        return "done"

    assert backend().execute(kernel, [*arrays, 7]) == "done"
    assert memory_info(memory.device).restore_count == before + 3
    assert free_to_move(*arrays)


def test_an_exception_ends_the_holds_too() -> None:
    one = array(KIB)

    def kernel(_: Any) -> None:
        raise KeyError("the kernel's own")

    with pytest.raises(KeyError, match="the kernel's own"):
        backend().execute(kernel, [one])
    assert free_to_move(one)


def test_a_launch_that_does_not_fit_is_not_begun(memory: Memory) -> None:
    with tack_memory.memory_budget(KIB, memory.device, strict=True):
        one, other = memory(KIB // 2, 1), memory(KIB, 2)
        called: list[Any] = []
        with pytest.raises(DeviceMemoryError):
            backend().execute(called.append, [one, other])
        assert called == [] and one.memory.holds == other.memory.holds == {}
        assert backend().execute(lambda a: a.memory.state, [one]) == "resident"
    assert contents(one.memory) == bytes([1]) * (KIB // 2)


def test_a_freed_buffer_is_an_error_and_the_launch_is_not_begun() -> None:
    one, gone = array(KIB), array(KIB)
    gone.memory.free()
    called: list[Any] = []
    with pytest.raises(ValueError, match="was freed"):
        backend().execute(called.append, [one, gone])
    assert called == [] and free_to_move(one)


def test_the_same_array_twice_and_views_of_one_buffer() -> None:
    memory = filled(KIB, DEVICE)
    first, second = array_over(memory.view(0, 100)), array_over(memory.view(50, 100))
    spill(memory)

    def kernel(a: Array, b: Array, c: Array) -> None:
        assert a is b and bytes(a._buffer._data) == pattern(KIB)[:100] and bytes(c._buffer._data) == pattern(KIB)[50:150]
        assert memory.spill() == 0

    backend().execute(kernel, [first, first, second])
    assert memory.holds == {} and memory.spill() == KIB


def test_more_arrays_than_a_launch_usually_has() -> None:
    arrays = [array(16, fill=place) for place in range(100)]
    spill(*(one.memory for one in arrays))

    def kernel(*args: Array) -> list[int]:
        sums = [int(one._buffer._data.sum()) for one in args]
        assert all(one.memory.holds == {"launch": 1} for one in args)
        return sums

    assert backend().execute(kernel, arrays) == [16 * place for place in range(100)]
    assert free_to_move(*arrays)


def test_arrays_on_several_devices() -> None:
    arrays = (
        [make(KIB, DEVICE, 3) for make in (array, raw, array)] + [raw(KIB, device, 3) for device in ("sim-hip:0", "sim:1", "sim-hip:0")] + [array(KIB, "cpu")]
    )
    movable = [one for one in arrays if one.memory.device != "cpu"]
    spill(*(one.memory for one in movable))

    def kernel(*_: Any) -> None:
        assert states(*arrays) == ["resident"] * 7 and not any(one.memory.spill() for one in movable)

    backend().execute(kernel, arrays)
    backend().execute(kernel, arrays)  # and all resident from the start
    assert free_to_move(*movable)


def test_what_does_not_fit_on_the_second_device_leaves_nothing_held_on_the_first() -> None:
    one, other = array(KIB, DEVICE), raw(2 * KIB, "sim:1")
    spill(one.memory, other.memory)
    with tack_memory.memory_budget(KIB, "sim:1", strict=True), pytest.raises(DeviceMemoryError):
        backend().execute(lambda *_: None, [one, other])
    assert free_to_move(one)
    other.memory.restore()
    assert not _fast.enter_launch([other.memory])  # nothing is left of the thread's own count either: this waits for nobody and holds once
    _fast.leave_launch([other.memory])
    assert free_to_move(other)


def test_a_count_that_somebody_else_lowers_is_reported() -> None:
    one = array(KIB)
    with pytest.raises(RuntimeError, match="not entered"):
        backend().execute(lambda a: _fast.leave_launch([a.memory]), [one])
    assert free_to_move(one)

    def kernel(a: Array) -> None:
        _fast.leave_launch([a.memory])
        raise KeyError("the kernel's")

    with pytest.raises(RuntimeError, match="not entered") as caught:
        backend().execute(kernel, [one])
    assert repr(caught.value.__context__) == repr(KeyError("the kernel's"))
    assert free_to_move(one)


# ---- what the arguments may be


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


class Texture:
    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class Scalar:
    pass


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


# ---- launches inside launches, and threads


def test_a_kernel_that_launches() -> None:
    outer, inner, host = array(KIB), array(KIB), backend()
    spill(inner.memory)

    def kernel(_: Any) -> None:
        host.execute(lambda *_: None, [inner, outer])
        assert inner.memory.state == "resident" and inner.memory.spill() == KIB, "held by the inner one only"
        assert outer.memory.spill() == 0

    host.execute(kernel, [outer])
    assert free_to_move(outer)


def test_an_inner_launch_may_be_skipped() -> None:
    one, other = raw(KIB), raw(KIB)
    skipping, elsewhere = backend(nested="skip"), backend(nested="skip", array=Texture)

    def state(*_: Any) -> str:
        return other.memory.state

    spill(other.memory)
    assert backend().execute(lambda _: skipping.execute(state, [other]), [one]) == "resident", "the outer one has not got it"
    spill(other.memory)
    assert elsewhere.execute(lambda *_: skipping.execute(state, [other]), []) == "resident", "a launch of another host's arrays is none"
    spill(other.memory)
    assert skipping.execute(state, [other]) == "resident"
    assert free_to_move(one, other)


def test_an_inner_launch_is_skipped_where_the_outer_ones_hold_all_its_memory() -> None:
    one, other, third = (raw(KIB) for _ in range(3))
    part, host = array_over(one.memory.view(8, 8)), backend(nested="skip")

    def holds(*_: Any) -> list[dict[str, int]]:
        return [each.memory.holds for each in (one, other, third)]

    def inner(*_: Any) -> Any:
        skipped = [host.execute(holds, arrays) for arrays in ([one, other], [other, one, 7], [part], [])]
        return skipped, host.execute(holds, [other, third])

    skipped, held = host.execute(inner, [one, other])
    assert skipped == [[{"launch": 1}, {"launch": 1}, {}]] * 4
    assert held == [{"launch": 1}, {"launch": 2}, {"launch": 1}]
    deeper = host.execute(lambda *_: host.execute(lambda *_: host.execute(holds, [third, one]), [one, third]), [one])
    assert deeper == [{"launch": 2}, {}, {"launch": 1}], "two launches hold them together"
    assert free_to_move(one, other, third)


def test_a_launch_of_another_thread_is_no_reason_to_skip() -> None:
    one, host, results = raw(KIB), backend(nested="skip"), []

    def kernel(*_: Any) -> None:
        thread = threading.Thread(target=lambda: results.append(host.execute(lambda a: a.memory.state, [one])))
        thread.start()
        thread.join()

    spill(one.memory)
    host.execute(kernel, [])
    assert results == ["resident"]


@pytest.mark.parametrize("devices", [[], [DEVICE], [DEVICE, "sim:1", "sim-hip:0"]])
def test_after_its_launches_a_thread_waits_for_those_of_others_again(devices: list[str]) -> None:
    """A thread that has something open never waits: here it would fail."""
    host, arrays = backend(), [raw(KIB, device) for device in devices]
    spill(*(one.memory for one in arrays))
    for _ in range(3):
        host.execute(lambda *_: None, arrays)
    del arrays
    one, other, third = (array(KIB) for _ in range(3))
    spill(other.memory, third.memory)
    inside = threading.Event()

    def kernel(_: Any) -> None:
        inside.set()
        time.sleep(0.3)

    thread = threading.Thread(target=lambda: host.execute(kernel, [one]))
    with tack_memory.memory_budget(2 * KIB, DEVICE, strict=True):
        thread.start()
        inside.wait()
        assert host.execute(lambda *args: states(*args), [other, third]) == ["resident"] * 2
        thread.join()


def test_deep_recursion_ends_with_every_hold_given_back() -> None:
    one, host = array(KIB), backend()

    def kernel(a: Any) -> None:
        host.execute(kernel, [a])

    with pytest.raises(RecursionError):
        host.execute(kernel, [one])
    assert free_to_move(one)


STORM = """
    import random, sys, threading, time
    import tack_memory as tm
    from standin_host import DEVICE, array, backend, set_up

    set_up()
    sys.setswitchinterval(1e-5)
    SIZE, ARRAYS = 64 << 10, 12
    stop, failures, launches = time.monotonic() + float(sys.argv[1]), [], [0, 0, 0]
    arrays = [array(SIZE, fill=place) for place in range(ARRAYS)]
    host = backend()
    kept = []

    def kernel(*args):
        for one, place in zip(args[::2], args[1::2]):
            data = one._buffer._data
            assert data[0] == data[-1] == place and one.memory.spill() == 0, (data[0], place)
            if random.random() < 0.01:
                kept.append((data[1:], place))  # beyond the launch

    def launch(number):
        try:
            while time.monotonic() < stop:
                chosen = random.sample(range(ARRAYS), 4)
                host.execute(kernel, [part for place in chosen for part in (arrays[place], place)])
                launches[number] += 1
        except BaseException as error:
            failures.append(repr(error))
            raise

    def disturb():
        while time.monotonic() < stop:
            random.choice(arrays).memory.spill()
            if len(kept) > 3:
                data, place = kept.pop(0)
                assert data[0] == data[-1] == place
            if random.random() < 0.05:
                tm.set_memory_budget(random.randrange(4, ARRAYS) * SIZE, DEVICE)

    def read():
        while time.monotonic() < stop:
            place = random.randrange(ARRAYS)
            data = arrays[place]._buffer._data  # no launch: an export
            assert data[0] == data[-1] == place

    def guarded(work):
        try:
            work()
        except BaseException as error:
            failures.append(repr(error))
            raise

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(3)]
    threads += [threading.Thread(target=guarded, args=(work,)) for work in (disturb, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.clear()
    tm.set_memory_budget(None, DEVICE)
    info = tm.memory_info(DEVICE)
    for place, one in enumerate(arrays):
        assert one.memory.holds == {} and bytes(one.memory.copy_to_host()) == bytes([place]) * SIZE, place
    print(failures, min(launches) > 20, info.restore_count > 20)
    """


def test_launches_while_other_threads_spill_read_and_change_budgets() -> None:
    done = run_python(STORM, "8")
    assert done.stdout.strip() == "[] True True", done.stdout + done.stderr


# ---- over budget


def test_settle_is_called_when_a_thread_has_no_launch_left_and_a_device_is_over_its_budget() -> None:
    seen: list[Any] = []
    one, other = array(KIB), raw(KIB, "sim:1")
    host = backend(settle=lambda: seen.append((one.memory.holds, sys.exc_info()[0])))

    def kernel(*_: Any) -> None:
        host.execute(lambda *_: None, [one])
        assert seen == [], "not while a launch runs"

    host.execute(kernel, [one])
    assert seen == [], "there is no budget"
    with tack_memory.memory_budget(KIB, DEVICE):
        host.execute(kernel, [one])
        assert seen == [], "it is not passed"
    with tack_memory.memory_budget(1, DEVICE):
        host.execute(kernel, [other])
        host.execute(lambda *_: None, [])
        host.execute(kernel, [other, one])
        assert seen == [({}, None)]
        del seen[:]
        with pytest.raises(KeyError):
            host.execute(lambda _: {}["missing"], [one])
        assert seen == [({}, None)]


def test_what_settle_spills_is_spilled_right_after_the_launch() -> None:
    one = array(KIB, fill=3)
    host = backend(settle=lambda: _fast.set_memory_budget(1, DEVICE))
    with tack_memory.memory_budget(1, DEVICE):
        assert host.execute(lambda a: int(a._buffer._data[0]), [one]) == 3
        assert one.memory.state == "spilled"


def test_errors_of_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: shown.append(type(error.exc_value)))
    one = array(KIB)

    def fails() -> None:
        raise ValueError

    with tack_memory.memory_budget(1, DEVICE):
        assert backend(settle=fails).execute(lambda _: "done", [one]) == "done"
        assert shown == [ValueError]
        with pytest.raises(KeyboardInterrupt):
            backend(settle=lambda: signal.raise_signal(signal.SIGINT)).execute(lambda _: "done", [one])
    assert shown == [ValueError] and free_to_move(one)


# ---- Ctrl-C, fork


def test_ctrl_c_while_a_launch_restores_begins_no_launch(simulated: str) -> None:
    done = run_python(
        """
        import os, signal, threading, time
        import tack_memory as tm
        from standin_host import backend, raw
        from support import SoftDriver

        soft, one = SoftDriver(), raw(256 << 20, "sim:0", 7)
        one.memory.spill()
        soft.set("copy_mib_s", 64)

        def interrupt():
            while one.memory.state != "restoring":
                time.sleep(0.01)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        called = []
        try:
            backend().execute(called.append, [one])
        except KeyboardInterrupt:
            print("interrupted", called, one.memory.holds, one.memory.state)
        soft.set("copy_mib_s", 0)
        print(backend().execute(lambda a: a.memory.copy_to_host(nbytes=1)[0], [one]), one.memory.spill() == one.memory.nbytes)
        """,
        simulated=simulated,
        TACK_MEMORY_SIM="1 GiB",
    )
    assert done.stdout.splitlines() == ["interrupted [] {} spilled", "7 True"], done.stdout + done.stderr


def test_a_forked_child_launches_on_the_cpu_only() -> None:
    done = run_python(
        """
        import os, sys
        import tack_memory as tm
        from standin_host import array, backend, set_up
        set_up()

        host, on_cpu, other = backend(), array(64, "cpu", 3), array(64, fill=4)

        def kernel(a, b):
            kept = a._buffer._data
            child = os.fork()
            if child:
                status = os.waitpid(child, 0)[1]
                return status
            assert int(kept[0]) == int(a._buffer._data[0]) == 3
            try:
                b._buffer._data
                os._exit(1)
            except tm.ForkError:
                pass
            return kept  # the launch ends in the child, too, and is kept beyond it

        result = host.execute(kernel, [on_cpu, other])
        if not isinstance(result, int):
            assert int(result[0]) == 3 and host.execute(lambda a: int(a._buffer._data[1]), [on_cpu]) == 3
            for arguments in ([other], [on_cpu, other]):
                try:
                    host.execute(print, arguments)
                    os._exit(2)
                except tm.ForkError:
                    pass
            os._exit(0)
        print(result, other.memory.spill(), on_cpu.memory.holds)
        """
    )
    assert done.stdout.strip() == "0 64 {}", done.stdout + done.stderr


# ---- a function like the original


def test_name_documentation_and_signature_are_the_originals() -> None:
    launch = _fast.HostLaunch(Stock.execute, array=Array, storage="_data")
    host = backend()
    assert (launch.__name__, launch.__qualname__, launch.__doc__) == ("execute", "Stock.execute", "Launches a kernel.")  # type: ignore[attr-defined]
    assert launch.__module__ == Stock.execute.__module__ and launch.__wrapped__ is Stock.execute  # type: ignore[attr-defined]
    assert inspect.signature(launch) == inspect.signature(Stock.execute)
    assert inspect.signature(host.execute) == inspect.signature(Stock().execute)
    assert type(host).execute is type(host).__dict__["execute"] and host.execute.__self__ is host
    assert "Stock.execute" in repr(launch)


def test_bad_options_are_refused() -> None:
    for options, error in (
        ({"array": Array}, TypeError), ({"storage": "_data"}, TypeError), ({"array": 5, "storage": "_data"}, TypeError),
        ({"array": Array, "storage": 5}, TypeError), ({"array": Array, "storage": "_data", "expand": 5}, TypeError),
        ({"array": Array, "storage": "_data", "nested": "maybe"}, ValueError),
        ({"array": Array, "storage": "_data", "settle": 5}, TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            _fast.HostLaunch(Stock.execute, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _fast.HostLaunch(5, array=Array, storage="_data")  # type: ignore[arg-type]


def test_no_references_are_lost_or_left() -> None:
    host = backend(expand=lambda argument: argument.parts if isinstance(argument, Texture) else None)
    one, two, texture, missing = array(KIB), raw(KIB), Texture(array(KIB)), Array.__new__(Array)
    arguments = [one, two, texture, missing, 5]

    def kernel(*_: Any) -> None:
        one._buffer._data  # noqa: B018

    def fails(*_: Any) -> None:
        raise ValueError

    kept = one._buffer.__dict__["_data"]
    watched = [one, one._buffer, kept, one.memory, two, two.memory, texture, texture.parts, missing, arguments, arguments[0], Array, host, kernel, fails, None]
    host.execute(kernel, arguments)
    before = [sys.getrefcount(thing) for thing in watched]
    blocks = sys.getallocatedblocks()
    for _ in range(10_000):
        host.execute(kernel, arguments)
        try:
            host.execute(fails, arguments)
        except ValueError:
            pass
    after = [sys.getrefcount(thing) for thing in watched]
    assert [a - b for a, b in zip(after[:-1], before[:-1], strict=True)] == [0] * (len(watched) - 1)
    assert abs(after[-1] - before[-1]) < 100, "None"
    assert sys.getallocatedblocks() - blocks < 1000


def test_a_class_with_a_launch_in_it_can_be_collected() -> None:
    class Own(Array):
        pass

    class Expand:
        def __call__(self, argument: Any) -> Any: ...

    expand = Expand()

    class Backend(Stock):
        execute = _fast.HostLaunch(Stock.execute, array=Own, storage="_data", expand=expand)

    expand.launch = Backend.execute  # type: ignore[attr-defined]
    Own.backend = Backend  # type: ignore[attr-defined]
    Own.launch = Backend.execute  # type: ignore[attr-defined]
    Backend.execute.itself = Backend.execute  # type: ignore[attr-defined]
    gone = [weakref.ref(Own), weakref.ref(Backend), weakref.ref(Backend.execute)]
    del Own, Backend, expand
    gc.collect()
    assert [one() for one in gone] == [None] * 3


def test_arrays_of_a_launch_are_never_victims(memory: Memory) -> None:
    with tack_memory.memory_budget(8 * MIB, memory.device):
        held, others = [memory(MIB, seed) for seed in range(4)], [memory(MIB, seed) for seed in range(4)]

        def kernel(*_: Any) -> None:
            more = [allocate(MIB, memory.device) for _ in range(4)]
            assert states(*held) == ["resident"] * 4 and states(*others) == ["spilled"] * 4 and len(more) == 4

        backend().execute(kernel, held)
        assert [contents(one.memory)[:1] for one in held] == [bytes([seed]) for seed in range(4)]
