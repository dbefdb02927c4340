"""Blocks of label() belong to contexts: of threads, of asyncio tasks; they may overlap, be left in any order, anywhere, or never."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections import deque
from collections.abc import Iterator

import pytest

import tack_memory
from tack_memory import allocate, label


def now(device: str) -> str | None:
    """What a buffer that is allocated now is called."""
    return allocate(1, device).label


def test_blocks_may_be_left_in_any_order(any_device: str) -> None:
    blocks = {name: label(name) for name in "ABC"}
    for name in "ABC":
        blocks[name].__enter__()
    for left, innermost in (("B", "C"), ("C", "A"), ("A", None)):
        blocks[left].__exit__(None, None, None)
        assert now(any_device) == innermost, f"after {left}"


def test_tasks_whose_blocks_overlap_label_their_own(any_device: str) -> None:
    async def work(name: str, others: dict[str, asyncio.Event]) -> list[str | None]:
        with label(name):
            seen = [now(any_device)]
            others[name].set()
            await asyncio.gather(*(event.wait() for event in others.values()))  # all are inside now
            seen.append(now(any_device))
            for _ in range(int(name)):
                await asyncio.sleep(0)
            seen.append(now(any_device))
        return [*seen, now(any_device)]

    async def main() -> None:
        events = {name: asyncio.Event() for name in "123"}
        with label("around"):
            told = await asyncio.gather(*(work(name, events) for name in events))
        assert told == [[name, name, name, "around"] for name in events]
        assert now(any_device) is None

    asyncio.run(main())


def test_a_task_or_thread_that_is_given_the_context_has_its_label_until_the_block_ends(any_device: str) -> None:
    with label("block"):
        context = contextvars.copy_context()
        assert context.run(now, any_device) == "block"
    assert context.run(now, any_device) is None
    with label("another"):  # some block is open, so that somebody asks
        assert context.run(now, any_device) is None


def test_a_block_may_be_left_in_another_thread(any_device: str) -> None:
    block = label("left elsewhere")
    block.__enter__()
    thread = threading.Thread(target=block.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    with label("other"):
        assert now(any_device) == "other"
    assert now(any_device) is None


def test_one_object_entered_by_two_threads_ends_for_each(any_device: str) -> None:
    block = label("shared")
    entered, leave = threading.Event(), threading.Event()
    seen: list[str | None] = []

    def work() -> None:
        with block:
            entered.set()
            leave.wait(60)
            seen.append(now(any_device))
        seen.append(now(any_device))

    thread = threading.Thread(target=work)
    with block:
        thread.start()
        assert entered.wait(60)
    assert now(any_device) is None, "the entry of this thread has ended, and not the newest"
    leave.set()
    thread.join()
    assert seen == ["shared", None]


def test_a_generator_that_is_dropped_leaves_no_label(any_device: str) -> None:
    def generate() -> Iterator[str | None]:
        with label("of the generator"):
            yield now(any_device)

    generator = generate()
    assert next(generator) == "of the generator"
    with label("after it"):
        del generator
        assert now(any_device) == "after it"
    assert now(any_device) is None


def test_a_block_that_is_dropped_while_entered_ends(any_device: str) -> None:
    block = label("dropped")
    block.__enter__()
    del block
    with label("other"):
        pass
    assert now(any_device) is None


@pytest.mark.parametrize("open_at_a_time", [1, 2, 5])
def test_overlapping_blocks_keep_nothing_of_those_that_ended(any_device: str, open_at_a_time: int) -> None:
    """Each is left after others have been entered inside it: what ended must not stay as a chain behind the last."""
    blocks = deque(label("first") for _ in range(open_at_a_time))
    for block in blocks:
        block.__enter__()
    before = sys.getallocatedblocks()
    for _ in range(5000):
        blocks.append(label("next"))
        blocks[-1].__enter__()
        blocks.popleft().__exit__(None, None, None)
    assert sys.getallocatedblocks() - before < 2000
    while blocks:
        assert now(any_device) == "next"
        blocks.popleft().__exit__(None, None, None)
    assert now(any_device) is None


def test_thousands_of_blocks_inside_one_another_end_at_once(any_device: str) -> None:
    """Each has the one outside of it: given back one inside the other, they would need as many frames of C."""
    blocks = [label("deep") for _ in range(200_000)]
    for block in blocks:
        block.__enter__()
    context = contextvars.copy_context()
    assert context.run(now, any_device) == "deep"
    del block
    blocks.clear()
    with label("other"):
        assert context.run(now, any_device) is None
    assert now(any_device) is None
    del context


def test_no_label_inside_a_label(any_device: str) -> None:
    with label("outer"):
        with label(None):
            assert now(any_device) is None
        assert now(any_device) == "outer"


def test_a_freed_buffer_is_labelled_no_more(any_device: str) -> None:
    buffer = allocate(1, any_device, label="kept")
    view = buffer.view(0, 1)
    buffer.free()
    for one in (buffer, view):
        with pytest.raises(ValueError, match="was freed"):
            one.label = "late"
    assert buffer.label == "kept", "it can be read"
    with pytest.raises(ValueError, match="was freed"):
        tack_memory.label("late", buffer)
