"""Forked children, pools of processes, the end of Python, and resident memory: each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy_support
import pytest
from numpy_support import ended_well

LEAKS = Path(__file__).resolve().parents[2] / "numpy_suite" / "leaks.py"

resident_memory_is_ours = pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps freed memory, and maps its own")


@pytest.fixture(params=numpy_support.ALLOCATORS)
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The arguments of install, as JSON; a file of its own where arrays lie in one."""
    arguments = dict(numpy_support.ALLOCATORS[request.param])
    if "path" in arguments:
        arguments["path"] = str(tmp_path / "arrays")
    return json.dumps(arguments)


def test_a_forked_child_goes_on_counting(installed: str) -> None:
    script = """
        import json, os, sys
        import numpy
        import tack_memory, tack_memory.numpy as tn

        tn.install(**json.loads(sys.argv[1]))
        ours, grown = numpy.zeros(1000), numpy.zeros(10)
        peak = tack_memory.memory_peak("numpy")
        peak.__enter__()
        pid = os.fork()
        if pid == 0:
            try:
                now = tn.statistics()
                assert (now.in_use, now.inherited, now.inherited_live) == (8080, 8080, 2), now
                theirs = numpy.ones(500)
                assert tn.statistics().in_use == 12080
                assert tack_memory.memory_info("numpy").in_use == 12080
                with tack_memory.memory_peak("numpy") as inner:
                    numpy.empty(100)
                assert (inner.delta, inner.own, peak.delta) == (800, 800, 4800)
                grown.resize(20, refcheck=False)   # made anew here: not inherited any more
                now = tn.statistics()
                assert (now.in_use, now.inherited, now.inherited_live) == (12160, 8000, 1), now
                del ours
                now = tn.statistics()
                assert (now.in_use, now.inherited, now.inherited_live) == (4160, 0, 0), now
                inner_pid = os.fork()
                if inner_pid == 0:
                    now = tn.statistics()
                    os._exit(0 if (now.in_use, now.inherited, now.inherited_live) == (4160, 4160, 2) else 1)
                assert os.waitpid(inner_pid, 0)[1] == 0
                tn.uninstall()
                assert tn.owner(numpy.empty(3)).handler == "default_allocator"
                tn.install()
                assert tn.owner(numpy.empty(3)).handler == "tack_memory"
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        now = tn.statistics()
        assert (now.in_use, now.inherited, peak.delta) == (8080, 0, 0), now
        print("right")
    """
    assert ended_well(script, installed).strip() == "right"


def test_the_first_install_may_be_in_a_child() -> None:
    script = """
        import os
        import numpy, tack_memory
        pid = os.fork()
        if pid == 0:
            import tack_memory.numpy as tn
            tn.install()
            array = numpy.zeros(1000)
            os._exit(0 if tack_memory.memory_info("numpy").in_use == 8000 else 1)
        assert os.waitpid(pid, 0)[1] == 0
    """
    ended_well(script)


@pytest.mark.parametrize(("allocator", "work"), [("default", "numpy.zeros(100)"), ("shared", "tn.share(numpy.zeros(20_000)).close()")])
def test_fork_while_threads_allocate(allocator: str, work: str) -> None:
    """The locks of the books and of the shared memory are nobody's in the child, also when a thread had them in the parent."""
    script = """
        import os, sys, threading
        import numpy
        import tack_memory.numpy as tn

        tn.install(allocator=sys.argv[1])
        stop = False
        def load():
            text = " ".join(map(str, range(3000)))
            while not stop:
                numpy.fromstring(text, sep=" ")     # resizes without the GIL
                {work}
        threads = [threading.Thread(target=load, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            pid = os.fork()
            if pid == 0:
                before = tn.statistics().in_use
                arrays = [numpy.zeros(1000) for _ in range(10)]
                os._exit(0 if tn.statistics().in_use == before + 80000 else 1)
            assert os.waitpid(pid, 0)[1] == 0
        stop = True
        for thread in threads:
            thread.join()
        assert tn.statistics().in_use == 0
    """.replace("{work}", work)
    ended_well(script, allocator)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes(method: str) -> None:
    program = Path(__file__).with_name("pool_program.py")
    done = subprocess.run([sys.executable, str(program), method], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "right"), done.stderr


def test_python_ends_with_arrays_alive_and_a_thread_at_work(installed: str) -> None:
    script = """
        import json, sys, threading
        import numpy
        import tack_memory.numpy as tn
        tn.install(**json.loads(sys.argv[1]))
        alive = [numpy.zeros(n) for n in range(2000)]
        alive.append(alive)
        begun = threading.Event()
        def load():
            while True:
                begun.set()
                numpy.zeros(100).resize(200, refcheck=False)
        threading.Thread(target=load, daemon=True).start()
        begun.wait()
        with tn.use("aligned"):
            kept = numpy.zeros(3)
        sys.modules["kept"] = kept
    """
    for _ in range(3):
        assert ended_well(script, installed) == ""


