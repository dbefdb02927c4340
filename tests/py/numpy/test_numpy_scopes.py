"""Where an allocator is in force: contexts, threads, tasks, the whole process; and what takes it out again."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest
from support import run_python

import tack_memory.numpy as tn
from tack_memory._native import _numpy
from tack_memory.numpy import _scopes


def handler() -> str:
    found = tn.owner(numpy.empty(3))
    assert found is not None
    return found.handler


def in_thread(function: Callable[[], Any]) -> Any:
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


ORDINARY, COUNTED, ALIGNED, HUGE = "default_allocator", "tack_memory", "tack_memory_aligned", "tack_memory_hugepage"
HANDLERS = {"default": COUNTED, "aligned": ALIGNED, "hugepage": HUGE}


def test_blocks_nest() -> None:
    assert handler() == ORDINARY
    with tn.use():
        assert handler() == COUNTED
        with tn.use("aligned", align=4096):
            assert handler() == ALIGNED
            with pytest.raises(KeyError), tn.use("hugepage"):
                assert handler() == HUGE
                raise KeyError
            assert handler() == ALIGNED
        assert handler() == COUNTED
    assert handler() == ORDINARY


def test_a_block_leaves_no_handler_behind_in_its_context() -> None:
    """The context has none again, so that what is installed later in the process is in force there."""
    with tn.use("aligned"):
        pass
    tn.install()
    assert handler() == COUNTED
    tn.uninstall()


def test_a_context_is_one_threads() -> None:
    with tn.use():
        assert in_thread(handler) == ORDINARY
        assert contextvars.copy_context().run(handler) == COUNTED
        assert contextvars.Context().run(handler) == ORDINARY


def test_tasks_inherit_and_do_not_disturb_each_other() -> None:
    async def task(name: str, allocator: str, turns: list[str]) -> None:
        for _ in range(20):
            with tn.use(allocator):
                await asyncio.sleep(0)
                turns.append(name)
                assert handler() == HANDLERS[allocator]
            await asyncio.sleep(0)
            assert handler() == COUNTED, "of the task that started it"

    async def program() -> None:
        turns: list[str] = []
        with tn.use():
            await asyncio.gather(*(task(name, name, turns) for name in ("default", "aligned", "hugepage")))
            assert await asyncio.to_thread(handler) == COUNTED
        assert await asyncio.to_thread(handler) == ORDINARY
        assert len(set(turns[:6])) == 3, "they ran in turn"

    asyncio.run(program())
    assert handler() == ORDINARY


def test_install_in_a_context() -> None:
    def inside() -> None:
        tn.install("context", "aligned")
        tn.install("context")  # takes its place
        assert handler() == COUNTED
        assert in_thread(handler) == ORDINARY
        copy = contextvars.copy_context()
        copy.run(tn.uninstall)  # a task of this context, say
        assert copy.run(handler) == ORDINARY
        assert handler() == COUNTED
        tn.uninstall()
        assert handler() == ORDINARY
        with pytest.raises(RuntimeError, match="not installed"):
            tn.uninstall()

    contextvars.copy_context().run(inside)
    assert handler() == ORDINARY


def test_what_is_installed_in_a_block_ends_with_it() -> None:
    def inside() -> None:
        with tn.use("aligned"):
            tn.install("context", "hugepage")
            assert handler() == HUGE
        assert handler() == ORDINARY
        with pytest.raises(RuntimeError, match="not installed"):
            tn.uninstall()
        assert handler() == ORDINARY
        tn.install("context")
        with tn.use("aligned"):
            tn.install("context", "hugepage")
        assert handler() == COUNTED
        with tn.use("aligned"):
            tn.uninstall()
            assert handler() == ORDINARY
        assert handler() == COUNTED, "as before the block"
        tn.uninstall()
        assert handler() == ORDINARY
        with pytest.raises(RuntimeError, match="not installed"):
            tn.uninstall()

    contextvars.copy_context().run(inside)


def test_install_takes_the_place_of_what_was_installed() -> None:
    tn.install(allocator="aligned")
    array = numpy.empty(10)
    tn.install(allocator="hugepage")
    assert (handler(), in_thread(handler)) == (HUGE, HUGE)
    tn.uninstall()
    assert (handler(), in_thread(handler)) == (ORDINARY, ORDINARY)
    with pytest.raises(RuntimeError, match="not installed"):
        tn.uninstall()
    assert tn.owner(array).handler == ALIGNED  # type: ignore[union-attr]


def test_blocks_of_the_process_end_in_any_order() -> None:
    tn.install()
    first, second, third = (tn.use(name, scope="process") for name in ("aligned", "hugepage", "aligned"))
    first.__enter__()
    assert in_thread(handler) == ALIGNED
    second.__enter__()
    third.__enter__()
    second.__exit__(None, None, None)
    assert in_thread(handler) == ALIGNED
    third.__exit__(None, None, None)
    assert in_thread(handler) == ALIGNED
    tn.uninstall()
    assert in_thread(handler) == ALIGNED
    first.__exit__(None, None, None)
    assert (handler(), in_thread(handler)) == (ORDINARY, ORDINARY)


@pytest.mark.parametrize("scope", ["process", "context"])
def test_wrong_use_of_a_block(scope: Any) -> None:
    block = tn.use(scope=scope)
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)
    with block:
        with pytest.raises(RuntimeError, match="already entered"):
            block.__enter__()
        assert handler() == COUNTED
    with block:
        assert handler() == COUNTED
    assert handler() == ORDINARY


def test_a_block_left_in_another_context() -> None:
    context, block = contextvars.copy_context(), tn.use("aligned")
    context.run(block.__enter__)
    with pytest.raises(RuntimeError, match="another context"):
        block.__exit__(None, None, None)
    assert (context.run(handler), handler()) == (ALIGNED, ORDINARY)
    context.run(block.__exit__, None, None, None)
    assert context.run(handler) == ORDINARY, "it could still be left where it was entered"
    with block:
        assert handler() == ALIGNED


def test_blocks_of_generators_end_in_any_order() -> None:
    def generator(name: str) -> Any:
        with tn.use(name):
            yield

    for order in itertools.permutations(range(3)):
        names = ["aligned", "hugepage", "default"]
        generators = [generator(name) for name in names]
        for one in generators:
            next(one)
        alive = list(names)
        for number in order:
            generators[number].close()
            alive.remove(names[number])
            assert handler() == (HANDLERS[alive[-1]] if alive else ORDINARY), (order, number)
        tn.install()
        assert handler() == COUNTED, "no block has left anything set in this context"
        tn.uninstall()


def test_a_program_of_blocks_and_installs_against_a_model() -> None:
    """Blocks of one context, ended in any order, with installs in between: in force is what the youngest open block says, or was installed in it last."""

    def run(seed: int) -> None:
        generator = random.Random(seed)
        levels: list[list[Any]] = [[None, ORDINARY, None]]  # block, what it says, what is installed in it
        for _ in range(60):
            what = generator.random()
            if what < 0.35 and len(levels) < 6:
                name = generator.choice(list(HANDLERS))
                block = tn.use(name)
                block.__enter__()
                levels.append([block, HANDLERS[name], None])
            elif what < 0.75 and len(levels) > 1:
                levels.pop(generator.randrange(1, len(levels)))[0].__exit__(None, None, None)
            else:
                name = generator.choice(list(HANDLERS))
                tn.install("context", name)
                levels[-1][2] = HANDLERS[name]
            assert handler() == (levels[-1][2] or levels[-1][1])
        while len(levels) > 1:
            levels.pop(generator.randrange(1, len(levels)))[0].__exit__(None, None, None)
            assert handler() == (levels[-1][2] or levels[-1][1])
        if levels[0][2]:
            tn.uninstall()
        assert handler() == ORDINARY
        with pytest.raises(RuntimeError, match="not installed"):
            tn.uninstall()

    for seed in range(300):
        contextvars.copy_context().run(run, seed)
    assert handler() == ORDINARY


def test_a_block_that_ends_below_one_in_which_something_was_taken_out() -> None:
    def inside() -> None:
        tn.install("context", "aligned")
        below, above = tn.use(), tn.use("hugepage")
        below.__enter__()
        above.__enter__()
        tn.uninstall()  # until the block ends
        assert handler() == ORDINARY
        below.__exit__(None, None, None)
        assert handler() == ORDINARY
        above.__exit__(None, None, None)
        assert handler() == ALIGNED

    contextvars.copy_context().run(inside)


def test_a_task_ends_its_blocks_in_any_order_after_those_that_it_has_inherited_have_ended() -> None:
    inherited, first, second = tn.use(), tn.use("aligned"), tn.use("hugepage")
    inherited.__enter__()
    task = contextvars.copy_context()
    task.run(first.__enter__)
    task.run(second.__enter__)
    with pytest.raises(RuntimeError, match="another context"):
        task.run(inherited.__exit__, None, None, None)
    assert task.run(handler) == HUGE
    inherited.__exit__(None, None, None)
    task.run(first.__exit__, None, None, None)
    assert task.run(handler) == HUGE
    task.run(second.__exit__, None, None, None)
    assert (task.run(handler), handler()) == (COUNTED, ORDINARY), "a copy keeps what was in force when it was made"


def test_names_that_are_imported_late_stay() -> None:
    script = """
        import tack_memory.numpy as tn
        for name in ("Handle", "attach", "event_hook", "set_event_hook", "share", "track"):
            assert name not in vars(tn)
            value = getattr(tn, name)
            assert vars(tn)[name] is value
        try:
            tn.nothing
        except AttributeError:
            assert "nothing" not in vars(tn)
        else:
            raise AssertionError("found")
    """
    done = run_python(script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"scope": "thread"}, ValueError, "unknown scope 'thread'"),
        ({"allocator": "align"}, ValueError, 'there are "default", "aligned"'),
        ({"allocator": 64}, TypeError, "name or a handler's capsule, not int"),
        ({"allocator": None}, TypeError, "not NoneType"),
        ({"allocator": "aligned", "align": 24}, ValueError, "power of two"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    for refuse in (tn.install, tn.use):
        with pytest.raises(error, match=says):
            refuse(**arguments)
    assert handler() == ORDINARY


def test_a_misnamed_capsule_is_refused(other: Any) -> None:
    """NumPy up to 2.0 takes it, and then every allocation fails."""
    tn.install()
    with pytest.raises(ValueError, match='named "mem_handler" .* this one is named "my_handler"'):
        tn.install(allocator=other.capsule(b"my_handler"))
    assert handler() == COUNTED, "the one before is still in force"
    tn.uninstall()


def test_what_counts_already_is_not_counted_twice() -> None:
    with tn.use():
        counting = _numpy.current_handler()
    with pytest.raises(ValueError, match="counts already"):
        tn.install(allocator=counting)


def test_a_handler_lives_as_long_as_its_arrays(other: Any) -> None:
    with tn.use(other.capsule()):
        array = numpy.zeros(1000)
    contextvars.copy_context()
    numpy.empty(1000)
    assert tn.owner(array).handler == "tack_memory(another_extension)"  # type: ignore[union-attr]
    assert other.live == 1
    del array
    assert other.live == 0


EVERYWHERE = """
    import asyncio, contextvars, ctypes, multiprocessing.dummy, queue, sys, threading, time, _thread
    from concurrent.futures import ThreadPoolExecutor
    from multiprocessing.pool import ThreadPool
    import numpy
    import tack_memory.numpy as tn

    def seen():
        return tn.owner(numpy.empty(100)).handler != "default_allocator"

    # Threads and contexts that are older than install
    older = contextvars.copy_context()
    questions, answers = queue.Queue(), queue.Queue()
    def serve():
        while (question := questions.get()) is not None:
            answers.put(question())
    served = threading.Thread(target=serve, daemon=True)
    served.start()
    old_pool = ThreadPoolExecutor(1)
    old_pool.submit(int).result()

    tn.install(allocator=sys.argv[1])

    found = {}
    def run(target):
        result = []
        thread = threading.Thread(target=lambda: result.append(target()))
        thread.start()
        thread.join()
        return result[0]
    found["main"] = seen()
    found["Thread"] = run(seen)
    class Subclass(threading.Thread):
        def run(self):
            self.result = seen()
    thread = Subclass(); thread.start(); thread.join()
    found["subclass of Thread"] = thread.result
    result = []
    timer = threading.Timer(0, lambda: result.append(seen())); timer.start(); timer.join()
    found["Timer"] = result[0]
    questions.put(seen)
    found["Thread from before"] = answers.get(timeout=60)
    with ThreadPoolExecutor(2) as pool:
        found["executor"] = all(pool.map(lambda _: seen(), range(4)))
    found["executor from before"] = old_pool.submit(seen).result()
    with ThreadPool(2) as pool:
        found["ThreadPool"] = all(pool.map(lambda _: seen(), range(4)))
    result = []
    process = multiprocessing.dummy.Process(target=lambda: result.append(seen())); process.start(); process.join()
    found["multiprocessing.dummy"] = result[0]
    result = []
    _thread.start_new_thread(lambda: result.append(seen()), ())
    while not result:
        time.sleep(0.001)
    found["_thread"] = result[0]
    result = []
    begin = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: result.append(seen()))
    number, libc = ctypes.c_ulong(), ctypes.CDLL(None)
    assert libc.pthread_create(ctypes.byref(number), None, begin, None) == 0
    libc.pthread_join(number, None)
    found["C thread"] = result[0]
    async def program():
        async def task():
            return seen()
        return await asyncio.create_task(task()), await asyncio.to_thread(seen), await asyncio.get_running_loop().run_in_executor(None, seen)
    found["task"], found["to_thread"], found["run_in_executor"] = asyncio.run(program())
    found["loop in a Thread"] = run(lambda: asyncio.run(program())[0])
    found["empty Context"] = contextvars.Context().run(seen)
    found["Context from before"] = older.run(seen)
    assert len(found) == 17, len(found)
    assert all(found.values()), found
    # What means NumPy's own handler goes on meaning it.
    try:
        from numpy._core._multiarray_umath import _ARRAY_API as functions
    except ImportError:
        from numpy.core._multiarray_umath import _ARRAY_API as functions
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.POINTER(ctypes.c_void_p), [ctypes.py_object, ctypes.c_char_p]
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(pointer(functions, None)[304])   # PyDataMem_SetHandler
    set_handler(None)
    assert not seen() and run(seen)
    print("right")
