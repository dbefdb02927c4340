"""record_timeline: what was resident and spilled over time, as points, a table, a picture."""

from __future__ import annotations

import csv
import gc
from pathlib import Path

import pytest
from support import KIB, MIB, filled, run_python

import tack_memory
from tack_memory import allocate, record_timeline
from tack_memory._control import call
from tack_memory._devices import resolve


def test_each_event_is_one_point(device: str) -> None:
    kept = filled(MIB, device)
    with record_timeline(device) as timeline:
        buffer = filled(2 * MIB, device)
        buffer.spill()
        buffer.restore()
        with tack_memory.memory_budget(8 * MIB, device):
            pass
        buffer.free()
    points = [(point.event, point.nbytes, point.in_use, point.spilled, point.budget) for point in timeline.points]
    assert points == [
        ("start", 0, MIB, 0, None),
        ("allocate", 2 * MIB, 3 * MIB, 0, None),
        ("spill", 2 * MIB, MIB, 2 * MIB, None),
        ("restore", 2 * MIB, 3 * MIB, 0, None),
        ("budget", 0, 3 * MIB, 0, 8 * MIB),
        ("budget", 0, 3 * MIB, 0, None),
        ("free", 2 * MIB, MIB, 0, None),
    ]
    seconds = [point.seconds for point in timeline.points]
    assert seconds == sorted(seconds) and seconds[0] == 0
    assert (timeline.device, timeline.lost) == (device, 0)
    kept.free()
    assert len(timeline.points) == 7, "it ended"


def test_it_can_be_read_while_it_records(device: str) -> None:
    with record_timeline(device) as timeline:
        assert [point.event for point in timeline.points] == ["start"]
        allocate(KIB, device).free()
        assert [point.event for point in timeline.points] == ["start", "allocate", "free"]
        assert "3 points" in repr(timeline)


def test_two_may_record_one_device(device: str) -> None:
    with record_timeline(device) as outer:
        allocate(KIB, device).free()
        with record_timeline(device) as inner:
            allocate(2 * KIB, device).free()
        allocate(3 * KIB, device).free()
    assert [point.nbytes for point in outer.points] == [0, KIB, KIB, 2 * KIB, 2 * KIB, 3 * KIB, 3 * KIB]
    assert [point.nbytes for point in inner.points] == [0, 2 * KIB, 2 * KIB]


def test_what_does_not_fit_is_counted_as_lost(device: str) -> None:
    with record_timeline(device, capacity=10) as timeline:
        for _ in range(20):
            allocate(KIB, device).free()
    assert timeline.lost == 30 and len(timeline.points) == 11
    assert "30 events lost" in repr(timeline)


def test_what_others_lost_is_not_counted(device: str) -> None:
    """The ring is shared: events from before this recording are not missing in it."""
    with record_timeline(device, capacity=10) as outer:
        for _ in range(20):
            allocate(KIB, device).free()
        with record_timeline(device) as inner:
            allocate(2 * KIB, device).free()
        assert (len(inner.points), inner.lost) == (3, 0)
        with record_timeline(device) as third:
            for _ in range(7):
                allocate(2 * KIB, device).free()
        assert (len(third.points), third.lost) == (11, 4)
    assert outer.lost == 46


def test_one_that_is_dropped_while_open_stops_recording(device: str) -> None:
    timeline = record_timeline(device)
    timeline.__enter__()
    allocate(KIB, device).free()
    assert call("EventCount", resolve(device)) == 2
    with record_timeline(device) as other:
        del timeline
        gc.collect()
        allocate(KIB, device).free()
        assert len(other.points) == 3, "the other goes on"
    allocate(KIB, device).free()
    assert call("EventCount", resolve(device)) == 0


def test_an_exception_of_the_block_is_not_replaced_by_one_of_its_end(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: tack_memory.Timeline) -> None:
        raise RuntimeError("of the device")

    with pytest.raises(KeyError) as caught, record_timeline(device):
        monkeypatch.setattr(tack_memory.Timeline, "_read", fails)
        raise KeyError("of the block")
    assert "RuntimeError: of the device" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="of the device"), record_timeline(device):
        pass
    assert call("EventCount", resolve(device)) == 0


def test_as_a_table(device: str, tmp_path: Path) -> None:
    with record_timeline(device) as timeline, tack_memory.memory_budget(MIB, device):
        allocate(KIB, device).free()
    timeline.to_csv(tmp_path / "timeline.csv")
    with open(tmp_path / "timeline.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["event"] for row in rows] == ["start", "budget", "allocate", "free", "budget"]
    assert [row["in_use"] for row in rows] == ["0", "0", "1024", "0", "0"] and [row["budget"] for row in rows] == ["", "1048576", "1048576", "1048576", ""]


def test_a_number_is_no_file_to_write_to(tmp_path: Path) -> None:
    with record_timeline("sim:0") as timeline:
        pass
    with open(tmp_path / "other", "w+b") as file:
        with pytest.raises(TypeError, match="the name of a file .*, not int"):
            timeline.to_csv(file.fileno())  # type: ignore[arg-type]
        file.write(b"still open")
    assert (tmp_path / "other").read_bytes() == b"still open"


def test_without_points_no_file_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "earlier").write_text("kept")
    with pytest.raises(RuntimeError, match="not entered"):
        record_timeline("sim:0").to_csv(tmp_path / "earlier")
    assert (tmp_path / "earlier").read_text() == "kept"


def test_as_a_picture(device: str, tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib, as in the extras demo and bench; the checkout's own environment has it")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with record_timeline(device) as timeline, tack_memory.memory_budget(2 * MIB, device):
        buffers = [allocate(MIB, device) for _ in range(3)]
        del buffers
    axes = timeline.plot()
    assert axes.get_ylabel() == "MiB" and [text.get_text() for text in axes.get_legend().get_texts()] == ["resident", "spilled", "budget"]
    axes.figure.savefig(tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").stat().st_size > 0
    other = pyplot.figure().subplots()
    assert timeline.plot(other) is other
    pyplot.close("all")


def test_matplotlib_is_imported_by_plot_only() -> None:
    done = run_python(
        """
        import sys, tack_memory as tm
        with tm.record_timeline("sim:0") as timeline:
            tm.allocate(1, "sim:0")
        timeline.to_csv("/dev/null")
        print(sorted({"numpy", "matplotlib"} & set(sys.modules)))
        """
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_without_matplotlib_plot_says_what_it_needs() -> None:
    done = run_python(
        """
        import sys, tack_memory as tm
        sys.modules["matplotlib"] = None
        with tm.record_timeline("sim:0") as timeline:
            pass
        try:
            timeline.plot()
        except ModuleNotFoundError as error:
            print(error)
        """
    )
    assert done.stdout == "Timeline.plot draws with matplotlib, which is not installed: pip install matplotlib\n", done.stderr


def test_wrong_use_is_an_error(device: str) -> None:
    timeline = record_timeline(device)
    with pytest.raises(RuntimeError, match="not entered"):
        timeline.points  # noqa: B018
    with pytest.raises(RuntimeError, match="not recording"):
        timeline.__exit__(None, None, None)
    with timeline, pytest.raises(RuntimeError, match="entered already"):
        timeline.__enter__()
    with pytest.raises(RuntimeError, match="not recording"):
        timeline.__exit__(None, None, None)
    assert "not entered" in repr(record_timeline(device))


def test_an_exception_ends_the_recording(device: str) -> None:
    with pytest.raises(KeyError), record_timeline(device) as timeline:
        allocate(KIB, device).free()
        raise KeyError
    assert [point.event for point in timeline.points] == ["start", "allocate", "free"]
