"""A message as exchanges see it, to choose its destinations."""

from collections.abc import Callable, Mapping

from ..messages.content import ContentError, PropertyValue, decode_properties
from ..messages.field_table import Field
from ..messages.message import Envelope, Message
from .headers import Comparables


def _never() -> float:
    return 0.0


class Routed:
    """A message that exchanges route. `keys`: its routing key, then those of CC and BCC.

    Without an envelope it stands for all messages with these keys. `cost`: effort of the look-ups so far, in units of
    about 1.2 us.
    """

    __slots__ = ("_comparables", "_content", "_envelope", "_headers", "chance", "cost", "keys")

    def __init__(
        self,
        keys: tuple[str, ...],
        envelope: "Envelope | None" = None,
        content: bytes = b"",
        chance: Callable[[], float] = _never,
    ) -> None:
        self.keys = keys
        self.chance = chance  # uniform in [0, 1)
        self.cost = 0
        self._headers: Mapping[str, Field] | None = None
        self._comparables: Comparables | None = None
        self._envelope = envelope
        self._content = content

    @property
    def headers(self) -> Mapping[str, Field]:
        """The headers, parsed once for all exchanges. Each entry is decoded on access."""
        if self._headers is None:
            self._headers = self._envelope.opened_headers(self._content) if self._envelope is not None else {}
            self.cost += len(self._headers)
        return self._headers

    @property
    def comparables(self) -> Comparables:
        """The headers, to be compared with those of bindings."""
        if self._comparables is None:
            self._comparables = Comparables(self.headers)
        return self._comparables

    def as_message(self) -> "Message | None":
        """The message, for filters; None: only its keys are known."""
        return None if self._envelope is None else Message(0, self._content, self._envelope)

    @property
    def properties(self) -> dict[str, PropertyValue]:
        """All properties by name; empty if they are invalid, or only the keys are known."""
        if self._envelope is None:
            return {}
        try:
            return decode_properties(self._envelope.framing.split(self._content)[0])
        except ContentError:
            return {}
