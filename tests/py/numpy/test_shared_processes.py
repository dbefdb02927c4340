"""Shared arrays and other processes: started in each way, not related, killed, and forked."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy_support import ended_well

import tack_memory.numpy as tn

HERE = Path(__file__).parent


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(method: str) -> None:
    done = subprocess.run([sys.executable, str(HERE / "shared_program.py"), method], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "right", "")


class Peer:
    """The process of shared_peer.py."""

    def __init__(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(path))
            listening.listen()
            self.process = subprocess.Popen([sys.executable, str(HERE / "shared_peer.py"), str(path)])
            listening.settimeout(60)
            self.connection, _ = listening.accept()
        self.connection.settimeout(60)

    def tell(self, command: bytes, handle: Any = None) -> None:
        self.connection.sendall(command)
        if handle is not None:
            handle.send(self.connection)
        assert self.connection.recv(1) == b"k"

    def end(self) -> None:
        self.connection.close()
        assert self.process.wait(60) == 0


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    made = Peer(tmp_path / "socket")
    yield made
    made.connection.close()
    made.process.kill()
    made.process.wait()


more = itertools.count(20, 20)


def used_again(address: int) -> bool:
    """Whether new arrays get that block; they are more each time than those before have left. What other tests have left to be looked at comes first."""
    for _ in range(10):
        with tn.use("shared"):
            arrays = [numpy.empty(100_000) for _ in range(next(more))]
        if address in [array.ctypes.data for array in arrays]:
            return True
    return False


def test_a_process_that_is_not_related(peer: Peer) -> None:
    with tn.use("shared"):
        array = numpy.zeros((100, 1000))
    with tn.share(array[::7, ::-3]) as handle:
        peer.tell(b"a", handle)
    peer.tell(b"w")
    assert (array[::7, ::-3] == 1).all() and array.sum() == array[::7, ::-3].size
    address = array.ctypes.data
    del array
    assert not used_again(address), "the other process sees it"
    peer.tell(b"d")
    assert used_again(address)
    peer.end()


def test_one_that_ends_takes_nothing_with_it(peer: Peer, tmp_path: Path) -> None:
    """multiprocessing.shared_memory's segment would be deleted by the other process's resource tracker."""
    with tn.use("shared"):
        array = numpy.arange(1000)
    with tn.share(array) as handle:
        peer.tell(b"a", handle)
        peer.end()
        assert numpy.array_equal(handle.attach(), array)
        again = Peer(tmp_path / "again")
        again.tell(b"a", handle)
        again.tell(b"w")
        again.end()
    assert numpy.array_equal(array, numpy.arange(1, 1001))


def test_one_that_is_killed_lets_go(peer: Peer) -> None:
    with tn.use("shared"):
        array = numpy.zeros(100_000)
    with tn.share(array) as handle:
        peer.tell(b"a", handle)
    address = array.ctypes.data
    del array
    assert not used_again(address)
    peer.connection.sendall(b"s")
    peer.process.send_signal(signal.SIGKILL)
    peer.process.wait()
    assert used_again(address)


def files_of_shared_memory() -> set[str]:
    """Without semaphores: tests in other processes use multiprocessing's at this time."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(("sem.", "mpich_"))}


def test_a_maker_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whoever sees the array keeps it; then the kernel has its memory back. No file of any name was ever there."""
    script = """
        import os, signal, socket, sys
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="shared")
        array = numpy.full(5_000_000, 7)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(sys.argv[1])
            tn.share(array).send(connection)
            connection.recv(1)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    before = files_of_shared_memory()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        listening.settimeout(60)
        maker = subprocess.Popen([sys.executable, "-c", "import sys, textwrap; exec(textwrap.dedent(sys.argv.pop(1)))", script, str(tmp_path / "socket")])
        connection, _ = listening.accept()
        with connection, tn.Handle.receive(connection) as handle:
            connection.sendall(b"k")
            assert maker.wait(60) == -signal.SIGKILL
            array = handle.attach()
    assert (array == 7).all()
    array[:] = 8
    assert (array == 8).all()
    assert files_of_shared_memory() <= before


def test_the_maker_of_an_array_ends_and_the_array_goes_on() -> None:
    """A process gets a handle from one that ends before it is attached."""
    script = """
        import os, socket
        import numpy
        import tack_memory.numpy as tn
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            with tn.use("shared"):
                tn.share(numpy.arange(100_000)).send(theirs)
            os._exit(0)
        handle = tn.Handle.receive(ours)
        assert os.wait()[1] == 0
        assert (handle.attach() == numpy.arange(100_000)).all()
    """
    ended_well(script)


