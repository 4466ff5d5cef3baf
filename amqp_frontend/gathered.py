"""Output with large parts, as the kernel takes it by `sendmsg`: they are not joined, and what is left is not copied.

Small parts are joined, because each entry of a vector costs about what copying some KiB costs.
Source: sendmsg(2), "msg_iov"; benchmarks/README.md, "Large bodies".
"""

import os
from collections.abc import Sequence
from typing import Protocol

#: Octets that are sent as they are.
Octets = bytes | bytearray | memoryview

#: Parts with less are joined with their neighbours, up to `JOINED_MAX` octets.
PART_MIN = 8 * 1024
JOINED_MAX = 128 * 1024
#: Output whose parts have so many octets on average is worth a vector.
AVERAGE_MIN = 8 * 1024
#: Entries of a vector that the kernel takes in one call.
ENTRIES_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if "SC_IOV_MAX" in getattr(os, "sysconf_names", {}) else 16


class Vectored(Protocol):
    """What is needed of a non-blocking socket."""

    def sendmsg(self, buffers: Sequence[Octets], /) -> int:
        """Raises: BlockingIOError, OSError."""


class Gathered:
    """Parts on their way to a socket; what was sent is freed at once. `sent`: octets that were."""

    __slots__ = ("_entries", "sent")

    def __init__(self, parts: Sequence[Octets]) -> None:
        self._entries = joined(parts)
        self.sent = 0
        self._entries.reverse()  # the next one is last: taking it away costs nothing

    def send(self, sock: Vectored) -> bool:
        """Send what the kernel takes. Returns: whether that was all. Raises: BlockingIOError: nothing. OSError."""
        entries = self._entries
        while entries:
            sent = sock.sendmsg(entries[: -ENTRIES_MAX - 1 : -1])
            self.sent += sent
            while entries and sent >= len(entries[-1]):
                sent -= len(entries.pop())
            if sent:
                entries[-1] = memoryview(entries[-1])[sent:]
                return False
        return True


def joined(parts: Sequence[Octets]) -> list[Octets]:
    """The same octets, with small parts joined."""
    found: list[Octets] = []
    small: list[Octets] = []
    octets = 0
    for part in parts:
        size = len(part)
        if size < PART_MIN:
            if octets + size > JOINED_MAX:
                found.append(b"".join(small))
                small.clear()
                octets = 0
            small.append(part)
            octets += size
            continue
        if small:
            found.append(b"".join(small))
            small.clear()
            octets = 0
        found.append(part)
    if small:
        found.append(b"".join(small))
    return found
