"""How the ranks of a communicator talk with a time limit: each tells all others a record, and they agree whether all were heard.

MPI's own collective calls wait for ever for a rank that is gone or does something else. So the records go as messages between each two ranks, over a private
duplicate of the communicator (no receive of the program's can take them), and are waited for by polling, with sleeps in between: ranks that outnumber the
cores must not keep each other from running.

An exchange has two rounds. In the first each rank sends its record. In the second it sends its verdict: which ranks it did not hear. It succeeds where all
verdicts say none, so that a rank which came just in time for some and too late for others makes it fail on all. Exchanges are numbered; messages of
those that are over are dropped, and a rank that came too late finds the verdicts of the others and fails in the same exchange as they did. No number of
rounds would be enough for a rank that dies or stands still in the middle of the last one: it may have told some, and not others.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

_RECORD, _VERDICT = 1, 2  # tags on the private communicator
_FIRST_SLEEP, _LONGEST_SLEEP = 20e-6, 2e-3
_SHORT = 1.0
"""Seconds for ranks that were missing the last time and were not heard since: who calls again after an error does not wait for a dead rank again."""


class NotAgreedError(Exception):
    """An exchange failed; the same on all ranks that are there."""

    def __init__(self, missing: list[int], told: dict[int, str]) -> None:
        super().__init__()
        self.missing = missing
        self.told = told  # why a rank broke the exchange off


class Channel:
    """The private communicator of one communicator, and what came over it. One exchange at a time."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._lock = threading.Lock()
        self._calls = 0  # collective calls so far; each has the numbers of two exchanges, so that a rank which fails in the first stays in step
        self._number = 0  # of the exchange that runs, or ran last
        self._records: defaultdict[int, dict[int, Any]] = defaultdict(dict)  # exchange -> rank -> what it told
        self._verdicts: defaultdict[int, dict[int, Any]] = defaultdict(dict)
        self._sending: list[tuple[MPI.Request, bytes]] = []  # MPI has the address of the bytes
        self._silent: set[int] = set()  # ranks that were missing in the last exchange, and were not heard since
        self._one_by_one = False  # an error about one rank hides the messages of all others where they are asked for together
        # Duplicating tells nobody who is missing, so the ranks greet each other before. Each greeting has a place of its own in `_greetings`: those that
        # came can be seen there although the call as a whole never ends.
        self._greetings = bytearray(self.size)
        greeting = bytes([1]) * self.size
        each = [1] * self.size, list(range(self.size))
        greet = comm.Ialltoallv([greeting, each, MPI.BYTE], [self._greetings, each, MPI.BYTE])
        self._comm, duplicate = comm.Idup()
        self._connecting = [greet, duplicate]
        self._greeting = greeting  # alive as long as MPI may read it

    def exchange(self, record: dict[str, Any], seconds: float, *, confirms: bool = False) -> list[dict[str, Any]]:
        """Tell all ranks a record, and return all ranks' records, by rank. Raises NotAgreedError on every rank after about `seconds`, if one is missing.

        `confirms`: it is the second exchange of the same call."""
        start = time.monotonic()
        if not self._lock.acquire(timeout=seconds):
            raise RuntimeError("another thread of this process is in a collective call of tack_memory.mpi on this communicator")
        try:
            number = self._number + 1 if confirms else self._next_call()
            self._number = number
            try:
                return self._exchange(number, record, start, seconds)
            except NotAgreedError:
                raise
            except BaseException as error:  # Ctrl-C, mostly: the others need not wait
                if not self._connecting:
                    self._send(_VERDICT, number, {"missing": [], "told": f"broke off: {type(error).__name__}"})
                raise
            finally:
                for old in [old for old in {*self._records, *self._verdicts} if old <= number]:  # of exchanges that were over, too
                    self._records.pop(old, None)
                    self._verdicts.pop(old, None)
        finally:
            self._lock.release()

    def break_off(self, why: str) -> None:
        """Make the exchange that the others come to fail on all of them at once, without waiting for any. Nothing, where the ranks are not connected yet."""
        with self._lock:
            number = self._number = self._next_call()
            start = time.monotonic()
            if self._wait(self._connected, lambda: time.monotonic() - start >= _SHORT):
                self._send(_VERDICT, number, {"missing": [], "told": why})

    def close(self) -> None:
        """The communicator is being freed, by all ranks."""
        if not self._connecting and self._comm != MPI.COMM_NULL:
            self._comm.Free()

    def _exchange(self, number: int, record: dict[str, Any], start: float, seconds: float) -> list[dict[str, Any]]:
        def time_is_up() -> bool:
            waited = time.monotonic() - start
            return waited >= seconds or (waited >= _SHORT and bool(self._silent) and self._unheard(number) <= self._silent)

        if not self._wait(self._connected, time_is_up):
            missing = self._unheard(number)
            self._silent = missing
            raise NotAgreedError(sorted(missing), {})
        self._send(_RECORD, number, record)
        records, verdicts = self._records[number], self._verdicts[number]
        records[self.rank] = record
        self._wait(lambda: len(records) == self.size or self._failed(number), time_is_up)

        # Where others have given up already, their verdict is this rank's, too: it may just not have heard yet whom they heard.
        missing = self._missing(number) if self._failed(number) else self._unheard(number)
        verdict = {"missing": sorted(missing), "told": None}
        self._send(_VERDICT, number, verdict)
        verdicts[self.rank] = verdict
        # Whoever was heard waits as this rank does, and answers at once.
        until = time.monotonic() + grace(seconds)
        self._wait(lambda: self._complete(number), lambda: time.monotonic() >= until)
        if not self._failed(number):
            missing = {rank for rank in range(self.size) if rank not in verdicts}
        missing |= self._missing(number)
        told = {rank: verdict["told"] for rank, verdict in sorted(verdicts.items()) if verdict["told"]}
        if missing or told:
            self._silent = missing - {self.rank} - set(records)
            raise NotAgreedError(sorted(missing), told)
        self._silent = set()
        return [records[rank] for rank in range(self.size)]

    def _complete(self, number: int) -> bool:
        """All verdicts came that will come; or a rank broke the exchange off, which is enough to know."""
        verdicts, missing = self._verdicts[number], self._missing(number)
        return any(verdict["told"] for verdict in verdicts.values()) or all(rank in verdicts or rank in missing for rank in range(self.size))

    def _next_call(self) -> int:
        self._calls += 1
        return 2 * self._calls

    def _unheard(self, number: int) -> set[int]:
        if self._connecting:
            return {rank for rank in range(self.size) if not self._greetings[rank] and rank != self.rank}
        return {rank for rank in range(self.size) if rank not in self._records[number] and rank != self.rank}

    def _missing(self, number: int) -> set[int]:
        return {rank for verdict in self._verdicts[number].values() for rank in verdict["missing"]}

    def _failed(self, number: int) -> bool:
        return any(verdict["missing"] or verdict["told"] for verdict in self._verdicts[number].values())

    def _wait(self, done: Callable[[], bool], time_is_up: Callable[[], bool]) -> bool:
        sleep = _FIRST_SLEEP
        while True:
            if not self._connecting:
                self._receive()
            if done():
                return True
            if time_is_up():
                return False
            time.sleep(sleep)
            sleep = min(1.5 * sleep, _LONGEST_SLEEP)

    def _connected(self) -> bool:
        if self._connecting:
            self._connecting = [request for request in self._connecting if not request.Test()]
            if not self._connecting:
                self._comm.Set_errhandler(MPI.ERRORS_RETURN)  # a rank that died is an error here, not the end of all
        return not self._connecting

    def _send(self, tag: int, number: int, content: dict[str, Any]) -> None:
        message = json.dumps([number, content]).encode()
        self._sending = [(request, kept) for request, kept in self._sending if not _is_over(request)]
        for rank in range(self.size):
            if rank != self.rank:
                try:
                    self._sending.append((self._comm.Isend([message, MPI.BYTE], rank, tag), message))
                except MPI.Exception:  # it is gone, and will be missing
                    pass

    def _receive(self) -> None:
        """Take all messages that came."""
        if not self._one_by_one:
            try:
                while self._take(MPI.ANY_SOURCE):
                    pass
            except MPI.Exception:
                self._one_by_one = True
        if self._one_by_one:
            for rank in range(self.size):
                try:
                    while rank != self.rank and self._take(rank):
                        pass
                except MPI.Exception:  # it is gone, and will be missing
                    continue

    def _take(self, source: int) -> bool:
        status = MPI.Status()
        message = self._comm.Improbe(source, MPI.ANY_TAG, status)
        if message is None:
            return False
        content = bytearray(status.Get_count(MPI.BYTE))
        message.Recv([content, MPI.BYTE])
        number, told = json.loads(content)
        rank = status.Get_source()
        self._silent.discard(rank)
        (self._records if status.Get_tag() == _RECORD else self._verdicts)[number][rank] = told
        return True


def grace(seconds: float) -> float:
    """How long the second round may last."""
    return 1 + seconds / 20


def _is_over(request: MPI.Request) -> bool:
    try:
        return bool(request.Test())
    except MPI.Exception:
        return True


def _close(comm: MPI.Comm, keyval: int, channel: Channel) -> None:
    channel.close()


_keyval = MPI.KEYVAL_INVALID
_making = threading.Lock()


def channel_of(comm: MPI.Intracomm) -> Channel:
    """The channel of a communicator, which has it as an attribute and frees it when it is freed itself. Making it starts no wait."""
    global _keyval
    with _making:
        if _keyval == MPI.KEYVAL_INVALID:
            _keyval = MPI.Comm.Create_keyval(delete_fn=_close)
        channel = comm.Get_attr(_keyval)
        if not isinstance(channel, Channel):
            channel = Channel(comm)
            comm.Set_attr(_keyval, channel)
    return channel