@resident_memory_is_ours
@pytest.mark.parametrize("allocator", [*numpy_support.ALLOCATORS, "capsule"])
def test_small_arrays_leak_nothing(allocator: str) -> None:
    """A million of them, with each way to make, change and drop them; `make test-numpy` does the same with ten millions."""
    done = subprocess.run([sys.executable, str(LEAKS), allocator, "1000000"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{allocator}: 1," in done.stdout and " 0 more alive" in done.stdout


@resident_memory_is_ours
def test_blocks_and_handlers_leak_nothing() -> None:
    script = """
        import tack_memory.numpy as tn
        import numpy
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096
        def some():
            for _ in range(20_000):
                with tn.use("hugepage"):      # a handler of its own each time
                    numpy.empty(10)
                tn.install()
                tn.uninstall()
        some()
        before = resident()
        some()
        assert resident() - before < 2**19, resident() - before
    """
    ended_well(script)


def huge_pages() -> str:
    try:
        return Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "[never]"


@pytest.mark.skipif("[never]" in huge_pages(), reason="this kernel gives no transparent huge pages")
@resident_memory_is_ours
@pytest.mark.parametrize("make", ["empty", "zeros"])
def test_huge_pages_are_kept(make: str) -> None:
    """What NumPy's own allocator gets, the counting ones get, too; and "hugepage" gets them for zeros of any NumPy."""
    script = """
        import re, sys
        import numpy
        import tack_memory.numpy as tn
        SIZE = 100 * 2**20
        def huge(make):
            array = getattr(numpy, make)(SIZE, "u1")
            array[::4096] = 1
            address, found, inside = array.ctypes.data + SIZE // 2, 0, False
            for line in open("/proc/self/smaps"):
                span = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
                if span:
                    inside = int(span[1], 16) <= address < int(span[2], 16)
                elif inside and line.startswith("AnonHugePages:"):
                    found = int(line.split()[1]) * 1024
            return found
        make = sys.argv[1]
        own, best = huge(make), huge("empty")
        if best < SIZE // 2:
            print("none")
            sys.exit()
        with tn.use():
            counted = huge(make)
        with tn.use("aligned", align=4096):
            aligned = huge(make)
        with tn.use("hugepage"):
            asked = huge(make)
        print(own, counted, aligned, asked)
        assert min(counted, aligned) >= own // 2 and asked >= SIZE // 2, (own, counted, aligned, asked)
    """
    if ended_well(script, make).strip() == "none":
        pytest.skip("the kernel has no huge pages left: NumPy's own arrays get none")


@pytest.mark.skipif("[madvise]" not in huge_pages(), reason="only where the kernel waits to be asked for huge pages can it be seen that nobody asks")
@resident_memory_is_ours
def test_huge_pages_can_be_switched_off() -> None:
    script = """
        import numpy
        import tack_memory.numpy as tn
        with tn.use("hugepage"):
            array = numpy.ones(64 * 2**20, "u1")
        assert array.ctypes.data % 2**21 == 0
        total = sum(int(line.split()[1]) for line in open("/proc/self/smaps") if line.startswith("AnonHugePages:"))
        assert total == 0, total
    """
    ended_well(script, NUMPY_MADVISE_HUGEPAGE="0")


@resident_memory_is_ours
def test_large_zeros_take_no_memory_until_they_are_written() -> None:
    script = """
        import sys
        import numpy
        import tack_memory.numpy as tn
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096
        for allocator in ("default", "aligned", "hugepage"):
            with tn.use(allocator):
                numpy.zeros(10)
                before = resident()
                array = numpy.zeros(400 * 2**20, "u1")
                assert resident() - before < 2**22, (allocator, resident() - before)   # a huge page or two
                del array
    """
    ended_well(script)


def test_importing_tack_memory_does_not_import_it() -> None:
    script = """
        import sys
        import tack_memory
        assert not {"numpy", "tack_memory.numpy", "tack_memory._native._numpy"} & sys.modules.keys()
        tack_memory.numpy.install()
        assert "numpy" in sys.modules
    """
    ended_well(script)


def test_without_numpy_it_says_what_is_missing() -> None:
    script = """
        import sys
        sys.modules["numpy"] = None
        import tack_memory
        try:
            import tack_memory.numpy
        except ImportError as error:
            assert "pip install numpy" in str(error), error
        else:
            sys.exit("imported")
        assert tack_memory.memory_info("cpu").in_use == 0   # and the rest works
    """
    ended_well(script)