FORK = """
    import os, sys
    import numpy
    import tack_memory.numpy as tn

    arguments = {"allocator": sys.argv[1]}
    if sys.argv[1] == "mmap":
        arguments["path"] = sys.argv[2]
    tn.install(**arguments)
    ready, begin = os.pipe()
    mine = [numpy.full(size, 1) for size in (10, 500, 30_000, 2_000_000)]
    freed = [numpy.full(size, 2) for size in (10, 500, 30_000, 2_000_000)]
    del freed                            # blocks that both could give out again
    pid = os.fork()
    if pid == 0:
        try:
            os.close(begin)              # or it would wait for a parent that has failed
            theirs = [numpy.full(size, 3) for size in (10, 500, 30_000, 2_000_000)]
            os.read(ready, 1)            # now the parent has made its arrays
            assert all((array == 3).all() for array in theirs), "the parent has the same blocks"
            assert [len(array) for array in mine] == [10, 500, 30_000, 2_000_000]
            assert all((array == 1).all() for array in mine), "the parent has used our blocks again"
            now = tn.statistics()
            assert now.inherited_live == 4 and now.in_use == 8 * 2 * 2_030_510, now
            assert [arena.own for arena in tn.arenas()] == [True, False]
            try:
                tn.share(mine[0])
            except ValueError as error:
                assert "forked" in str(error)
            else:
                raise AssertionError("shared")
            assert (tn.share(theirs[1]).attach() == 3).all()
            mine[2].resize(40_000, refcheck=False)
            assert (mine[2][:30_000] == 1).all() and not mine[2][30_000:].any()
            del mine[:]
            more = [numpy.full(size, 4) for size in (10, 500, 30_000, 2_000_000) for _ in range(3)]
            assert all((array == 3).all() for array in theirs)
            assert tn.statistics().inherited == 0
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    addresses = {array.ctypes.data for array in mine}
    del mine
    others = [numpy.full(size, 5) for size in (10, 500, 30_000, 2_000_000) for _ in range(3)]
    assert not addresses & {array.ctypes.data for array in others}, "the child sees those"
    os.write(begin, b"k")
    assert os.waitpid(pid, 0)[1] == 0
    assert all((array == 5).all() for array in others)
    del others
    for size in (10, 500, 30_000, 2_000_000):
        for _ in range(40):              # a few looks at what waits
            numpy.empty(size)
    again = [numpy.empty(size) for size in (10, 500, 30_000, 2_000_000) for _ in range(8)]
    assert sum(arena.waiting_bytes for arena in tn.arenas()) == 0, tn.arenas()
    print("right")
"""


@pytest.mark.parametrize("allocator", ["shared", "mmap"])
def test_fork(allocator: str, tmp_path: Path) -> None:
    """No block is given out by both, and those of arrays that the child has inherited by nobody."""
    assert ended_well(FORK, allocator, str(tmp_path / "arrays")).strip() == "right"


def test_a_program_that_is_started_holds_nothing() -> None:
    """subprocess: the new program has neither the mapping nor the locks."""
    script = """
        import subprocess, sys
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="shared")
        array = numpy.zeros(100_000)
        address = array.ctypes.data
        for arguments in ({}, {"preexec_fn": int}, {"close_fds": False}):
            process = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **arguments)
            process.stdout.readline()
            del array
            array = numpy.zeros(100_000)
            assert array.ctypes.data == address, arguments
            process.communicate(b"\\n")
    """
    ended_well(script)


def test_a_fork_that_cannot_be_watched() -> None:
    """No descriptor is left to see by when the child ends: what it may have inherited is never used again, rather than too early."""
    script = """
        import os, resource
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="shared")
        array = numpy.full(100_000, 1)
        address = array.ctypes.data
        ready, begin = os.pipe()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        pid = os.fork()
        if pid == 0:
            os.close(begin)
            os.read(ready, 1)
            os._exit(0 if (array == 1).all() else 1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        del array
        others = [numpy.full(100_000, 2) for _ in range(10)]
        assert address not in [other.ctypes.data for other in others]
        os.write(begin, b"k")
        assert os.waitpid(pid, 0)[1] == 0
        assert sum(arena.waiting_bytes for arena in tn.arenas()) > 0
    """
    ended_well(script)


def test_a_resize_in_its_place_makes_no_other_array_of_an_inherited_one() -> None:
    script = """
        import os
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="shared")
        array = numpy.full(200_000, 1.0)     # its block has room for some more
        address = array.ctypes.data
        ready, begin = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(begin)
            os.read(ready, 1)
            os._exit(0 if (array == 1).all() else 1)
        array.resize(200_100, refcheck=False)
        assert array.ctypes.data == address
        del array
        others = [numpy.full(200_000, 2.0) for _ in range(10)]
        assert address not in [other.ctypes.data for other in others]
        os.write(begin, b"k")
        assert os.waitpid(pid, 0)[1] == 0
        others += [numpy.full(200_000, 2.0) for _ in range(10)]
        assert address in [other.ctypes.data for other in others]
        del others
        again = numpy.full(200_000, 1.0)     # made after the fork: nobody else's
        address = again.ctypes.data
        del again
        assert numpy.empty(200_000).ctypes.data == address
    """
    ended_well(script)


