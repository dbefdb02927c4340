"""Arrays in a file: what the file holds, whose it is, and what happens when there is no room."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy
import pytest
from numpy_support import MIB, ended_well

import tack_memory.numpy as tn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "arrays"


def test_the_file_has_the_bytes_of_the_arrays(path: Path) -> None:
    with tn.use("mmap", path=path):
        array = numpy.arange(100_000)
        tiny = numpy.full(3, 7, "u1")
    assert tn.owner(array).handler == "tack_memory_mmap"  # type: ignore[union-attr]
    assert tn.arenas()[0].path == str(path)
    assert path.read_bytes().startswith(b"tack_memory: NumPy arrays")
    for one in (array, tiny):
        with tn.share(one) as handle:
            assert (numpy.memmap(path, one.dtype, "r", handle.offset, one.shape) == one).all()
    with tn.share(array[::-5]) as handle:
        other = handle.attach()
    other[0] = 5
    assert array[-1] == 5
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_the_file_stays_and_is_begun_anew(path: Path) -> None:
    with tn.use("mmap", path=path):
        array = numpy.full(100_000, 5)
    with tn.share(array) as handle:
        offset = handle.offset
    del array
    assert not any(arena.path == str(path) for arena in tn.arenas()), "nothing holds it"
    assert (numpy.memmap(path, "i8", "r", offset, (100_000,)) == 5).all()
    before = path.stat().st_ino
    with tn.use("mmap", path=path):
        assert not numpy.zeros(100_000).any()
    assert path.stat().st_ino == before


def test_what_one_process_leaves_another_reads(path: Path) -> None:
    """Also when it was killed."""
    script = """
        import os, signal, sys
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="mmap", path=sys.argv[1])
        array = numpy.full(1_000_000, 3)
        print(tn.share(array).offset, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (numpy.memmap(path, "i8", "r", int(done.stdout), (1_000_000,)) == 3).all()


def test_several_paths_at_once(path: Path) -> None:
    others = [path.with_name(f"arrays-{number}") for number in range(3)]
    with tn.use("mmap", path=path):
        first = numpy.ones(5000)
        with tn.use("mmap", path=str(others[0])):
            second = numpy.ones(5000)
            with tn.use("mmap", path=os.path.relpath(path)):
                third = numpy.ones(5000)
        with tn.use("shared"):
            fourth = numpy.ones(5000)
    paths = {str(path), str(others[0])}
    assert {arena.path: arena.live for arena in tn.arenas() if arena.path in paths} == {str(path): 2, str(others[0]): 1}
    assert tn.owner(fourth).handler == "tack_memory_shared"  # type: ignore[union-attr]
    del first, third
    assert not any(arena.path == str(path) for arena in tn.arenas())
    assert second.sum() == 5000


def test_somebody_elses_file_is_left_alone(path: Path) -> None:
    path.write_text("a letter")
    for use in (tn.install, tn.use):
        with pytest.raises(FileExistsError, match="not empty: remove it, or give another path") as error:
            use(allocator="mmap", path=path)
        assert error.value.filename == str(path)
    assert path.read_text() == "a letter"
    path.write_bytes(b"")
    with tn.use("mmap", path=path):
        numpy.empty(3)
    with pytest.raises(FileNotFoundError):
        tn.use("mmap", path=path.parent / "none" / "there")
    with pytest.raises(OSError) as wrong:
        tn.use("mmap", path=path.parent)
    assert wrong.value.errno == errno.EISDIR
    fifo = path.with_name("fifo")
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="fifo"):
        tn.use("mmap", path=fifo)


def test_two_processes_do_not_have_one_file(path: Path) -> None:
    script = """
        import sys
        import tack_memory.numpy as tn
        try:
            tn.install(allocator="mmap", path=sys.argv[1])
        except BlockingIOError as error:
            assert error.filename == sys.argv[1] and "file of its own" in str(error)
            print("right")
    """
    with tn.use("mmap", path=path):
        array = numpy.arange(1000)
        assert ended_well(script, str(path)).strip() == "right"
    assert array.sum() == 499_500


