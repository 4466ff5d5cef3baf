"""What all clients together know: which messages they have published, and what they may expect of each."""

from __future__ import annotations

from collections import Counter
from struct import Struct

from ..ledger import KEY_SIZE, Broken, Ledger

_KEY = Struct(">IQ")
assert _KEY.size == KEY_SIZE


def publisher_of(client: int, channel: int, life: int) -> int:
    """A number for all that one channel of one connection publishes: it comes in order."""
    return client << 16 | channel << 12 | life & 0xFFF


def key_of(publisher: int, number: int) -> bytes:
    """Of the message that a publisher sent as its number so-and-so."""
    return _KEY.pack(publisher, number)


def body_of(key: bytes, size: int) -> bytes:
    """A body that says which message it is, and shows if an octet of it is wrong."""
    return (key * (size // KEY_SIZE + 1))[:size] + key


class Knowledge:
    """Shared by the clients of a world. `operations`: methods that clients sent; `deliveries`: what came of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.operations = 0
        self.deliveries = 0
        self.happened: Counter[str] = Counter()
        self.unsafe_ns = 0  # when something was last on its way to the disk
        self.published: dict[bytes, int] = {}  # key -> size of the body without it

    def publish(self, key: bytes, size: int) -> None:
        """A message is on its way."""
        self.published[key] = size

    def confirm(self, key: bytes) -> None:
        """The broker has taken responsibility for a persistent message. Raises: Broken."""
        if not self.ledger.is_safe(key):
            raise Broken(f"message {_KEY.unpack(key)} was confirmed before it was durable")

    def check(self, body: bytes) -> tuple[int, int]:
        """A message that came: publisher, and its number there. Raises: Broken."""
        key = body[-KEY_SIZE:]
        size = self.published.get(key)
        if size is None:
            raise Broken(f"a message that nobody published: {body[-40:]!r}")
        if body != body_of(key, size):
            raise Broken(f"message {_KEY.unpack(key)} has other octets than it was published with")
        client, number = _KEY.unpack(key)
        return client, number
