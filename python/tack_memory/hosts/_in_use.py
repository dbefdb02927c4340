"""What is said where an array's memory cannot become the host's again, since somebody uses it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._native._fast import Buffer, BufferView

UNINSTALL = "uninstall"
NEW_CONTEXT = "give the arrays of the earlier context back to the host, which has made a new one"
"""What was to be done, in the words after "cannot"."""


def in_use(wanted: str, mine: Buffer | BufferView) -> BufferError | None:
    """The error for memory that is used; None: nobody does, or nobody does any more. What only keeps it in its place does not count."""
    holds = [hold for hold in mine.holds if hold.partition(":")[0] != "unmovable"]
    if not holds:
        return None
    return BufferError(
        f"cannot {wanted}: an array of {mine.nbytes} bytes on {mine.device} is in use ({', '.join(holds)}); drop what other libraries or code have of it "
        "(arrays made of it by DLPack, views, memoryviews), leave the blocks that hold it, and try again"
    )
