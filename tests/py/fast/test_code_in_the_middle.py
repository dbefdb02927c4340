"""Python code that runs in the middle of a call (an argument's __index__ or __bool__, a weak reference's callback) ends what the call works on."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
from support import pattern, run_python

import tack_memory as tm
from tack_memory._native import _fast


class Acting:
    """Does something when a call reads it as an int or a bool."""

    def __init__(self, act: Callable[[], object], value: int = 0) -> None:
        self.act, self.value = act, value

    def __index__(self) -> int:
        self.act()
        return self.value

    def __bool__(self) -> bool:
        self.act()
        return bool(self.value)


CALLS: dict[str, Callable[[tm.Buffer | tm.BufferView, Acting, tm.Buffer], object]] = {
    "copy_to_host": lambda target, acting, _: target.copy_to_host(offset=acting),
    "copy_to_host into": lambda target, acting, _: target.copy_to_host(bytearray(5), acting),
    "copy_from_host": lambda target, acting, _: target.copy_from_host(b"12345", acting),
    "fill": lambda target, acting, _: target.fill(1, acting),
    "fill with": lambda target, acting, _: target.fill(acting),
    "copy_from": lambda target, acting, other: target.copy_from(other, acting, nbytes=5),
    "copy to": lambda target, acting, other: other.copy_from(target, acting, nbytes=5),
    "view": lambda target, acting, _: target.view(acting, 5),
}


@pytest.mark.parametrize("of_view", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_an_argument_that_frees_the_buffer(name: str, of_view: bool, any_device: str) -> None:
    buffer, other = tm.allocate(1000, any_device), tm.allocate(1000, any_device)
    other.copy_from_host(pattern(1000))
    target = buffer.view(100, 500) if of_view else buffer
    innocent = []

    def act() -> None:
        buffer.free()
        innocent.append(tm.allocate(1000, any_device))  # it has the index of the freed one

    with pytest.raises(ValueError, match="was freed"):
        CALLS[name](target, Acting(act), other)
    assert bytes(innocent[0].copy_to_host()) == bytes(1000)
    assert bytes(other.copy_to_host()) == pattern(1000)


@pytest.mark.parametrize("keyword", ["copy", "max_version", "dl_device"])
def test_an_argument_that_closes_the_export(keyword: str, any_device: str) -> None:
    buffer = tm.allocate(1000, any_device)
    exported = buffer.export("dlpack")
    acting = Acting(exported.close, 1)
    with pytest.raises(ValueError, match="closed"):
        exported.__dlpack__(**{keyword: acting if keyword == "copy" else (1, acting)})
    assert buffer.holds == {}


def test_a_dying_buffer_is_not_found_by_the_callback_of_a_weak_reference(device: str) -> None:
    """wrap() and alive() gave a new reference to it, which was left behind when it was gone. Its memory is neither a buffer's any more nor somebody else's."""
    buffer = tm.allocate(1000, device)
    address = buffer.device_ptr
    found: list[object] = []

    def look(_: object) -> None:
        with pytest.raises(ValueError, match="was moved or freed meanwhile"):
            tm.wrap(address, 10, device, None)
        found.append("wrap")
        found.extend(alive for alive in _fast.alive() if alive.nbytes == 1000 and alive.device == device)

    reference = weakref.ref(buffer, look)
    others = [alive for alive in _fast.alive() if alive.nbytes == 1000 and alive is not buffer]
    del buffer
    assert reference() is None
    assert found == ["wrap", *others]


def test_a_label_whose_destructor_makes_labels_leaves_the_others_right() -> None:
    """The memory of the last labels mixed up a text and another one's number."""
    done = run_python("""
        import tack_memory as tm

        class Label(str):
            def __del__(self):
                made.append("made in a destructor %d" % len(made))
                buffers.append(tm.allocate(1, "sim:0", label=made[-1]))

        made, buffers = [], []
        for number in range(1000):
            before = len(made)
            tm.allocate(1, "sim:0", label=Label("plain %d" % number))
            for text in made[before:]:
                buffers.append(tm.allocate(2, "sim:0", label=text))
        counted = {holder.label: holder.bytes for holder in tm.memory_report("sim:0").holders}
        assert len(made) > 500
        assert counted == {text: 3 for text in made}, {text: counted.get(text) for text in made if counted.get(text) != 3}
        print("ended")
        """)
    assert done.stdout.strip() == "ended", done.stdout + done.stderr