def test_a_file_whose_arrays_are_still_seen_is_in_use(path: Path) -> None:
    """Its maker is gone; to begin it anew would kill whoever reads an array that he attached."""
    script = """
        import os, socket, sys
        import numpy
        import tack_memory.numpy as tn
        with tn.use("mmap", path=sys.argv[1]):
            array = numpy.full(100_000, 7)
        with socket.socket(fileno=int(sys.argv[2])) as connection:
            tn.share(array).send(connection)
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arguments = [sys.executable, "-c", textwrap.dedent(script), str(path), str(theirs.fileno())]
        maker = subprocess.run(arguments, pass_fds=[theirs.fileno()], timeout=60, check=False)
        assert maker.returncode == 0
        with tn.Handle.receive(ours) as handle:
            with pytest.raises(BlockingIOError, match="in use"):
                tn.use("mmap", path=path)
            array = handle.attach()
    with pytest.raises(BlockingIOError, match="sees some by handles"):
        tn.use("mmap", path=path)
    assert (array == 7).all()
    del array
    with tn.use("mmap", path=path):
        assert not numpy.zeros(100_000).any()


def test_a_program_that_closes_all_descriptors(path: Path) -> None:
    """Then the file cannot grow: MemoryError, and the file that has its number now is left alone."""
    script = """
        import os, sys
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="mmap", path=sys.argv[1])
        array = numpy.full(100_000, 1)
        os.closerange(3, 1000)
        files = [open(f"{sys.argv[1]}-{number}", "wb+") for number in range(10)]
        for size in (10_000_000, 200_000, 3000):
            try:
                numpy.ones(size)
            except MemoryError:
                continue
            raise AssertionError(size)
        assert array.tobytes() == bytes([1, 0, 0, 0, 0, 0, 0, 0]) * 100_000
        array.resize(10, refcheck=False)
        del array
        tn.uninstall()
        assert [os.fstat(file.fileno()).st_size for file in files] == [0] * 10
        print("right")
    """
    assert ended_well(script, str(path)).strip() == "right"


def test_a_path_is_for_mmap_only(path: Path) -> None:
    with pytest.raises(ValueError, match="say which, path="):
        tn.use("mmap")
    with pytest.raises(ValueError, match='path is for the allocator "mmap"'):
        tn.use("shared", path=path)
    with pytest.raises(TypeError):
        tn.use("mmap", path=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="aligns by itself"):
        tn.use("mmap", path=path, align=128)
    assert not path.exists()


def test_no_room_in_the_file(path: Path) -> None:
    """A MemoryError of the array that has none, not a signal when it is written; the limit on the length of files stands for a full disk."""
    script = """
        import resource, sys
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="mmap", path=sys.argv[1])
        numpy.ones(3)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60 * 2**20,) * 2)
        before, arrays = tn.statistics(), []
        try:
            while True:
                arrays.append(numpy.ones(2**20, "u1"))
        except MemoryError:
            pass
        assert 50 <= len(arrays) < 60, len(arrays)
        small = []
        try:
            while True:
                small.append(numpy.ones(1000, "u1"))
        except MemoryError:
            pass
        try:
            arrays[0].resize(2 * 2**20, refcheck=False)
        except MemoryError:
            pass
        else:
            raise AssertionError("grown")
        assert all(array.all() for array in [*arrays, *small])
        after = tn.statistics()
        assert after.failed - before.failed == 3
        assert after.in_use - before.in_use == len(arrays) * 2**20 + len(small) * 1000
        del arrays[10:]
        arrays += [numpy.ones(900_000, "u1") for _ in range(20)]
        arrays.clear()
        small.clear()
        assert tn.statistics().in_use == before.in_use
        print("right")
    """
    assert ended_well(script, str(path)).strip() == "right"
    assert path.stat().st_size <= 60 * MIB


def test_freed_room_is_used_again(path: Path) -> None:
    with tn.use("mmap", path=path):
        for number in range(50):
            array = numpy.full(MIB, number)
            assert (array == number).all()
            del array
        assert path.stat().st_size < 20 * MIB
        arrays = [numpy.ones(50 * MIB, "u1") for _ in range(6)]
        arrays.clear()
        assert path.stat().st_blocks * 512 < 270 * MIB, "holes were made"
        assert not numpy.zeros(40 * MIB).any()


def test_a_forked_child_has_a_file_of_its_own(path: Path) -> None:
    """Without a name, so that it ends with the child; the parent's stays in use until both have ended."""
    script = """
        import os, sys
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="mmap", path=sys.argv[1])
        array = numpy.full(1000, 1)
        folder = os.path.dirname(sys.argv[1])
        pid = os.fork()
        if pid == 0:
            mine = numpy.full(100_000, 2)
            handle = tn.share(mine)
            where = os.stat(handle.fileno())
            right = where.st_nlink == 0 and where.st_ino != os.stat(sys.argv[1]).st_ino and where.st_dev == os.stat(folder).st_dev
            right = right and os.listdir(folder) == ["arrays"] and (handle.attach() == 2).all() and (array == 1).all()
            os._exit(0 if right else 1)
        assert os.wait()[1] == 0
        assert os.listdir(folder) == ["arrays"]
        print("right")
    """
    assert ended_well(script, str(path)).strip() == "right"
