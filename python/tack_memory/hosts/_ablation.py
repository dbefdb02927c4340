"""Which kinds of holds are left out, so that tests can show that each of them is needed.

A test that leaves one out sees another test fail: with a crash or wrong numbers where the work runs on memory that has moved. Read when a host is
plugged in, and not later: holding costs nothing more for it.
"""

from __future__ import annotations

KINDS = {
    "launch": "the arrays of a launch, from before the host reads an address until the launch is through",
    "dispatch": "the same where a program calls the host's dispatch below a launch by itself",
    "template": "the arrays that an object brings into a launch as its attributes",
    "texture": "the array behind a texture that is an argument of a launch",
    "image": "an array whose texture image the host keeps under the array's address",
    "reduce": "input and output of a native reduction",
    "copy": "both ends of a copy on the device",
    "upload": "an array that is copied into a texture image",
    "dlpack": "an array whose memory another library has",
    "wrap": "the owner of memory that an array was made over from its address",
    "pack": "a buffer in which the host packs the scalars of a launch, and which no argument names",
    "share": "an array whose memory the host has handed out by its own means",
    "mpi": "memory that MPI libraries use by its address",
    "export": "an array that the host copies into memory which it can share",
    "building": "memory that the host still clears by its own pointer",
}
"""Each kind and what it holds."""

_left_out: set[str] = set()


def wanted(kind: str) -> bool:
    """Whether holds of this kind are taken: always, but in a test that leaves them out."""
    if kind not in KINDS:
        raise ValueError(f"there is no hold of kind {kind!r}; there are {', '.join(KINDS)}")
    return kind not in _left_out


def leave_out(kind: str) -> None:
    """For tests, before a host is plugged in: take no holds of this kind."""
    wanted(kind)
    _left_out.add(kind)
