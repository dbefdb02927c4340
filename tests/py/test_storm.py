"""Sixteen threads for half a minute: allocations, cycles whose finalizers allocate, launches, host reads, spills. It ends, and is exact."""

from __future__ import annotations

from support import run_python

SCRIPT = """
    import faulthandler, gc, random, sys, threading, time
    import tack_memory as tm
    from support import pattern, peek

    SECONDS, THREADS = float(sys.argv[1]), 16
    faulthandler.dump_traceback_later(110, exit=True)  # shows where everybody stands, if it does not end
    shared = [tm.allocate(256 << 10, "sim:0", zero=False) for _ in range(8)]
    for place, buffer in enumerate(shared):
        buffer.copy_from_host(pattern(buffer.nbytes, place))
    failures, counts = [], [0] * THREADS
    made = []
    stop = time.monotonic() + SECONDS

    class Node:
        '''Only the collector finds it; it allocates and drops when it dies.'''
        def __init__(self, random_):
            self.buffer, self.me = tm.allocate(random_.randrange(1, 64 << 10), "sim:0"), self
        def __del__(self):
            buffer = tm.allocate(1000, "sim:0")
            made.append(buffer.nbytes)

    def work(number):
        random_ = random.Random(number)
        mine = []
        try:
            while time.monotonic() < stop:
                counts[number] += 1
                action = random_.randrange(10)
                if action < 3:
                    seed, nbytes = random_.randrange(1000), random_.randrange(1, 96 << 10)
                    buffer = tm.allocate(nbytes, "sim:0", zero=False)
                    buffer.copy_from_host(pattern(nbytes, seed))
                    mine.append((buffer, seed))
                    if len(mine) > 6:
                        mine.pop(random_.randrange(len(mine)))
                elif action == 3:
                    Node(random_)
                elif action == 4 and mine:
                    buffer, seed = random_.choice(mine)
                    assert buffer.copy_to_host() == pattern(buffer.nbytes, seed)
                elif action == 5 and mine:
                    random_.choice(mine)[0].spill()
                elif action == 6:
                    chosen = random_.sample(range(8), 3)
                    with tm.launch(*(shared[place] for place in chosen)) as pointers:
                        for place, pointer in zip(chosen, pointers):
                            assert peek(pointer, 64, "sim:0") == pattern(64, place)
                elif action == 7 and mine:
                    with tm.memory_peak("sim:0") as peak, tm.launch(*(buffer for buffer, _ in mine[:2])) as pointers:
                        for (buffer, seed), pointer in zip(mine, pointers):
                            assert peek(pointer, min(64, buffer.nbytes), "sim:0") == pattern(min(64, buffer.nbytes), seed)
                elif action == 8:
                    random_.choice(shared).spill()
                    tm.memory_info("sim:0")
                elif mine:
                    buffer, _ = mine.pop()
                    buffer.free()
            for buffer, seed in mine:
                assert buffer.copy_to_host() == pattern(buffer.nbytes, seed)
        except BaseException as error:
            failures.append(repr(error))
            raise

    tm.set_memory_budget("2 MiB", "sim:0")
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    faulthandler.cancel_dump_traceback_later()
    assert not failures, failures
    assert all(bytes(buffer.copy_to_host()) == pattern(buffer.nbytes, place) for place, buffer in enumerate(shared))
    for _ in range(3): gc.collect()
    tm.set_memory_budget(None, "sim:0")
    tm.synchronize("sim:0")
    info = tm.memory_info("sim:0")
    assert info.in_use + info.spilled == sum(buffer.nbytes for buffer in shared), info
    assert info.reserved == info.pending_free == 0 and info.spill_count and info.restore_count and made, info
    from tack_memory._control import call
    call("Check", tm._devices.resolve("sim:0"))
    print("ended", min(counts) > 0)
    """


def test_a_storm_of_16_threads_ends_and_loses_nothing(device: str) -> None:
    done = run_python(SCRIPT, "30", timeout=120, device=device, TACK_MEMORY_CHECK="0")
    assert done.stdout.strip() == "ended True" and done.returncode == 0, done.stdout + done.stderr


def test_the_same_with_the_books_verified_after_every_operation(device: str) -> None:
    done = run_python(SCRIPT, "5", timeout=120, device=device, TACK_MEMORY_CHECK="1")
    assert done.stdout.strip() == "ended True" and done.returncode == 0, done.stdout + done.stderr
