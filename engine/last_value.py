"""Last-value queues: of the ready messages with the same key only the newest stays, at the place of the first.

A key that changes often is delivered as soon as one that doesn't: the place in the queue is kept, as Artemis does.
Source: address-settings page 3.4, 5.8.
"""

from collections.abc import Callable

from .field_table import Field
from .message import Message
from .ready import LeveledReady

Key = object


def header_value(name: str) -> Callable[[Message], Key | None]:
    """What gives a message's key: the value of the header `name`; None for messages without it."""

    def value(message: Message) -> Key | None:
        field: Field | None = message.envelope.headers(message.blob).get(name)
        return None if field is None else repr(field.comparable())

    return value


class LastValueReady(LeveledReady):
    """The ready list of a last-value queue."""

    __slots__ = ("_by_key", "_key_of")

    def __init__(
        self, level_max: int, size_of: Callable[[Message], int], key_of: Callable[[Message], Key | None]
    ) -> None:
        super().__init__(level_max, size_of)
        self._key_of = key_of
        self._by_key: dict[Key, Message] = {}

    def supersede(self, message: Message) -> Message | None:
        """Let a message of a key that is here already, whichever is newer, be the only one. None: there is none.

        Returns: the older of the two, which is not in the list (any more).
        """
        key = self._key_of(message)
        here = None if key is None else self._by_key.get(key)
        if here is None:
            return None
        if here.id > message.id:
            return message
        older = Message(here.id, here.blob, here.envelope)
        self.octets += self._size_of(message) - self._size_of(here)
        here.id, here.blob, here.envelope = message.id, message.blob, message.envelope
        here.expires_ns, here.deliveries, here.uncounted = message.expires_ns, message.deliveries, message.uncounted
        return older

    def _added(self, message: Message) -> None:
        super()._added(message)
        key = self._key_of(message)
        if key is not None:
            self._by_key[key] = message

    def _removed(self, message: Message) -> None:
        super()._removed(message)
        key = self._key_of(message)
        if key is not None and self._by_key.get(key) is message:
            del self._by_key[key]