"""


@pytest.mark.parametrize("allocator", ["default", "aligned", "hugepage"])
def test_the_whole_process(allocator: str) -> None:
    """Eighteen situations; the one exception is PyDataMem_SetHandler(NULL)."""
    done = run_python(EVERYWHERE, allocator)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "right"


def test_a_python_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way through the module threading: this thread and new ones, with a warning that says so."""

    def unknown(capsule: object) -> None:
        raise RuntimeError("the default value is elsewhere")

    process = _scopes._Process()
    monkeypatch.setattr(_scopes, "_process", process)
    monkeypatch.setattr(_numpy, "set_process_handler", unknown)
    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", threading.Thread._bootstrap_inner)  # type: ignore[attr-defined]
    older = ThreadPoolExecutor(1)
    older.submit(int).result()

    def inside() -> None:
        with pytest.warns(RuntimeWarning, match="not in other threads: the default value is elsewhere") as told:
            tn.install()
        assert told[0].filename == __file__
        assert (handler(), in_thread(handler), older.submit(handler).result()) == (COUNTED, COUNTED, ORDINARY)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once is enough
            tn.install(allocator="aligned")
        assert (handler(), in_thread(handler)) == (ALIGNED, ALIGNED)
        tn.uninstall()
        assert (handler(), in_thread(handler)) == (ORDINARY, ORDINARY)

    contextvars.copy_context().run(inside)
    older.shutdown()


