"""What all collective calls do: each rank tells what it called, with which arguments, and its figures or its error; all return, or all raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from .._version import __version__
from ._channel import Channel, NotAgreedError, channel_of

TIMEOUT = 20.0
"""Seconds that ranks are waited for, by default. A call ends after one and a half times that at most."""

_PROTOCOL = 1  # of the records; another number in another version of the package: ranks that cannot understand each other say so
_LONGEST = 2000  # letters of an error's text: one message holds it


class CollectiveError(RuntimeError):
    """A collective call failed; every rank that took part gets this error, with the same fields.

    On the rank that failed, `__cause__` is its own error.

    Attributes
    ----------
    call : str
        "memory_info": what this rank called.
    problems : dict of int to str
        What is the matter, by rank. Where ranks disagree, what each of them asked for.
    missing : list of int
        The ranks that did not take part in time: they ended, hang, or called something else.
    """

    __module__ = "tack_memory.mpi"  # what a traceback calls it

    def __init__(self, call: str, problems: dict[int, str], missing: list[int], text: str) -> None:
        super().__init__(text)
        self.call = call
        self.problems = problems
        self.missing = missing

    def __reduce__(self) -> tuple[type[CollectiveError], tuple[str, dict[int, str], list[int], str]]:
        return type(self), (self.call, self.problems, self.missing, str(self))


@dataclass(frozen=True)
class Agreed:
    """A call in which all ranks took part, with the same arguments and without an error."""

    call: str
    channel: Channel
    told: list[dict[str, Any]]  # by rank: what its part returned
    versions: list[str]
    seconds: float

    def confirm(self, error: Exception | None) -> None:
        """Tell all ranks whether what the call does here was done. Raises CollectiveError on all where it failed on one.

        It has a quarter of the time, since all ranks are there."""
        problem = None if error is None else _text_of(error)
        try:
            records = self.channel.exchange({"problem": problem}, self.seconds / 4, confirms=True)
        except NotAgreedError as failed:
            raise _of_missing(self.call, failed, self.seconds / 4) from error
        _raise_failures(self.call, [record["problem"] for record in records], error)

    def refuse(self, problems: dict[int, str]) -> None:
        """Raise for what all ranks find in what was told, if there is something."""
        if problems:
            raise CollectiveError(self.call, problems, [], f"{self.call}{_unchanged(self.call)}: {_by_text(problems)}")


def collective(comm: MPI.Intracomm | None, call: str, arguments: Callable[[], dict[str, Any]], part: Callable[[], dict[str, Any]], timeout: object) -> Agreed:
    """Make a collective call: `arguments` returns those that must be equal on all ranks, `part` what this rank tells. Both may raise.

    Only a wrong `comm` is an error of this rank alone: it cannot tell the others.
    """
    channel = channel_of(_checked(comm))
    record: dict[str, Any] = {"call": call, "arguments": {}, "told": {}, "problem": None, "version": __version__, "protocol": _PROTOCOL}
    error, seconds = None, TIMEOUT
    try:
        seconds = _seconds(timeout)
        record["told"] = part()
        record["arguments"] = arguments()
    except Exception as failed:
        error = failed
        record["problem"] = _text_of(failed)
    try:
        records = channel.exchange(record, seconds)
    except NotAgreedError as failed:
        raise _of_missing(call, failed, seconds) from error
    _same(call, records, lambda record: f"has protocol {record['protocol']} of tack_memory {record['version']}", "protocol", "the ranks run other versions")
    _same(call, records, lambda record: f"called {record['call']}", "call", "the ranks made different calls")
    _raise_failures(call, [record["problem"] for record in records], error)
    _same(call, records, _arguments_text, "arguments", "the ranks disagree")
    return Agreed(call, channel, [record["told"] for record in records], [record["version"] for record in records], seconds)


def break_off(comm: MPI.Intracomm | None, why: str) -> None:
    """This rank cannot make a call that the others make or will make: they get a CollectiveError at once. Not a wait, and for a rank that is ending."""
    channel_of(_checked(comm)).break_off(why)


def _checked(comm: object) -> MPI.Intracomm:
    if not MPI.Is_initialized() or MPI.Is_finalized():
        raise RuntimeError(f"MPI is {'finalized' if MPI.Is_initialized() else 'not initialized'}")
    if comm is None:
        return MPI.COMM_WORLD
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm must be a communicator of mpi4py, not {type(comm).__name__}")
    if comm == MPI.COMM_NULL:
        raise ValueError("comm is COMM_NULL: this rank is not in the communicator")
    if not isinstance(comm, MPI.Intracomm):
        raise ValueError("comm has two groups (an intercommunicator); merge them: comm.Merge()")
    return comm


def _seconds(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be above 0 seconds and finite, not {timeout!r}")
    return float(timeout)


def _text_of(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _same(call: str, records: list[dict[str, Any]], said: Callable[[dict[str, Any]], str], what: str, head: str) -> None:
    if any(record[what] != records[0][what] for record in records):
        problems = {rank: said(record) for rank, record in enumerate(records)}
        if len(set(problems.values())) > 1:
            raise CollectiveError(call, problems, [], f"{call}: {head}{_unchanged(call)}: {_by_text(problems)}")


def _arguments_text(record: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in record["arguments"].items())


def _raise_failures(call: str, told: list[str | None], own: Exception | None) -> None:
    problems = {rank: problem for rank, problem in enumerate(told) if problem is not None}
    if problems:
        raise CollectiveError(call, problems, [], f"{call}: failed{_unchanged(call)}: {_by_text(problems)}") from own


def _of_missing(call: str, failed: NotAgreedError, seconds: float) -> CollectiveError:
    problems = dict.fromkeys(failed.missing, f"did not take part in time (timeout={seconds:g}): ended, hangs, or is busy with something else")
    problems.update(failed.told)
    text = _by_text(problems)
    if not problems:  # all greeted, and then one went away before the communicator was there
        text = f"the ranks could not be connected within {seconds:g} s"
    return CollectiveError(call, problems, failed.missing, f"{call}{_unchanged(call)}: {text}")


def _unchanged(call: str) -> str:
    return "; no rank's budget was changed" if call == "set_memory_budget" else ""


def _by_text(problems: dict[int, str]) -> str:
    """ "ranks 0-2: size='80%'; rank 3: size='50%'"."""
    by_text: dict[str, list[int]] = {}
    for rank, problem in sorted(problems.items()):
        by_text.setdefault(problem, []).append(rank)
    return "; ".join(f"{ranks_text(ranks)}: {problem}" for problem, ranks in by_text.items())


def ranks_text(ranks: list[int]) -> str:
    """ "rank 3", "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"rank{'' if len(ranks) == 1 else 's'} {text}"
