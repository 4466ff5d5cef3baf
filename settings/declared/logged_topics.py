"""Topics whose messages are logged, as a configuration declares them. Frozen. Source: queues page A.2, C.1, H.1."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..faults import Origin
from ..lifetime import LIVE, Lifetime

#: When a change takes effect.
ACTS: Lifetime = LIVE
#: How long messages are kept for replay where a topic that is listed says nothing else.
RETAIN_MS_DEFAULT = 86_400_000


@dataclass(slots=True, frozen=True)
class LoggedTopic:
    """`[[logged-topic]]`, or a `Topic` of a TransactionLog: one topic by its name, or all that a pattern is found in.

    `message_type`: of all its messages; None: of any. `retain_ms`: how long messages are kept for replay at
    least; None: `RETAIN_MS_DEFAULT`.
    """

    name: str
    is_pattern: bool = False
    vhost: str = "/"
    message_type: str | None = None
    retain_ms: int | None = None
    origin: Origin = field(default=Origin("", 0), compare=False)

    @property
    def kept_ms(self) -> int:
        """How long its messages are kept for replay at least."""
        return RETAIN_MS_DEFAULT if self.retain_ms is None else self.retain_ms

    def records(self) -> Callable[[str], bool]:
        """Whether messages of the topic of that name are logged; a pattern is searched. Raises: PatternFault."""
        if not self.is_pattern:
            return self.name.__eq__
        from ...expressions.patterns.patterns import Pattern  # 5 ms that others need not wait

        return Pattern(self.name).search

    @property
    def title(self) -> str:
        """As reports name it."""
        return f"logged topic {self.name!r}" + (" (pattern)" if self.is_pattern else "")