def test_scopes_change_under_load() -> None:
    """Install, uninstall and blocks in one thread while others allocate: nothing is lost, and nothing is counted twice."""
    stop, before = threading.Event(), tn.statistics()
    errors: list[BaseException] = []

    def load() -> None:
        try:
            kept: list[Any] = []
            while not stop.is_set():
                kept.append(numpy.zeros(300))
                kept[-1].resize(500, refcheck=False)
                if len(kept) > 20:
                    kept.clear()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(300):
        tn.install(allocator=("default", "aligned", "hugepage")[turn % 3])
        with tn.use("aligned", align=4096, scope="process"):
            numpy.zeros(100)
        tn.uninstall()
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    after = tn.statistics()
    assert (after.in_use, after.live, after.overhead) == (before.in_use, before.live, before.overhead)
    assert after.allocations > before.allocations


@pytest.mark.parametrize("scope", ["process", "context"])
def test_ctrl_c_while_a_block_begins_or_ends(scope: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler runs at the end of any call: what was set then is taken back, or stays taken back."""
    if scope == "process":
        places: list[tuple[Any, str]] = [(_scopes._process, "push"), (_scopes._process, "remove")]
    else:
        places = [(_numpy, "enter_context"), (_numpy, "leave_context")]
    for owner, name in places:
        original, came = getattr(owner, name), []

        def interrupted(*arguments: Any, original: Any = original, came: list[int] = came) -> Any:
            result = original(*arguments)
            if not came:
                came.append(1)
                raise KeyboardInterrupt
            return result

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt), tn.use(scope=scope):
                assert handler() == COUNTED
        assert came
        assert (handler(), in_thread(handler)) == (ORDINARY, ORDINARY)