@pytest.mark.parametrize(("file", "origin"), [("\udc80x.py", "\\udc80x.py:1"), ("x" * 5000 + ".py", "..." + "x" * 997 + ".py:1"), ("ä.py", "ä.py:1")])
def test_the_name_of_a_file_never_makes_an_allocation_fail(file: str, origin: str, any_device: str) -> None:
    names: dict[str, tm.Buffer] = {}
    before = tm.set_origins("line")
    try:
        exec(compile(f"import tack_memory\nbuffer = tack_memory.allocate(5, {any_device!r})", file, "exec"), names)
    finally:
        tm.set_origins(before)
    assert names["buffer"].origin == origin[:-1] + "2"
    assert any(holder.origin == origin[:-1] + "2" for holder in tm.memory_report(any_device).holders)


def test_a_descriptor_that_can_only_be_set_does_not_store_a_pointer() -> None:
    class Setter:
        def __set__(self, instance: object, value: object) -> None:
            raise AssertionError("not this one")

    class Array:
        stored = Setter()
        pointer = _fast.PointerSlot("stored", lambda _, value: value)

    array = Array()
    with pytest.raises(AttributeError, match="has no memory"):
        array.pointer  # noqa: B018
    array.pointer = 5
    assert array.pointer == 5


def test_a_buffer_that_another_thread_is_freeing_is_not_touched() -> None:
    """Its index may be another buffer's by then: holds, labels and writes went to that one."""
    done = run_python("""
        import collections, sys, threading, time
        import tack_memory as tm

        SIZE = 65536
        sys.setswitchinterval(1e-6)
        tm.set_memory_budget("1 MiB", "sim:0")
        stop, slot, failures = time.monotonic() + 6, [tm.allocate(1, "sim:0")], []

        def make():
            while time.monotonic() < stop:
                slot[0] = buffer = tm.allocate(SIZE, "sim:0", zero=False)
                time.sleep(0)
                while buffer.state != "freed" and time.monotonic() < stop:
                    try:
                        buffer.free()
                    except BufferError:
                        pass

        def use(number):
            def hold(buffer):
                with buffer.hold("theirs"): pass
            actions = [lambda buffer: buffer.copy_from_host(b"\\xff" * buffer.nbytes), lambda buffer: buffer.fill(255), hold,
                       lambda buffer: buffer.export("theirs"), lambda buffer: setattr(buffer, "label", "theirs"), lambda buffer: buffer.spill()]
            while time.monotonic() < stop:
                for action in actions:
                    try:
                        action(slot[0])
                    except (ValueError, BufferError):
                        pass
                    except BaseException as error:
                        failures.append(repr(error))

        def keep(number):
            mine = bytes([number]) * SIZE
            while time.monotonic() < stop:
                buffer = tm.allocate(SIZE, "sim:0", zero=False)
                buffer.copy_from_host(mine)
                time.sleep(0)
                if buffer.copy_to_host() != mine or buffer.holds or buffer.label:
                    failures.append(("not mine", buffer.holds, buffer.label))
                try:
                    buffer.free()
                except BufferError as error:
                    failures.append(repr(error))

        threads = [threading.Thread(target=target, args=args) for target, args in
                   [(make, ()), (make, ()), (use, (0,)), (use, (1,)), (use, (2,)), (keep, (1,)), (keep, (2,)), (keep, (3,))]]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not failures, collections.Counter(map(str, failures)).most_common(5)
        print("ended")
        """)
    assert done.stdout.strip() == "ended", done.stdout + done.stderr
