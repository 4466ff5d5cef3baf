"""A hash of all that can be seen of a world: octets that clients got, events, faults, and when each of them was."""

from __future__ import annotations

import hashlib
from array import array
from zlib import crc32

from leveret.engine import Event


class Fingerprint:
    """Octets and events are many: a checksum of them goes into the hash with the next note. A listener of brokers."""

    takes_mixed = True

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._octets = 0
        self._events = 0
        self._names: dict[tuple[str, str, str], bytes] = {}

    def received(self, data: bytes, now_ns: int) -> None:
        """A client got octets."""
        self._octets = crc32(data, self._octets ^ (now_ns & 0xFFFFFFFF))

    def __call__(self, event: Event) -> None:
        key = event.kind._name_, event.vhost, event.subject
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{event.kind.value} {event.vhost} {event.subject}".encode()
        self._events = crc32(array("Q", event.messages), crc32(name, self._events))

    def note(self, text: str, now_ns: int) -> None:
        """Something else that two runs of one seed have in common."""
        self._hash.update(f"{now_ns} {self._octets} {self._events} {text}\n".encode())

    def hexdigest(self) -> str:
        """Of all so far."""
        return self._hash.hexdigest()