CLOSED = """
    import os, sys
    import numpy
    import tack_memory.numpy as tn

    MIB = 2**20
    tn.install(allocator="shared")
    kept = numpy.full(20 * MIB, 3, "u1")
    shared = numpy.full(100_000, 4)
    address = shared.ctypes.data
    handle = tn.share(shared)
    attached = handle.attach()
    count = len(os.listdir("/proc/self/fd"))
    os.closerange(3, 1000)                                      # as a daemon does
    path = os.path.join(sys.argv[1], "file-%d")
    files = [open(path % number, "wb+", buffering=0) for number in range(count)]   # the numbers are the program's now
    for file in files:
        os.pwrite(file.fileno(), b"A" * MIB, 256 * MIB)

    many = [numpy.empty(70 * MIB, "u1") for _ in range(6)]
    many.clear()                                                # more than is kept: some is given back
    assert kept.all() and (attached == 4).all()
    try:
        tn.share(kept)
    except OSError as error:
        assert error.errno == 9 and "closed the descriptor" in str(error), error
    else:
        raise AssertionError("shared, by the descriptor of another file")
    del shared                                                  # nobody can be asked whether it is looked at
    others = [numpy.zeros(100_000, "i8") for _ in range(20)]
    assert address not in [other.ctypes.data for other in others]
    with tn.share(others[0]) as another:                        # in an arena of their own
        another.attach()[0] = 5
    assert others[0][0] == 5
    assert len([arena for arena in tn.arenas() if arena.own]) == 2

    pid = os.fork()
    if pid == 0:
        os._exit(0 if kept.all() and others[0][0] == 5 else 1)
    assert os.waitpid(pid, 0)[1] == 0

    handle._fd = -1                                             # of the program's making: as with any object that has a descriptor
    del attached, others, kept
    tn.uninstall()
    for number, file in enumerate(files):
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(path % number)), "closed"
        assert os.fstat(file.fileno()).st_size == 257 * MIB
        assert os.pread(file.fileno(), MIB, 256 * MIB) == b"A" * MIB, "a hole was made"
    print("right")
"""


def test_a_program_that_closes_all_descriptors(tmp_path: Path) -> None:
    """Their numbers are soon those of its own files, which nothing of ours may touch."""
    assert ended_well(CLOSED, str(tmp_path)).strip() == "right"


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@as_root
def test_another_user_cannot_write_through_a_readonly_handle() -> None:
    script = """
        import mmap, os
        import numpy
        import tack_memory.numpy as tn
        with tn.use("shared"):
            array = numpy.zeros(10)
        handle = tn.share(array, readonly=True)
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            assert not handle.attach().any(), "what it was given works"
            try:
                mmap.mmap(os.open(f"/proc/self/fd/{handle.fileno()}", os.O_RDWR), 4096)
            except PermissionError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
    """
    ended_well(script)


@as_root
def test_a_process_that_becomes_another_user() -> None:
    script = """
        import os
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="shared")
        array = numpy.zeros(100_000)
        tn.share(array).close()      # another user may not read what is still to be imported
        os.setgid(65534)
        os.setuid(65534)
        try:
            tn.share(array)
        except PermissionError as error:
            assert "the user that this process was before" in str(error), error
        else:
            raise AssertionError("shared")
        with tn.share(array.copy()) as handle:
            assert not handle.attach().any()
    """
    ended_well(script)


def test_a_handle_on_its_way_holds() -> None:
    """Sent, and not yet received; the sender's own is closed, and the array gone."""
    script = """
        import multiprocessing, time
        import numpy
        import tack_memory.numpy as tn
        if __name__ == "__main__":
            tn.install(allocator="shared")
            queue = multiprocessing.get_context("fork").SimpleQueue()
            array = numpy.full(100_000, 6)
            address = array.ctypes.data
            with tn.share(array) as handle:
                queue.put(handle)
            del array
            others = [numpy.zeros(100_000) for _ in range(10)]
            assert address not in [other.ctypes.data for other in others]
            with queue.get() as handle:
                attached = handle.attach()
            assert (attached == 6).all()
            del attached
            began = time.monotonic()
            while address not in [other.ctypes.data for other in others]:   # multiprocessing's thread lets go of its own when it has time
                assert time.monotonic() < began + 60
                others.append(numpy.zeros(100_000))
    """
    ended_well(script)


def test_an_inherited_handle_holds_until_the_child_ends() -> None:
    script = """
        import os
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="shared")
        array = numpy.full(100_000, 1.5)
        handle = tn.share(array)
        address = array.ctypes.data
        ready, begin = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(begin)
            os.read(ready, 1)
            os._exit(0 if (handle.attach() == 1.5).all() else 1)
        handle.close()
        del array
        others = [numpy.zeros(100_000) for _ in range(5)]
        assert address not in [other.ctypes.data for other in others]
        os.write(begin, b"k")
        assert os.waitpid(pid, 0)[1] == 0
        others = [numpy.zeros(100_000) for _ in range(12)]
        assert address in [other.ctypes.data for other in others]
    """
    ended_well(script)


def test_python_ends_with_handles_and_attached_arrays() -> None:
    script = """
        import sys
        import numpy
        import tack_memory.numpy as tn
        tn.install(allocator="shared")
        array = numpy.zeros(1000)
        handle = tn.share(array)
        attached = handle.attach()
        cycle = [array, handle, attached]
        cycle.append(cycle)
        sys.modules["kept"] = attached
    """
    assert ended_well(script) == ""
