"""The peaks of all ranks' devices during a block of code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mpi4py import MPI

from .._accounting import MemoryPeak
from . import _figure
from ._collective import TIMEOUT, CollectiveError, break_off, collective
from ._figure import Figure
from ._table import problems_of

if TYPE_CHECKING:
    from .._devices import Device

FIGURES = ("bytes", "start", "end", "delta", "own", "own_end", "footprint", "spilled_bytes", "restored_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPeak:
    """What one rank's device held during the block. Sizes are bytes, and mean what they mean in a MemoryPeak; None where the rank has no figures.

    Attributes
    ----------
    rank : int
        The rank in the communicator.
    host : str
        The name of the machine, as MPI tells it.
    device : str or None
        "cuda:0", as the rank calls it.
    bytes, start, end, delta, own, own_end, footprint, spilled_bytes, restored_bytes : int or None
        As in MemoryPeak.
    seconds : float or None
        How long the block ran on this rank.
    problem : str or None
        How the block failed on this rank.
    """

    rank: int
    host: str
    device: str | None
    bytes: int | None
    start: int | None
    end: int | None
    delta: int | None
    own: int | None
    own_end: int | None
    footprint: int | None
    spilled_bytes: int | None
    restored_bytes: int | None
    seconds: float | None
    problem: str | None


class RanksPeak:
    """The most device memory that each rank held while a block ran: what `memory_peak(comm)` makes. The figures are there when the block has ended.

    Attributes
    ----------
    rows : list of RankPeak
        One a rank.
    bytes, start, end, delta, own, own_end, footprint, spilled_bytes, restored_bytes : Figure
        Bytes: minimum, maximum and sum over the ranks, and which ranks have them; each figure means what it means in a MemoryPeak. The sum of peaks is an
        upper bound of what the ranks had at one moment: their peaks need not be at the same time.
    seconds : Figure
        How long the block ran.
    problems : list of str
        What is not as it should be: ranks with other versions of the package, or with devices of different kinds.
    local : MemoryPeak or None
        This rank's own, which can be read while the block runs; None before, and where it has none.
    label : str or None
        The block's name.
    """

    rows: list[RankPeak]
    bytes: Figure[int]
    start: Figure[int]
    end: Figure[int]
    delta: Figure[int]
    own: Figure[int]
    own_end: Figure[int]
    footprint: Figure[int]
    spilled_bytes: Figure[int]
    restored_bytes: Figure[int]
    seconds: Figure[float]
    problems: list[str]

    def __init__(self, comm: MPI.Intracomm | None, device: Device, label: str | None, timeout: float) -> None:
        self._comm, self._device, self._timeout = comm, device, timeout
        self._state = "new"
        self._failed: Exception | None = None  # on entry: told at the end, when the other ranks are there
        self.label = label
        self.local: MemoryPeak | None = None

    def __enter__(self) -> Self:
        if self._state != "new":
            raise RuntimeError("this memory_peak was entered already; make another one")
        self._state = "open"
        try:
            scope = MemoryPeak(self._device, self.label)
            scope.__enter__()
            self.local = scope
        except Exception as error:
            self._failed = error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        if self._state != "open":
            raise RuntimeError("this memory_peak is not open")
        self._state = "left"
        if self.local is not None:
            self.local.__exit__(kind, error, traceback)
        try:
            if error is not None and not isinstance(error, Exception):  # Ctrl-C, an exit: the program is ending and waits for nobody
                break_off(self._comm, f"the block ended with {type(error).__name__}")
            else:
                self._take_part(self._failed if error is None else error)
        except CollectiveError as failed:
            if error is None:
                raise
            error.add_note(f"memory_peak over all ranks: {failed}")
        except Exception as failed:  # the communicator is no use, MPI is finalized
            if error is None:
                raise
            error.add_note(f"memory_peak over all ranks: {type(failed).__name__}: {failed}")

    def _take_part(self, error: BaseException | None) -> None:
        def part() -> dict[str, Any]:
            told: dict[str, Any] = {"host": MPI.Get_processor_name(), "device": None, "problem": None}
            if self.local is not None:
                told.update({name: getattr(self.local, name) for name in (*FIGURES, "seconds")}, device=self.local.device)
            if error is not None:
                told["problem"] = f"{type(error).__name__}: {error}"[:2000]
            return told

        agreed = collective(self._comm, "memory_peak", lambda: {"label": self.label}, part, self._timeout)
        self._take(agreed.told, agreed.versions)
        failed = {row.rank: row.problem for row in self.rows if row.problem is not None}
        try:
            agreed.refuse({rank: f"the block ended with {problem}" for rank, problem in failed.items()})
        except CollectiveError as refused:
            raise refused from error

    def _take(self, told: Sequence[dict[str, Any]], versions: Sequence[str]) -> None:
        names = ("host", "device", *FIGURES, "seconds", "problem")
        self.rows = [RankPeak(rank=rank, **{name: one.get(name) for name in names}) for rank, one in enumerate(told)]  # type: ignore[arg-type]
        for name in (*FIGURES, "seconds"):
            setattr(self, name, Figure.of([getattr(row, name) for row in self.rows]))
        self.problems = problems_of(versions, [row.device for row in self.rows if row.device is not None])
        self._state = "done"

    def __getattr__(self, name: str) -> Any:
        """Figures that are not there (yet)."""
        if name in (*FIGURES, "seconds", "rows", "problems"):
            states = {"new": "was not entered", "open": "has its figures when the block has ended; `local` has this rank's own now"}
            raise RuntimeError(f"this memory_peak {states.get(self._state, 'has no figures: not all ranks took part')}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values, for JSON. Sizes are bytes."""
        figures = {name: getattr(self, name).to_dict() for name in (*FIGURES, "seconds")}
        return {"label": self.label, "rows": [asdict(row) for row in self.rows], **figures, "problems": list(self.problems)}

    def __str__(self) -> str:
        if self._state != "done":
            return f"<RanksPeak: {'not entered' if self._state == 'new' else 'open' if self._state == 'open' else 'without figures'}>"
        return "\n".join([_figure.text_table(*self._cells(), left=3), *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _figure.html_table(*self._cells(), left=3, notes=self._notes()) if self._state == "done" else _escaped(str(self))

    def _notes(self) -> list[str]:
        return [*self.problems, *(f"rank {row.rank}: the block ended with {row.problem}" for row in self.rows if row.problem is not None)]

    def _cells(self) -> tuple[list[str], list[list[str]], list[list[str]]]:
        heads = ["rank", "host", "device", "peak", "start", "own", "footprint", "spilled", "restored"]
        shown = ("bytes", "start", "own", "footprint", "spilled_bytes", "restored_bytes")
        lines = [[str(row.rank), row.host, row.device or "-", *(_figure.size(getattr(row, name)) for name in shown)] for row in self.rows]
        figures: list[Figure[int] | None] = [None, None, *(getattr(self, name) for name in shown)]
        return heads, lines, _figure.summary(figures, len(self.rows), [False] * len(figures))


def memory_peak(comm: MPI.Intracomm | None = None, device: Device = None, label: str | None = None, *, timeout: float = TIMEOUT) -> RanksPeak:
    """The most device memory that each rank holds during a block: `with memory_peak(comm) as peak: ...`, then `print(peak)`.

    Leaving the block is collective: all ranks of the communicator must do it. Entering is not, and waits for nobody.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The ranks; by default MPI.COMM_WORLD.
    device : device, optional
        Which device of this rank; by default its current one. It is looked up on entry; where there is none, the end of the block tells it to all ranks.
    label : str, optional
        A name for reports, the same on all ranks.
    timeout : float
        Seconds in which the other ranks must leave their blocks after this rank has left its own.

    Returns
    -------
    RanksPeak
        Sizes are in bytes.

    Raises
    ------
    CollectiveError
        When the block ends, on every rank that took part: a rank's block ended with an exception (the figures are there all the same); a rank has no such
        device, was not there in time, or called something else. On a rank whose own block raised, its exception goes on, with a note.
    RuntimeError
        On entering twice, leaving without having entered, and reading the figures before the block has ended.

    Notes
    -----
    May be used from any thread where MPI was initialized with MPI_THREAD_MULTIPLE, as mpi4py does; any number of blocks may be open, and all ranks must leave
    them in the same order. The end of a block takes `1.1 * timeout + 1` seconds at most.
    """
    return RanksPeak(comm, device, label, timeout)


def _escaped(text: str) -> str:
    from .._page import escaped

    return escaped(text)
