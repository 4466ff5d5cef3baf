"""What exchanges may look at when they choose where a message goes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from .content import ContentError, PropertyValue, decode_properties
from .field_table import FieldTable

if TYPE_CHECKING:
    from .message import Envelope


def _never() -> float:
    return 0.0


class Routed:
    """A message on its way through exchanges: its routing keys (the first, then those of CC and BCC) and its content.

    Without an envelope there is no message yet: a route is looked up for all messages with these keys. Exchanges whose
    choice depends on the message say so (`Exchange.decides_each`) and are asked again for each.
    """

    __slots__ = ("_blob", "_envelope", "chance", "keys")

    def __init__(
        self,
        keys: tuple[str, ...],
        envelope: "Envelope | None" = None,
        blob: bytes = b"",
        chance: Callable[[], float] = _never,
    ) -> None:
        self.keys = keys
        self.chance = chance  # uniform in [0, 1)
        self._envelope = envelope
        self._blob = blob

    @property
    def headers(self) -> FieldTable:
        """Decoded anew at each call: at most one exchange in a hundred asks."""
        return self._envelope.headers(self._blob) if self._envelope is not None else {}

    @property
    def properties(self) -> dict[str, PropertyValue]:
        """All properties by name; empty when they can't be read."""
        if self._envelope is None:
            return {}
        try:
            return decode_properties(self._envelope.framing.split(self._blob)[0])
        except ContentError:
            return {}
