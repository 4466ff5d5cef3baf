"""A channel of a logged-in client: its session in the engine, and its state between methods."""

import sys
from typing import ClassVar

from ...engine import BulkDelete, Commit, Envelope, Queue, Route, ServiceExchange, Session, part_of
from ...settings.slotted import slotted
from ..wire.channel_reader import ChannelReader
from ..wire.publish_cache import PublishCache

#: Effort of a turn (about 5 ms); the next turns do the rest.
EFFORT_MAX = 4_000
#: Queues above which runs are published in parts: with fewer, even a whole read of messages takes no long turn.
FEW_QUEUES = 4


class KnownRoute:
    """The cached route and envelope of a kind of message (`PublishKind.known_route`).

    `run_max`: see `run_max_of`; longer runs are published in parts. `queue`: the messages' only queue, if they can be
    published together with messages of other kinds; else None.
    """

    __slots__ = ("_is_stored", "envelope", "mandatory", "queue", "route", "run_max")

    def __init__(self, route: Route, envelope: Envelope, mandatory: bool) -> None:
        self.route = route
        self.envelope = envelope
        self.mandatory = mandatory
        self.run_max = run_max_of(route)
        self.queue: Queue | None = route.only_queue if envelope.is_plain and self.run_max else None
        self._is_stored: bool | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the journal stores such messages. O(queues) the first time."""
        found = self._is_stored
        if found is None:
            envelope, queues = self.envelope, self.route.queues
            if queues is None:
                found = envelope.summary.persistent
            else:
                found = any(queue.stores(envelope) for queue in queues)
            self._is_stored = found
        return found

    @property
    def may_be_stored(self) -> bool:
        """`is_stored`, but True for a route whose queues are known only at publishing."""
        return self.route.queues is None or self.is_stored


def run_max_of(route: Route) -> int:
    """The longest run that one call publishes by a route; 0: limits may apply, or the messages are requests."""
    return 0 if route.is_metered or type(route.exchange) is ServiceExchange else part_max_of(route)


def part_max_of(route: Route) -> int:
    """Messages to publish by a route at once, by their cost; 1 if the queues are known only at publishing."""
    if route.queues is None:
        return 1
    return part_of(EFFORT_MAX, len(route.queues)) if len(route.queues) > FEW_QUEUES else sys.maxsize


class Channel(ChannelReader):
    """One open (or closing) channel of a connection that is logged in.

    `bulk_delete`: its purge or delete under way; None: none. `last_queue`: the last one declared; empty: none.
    """

    __slots__ = ("bulk_delete", "last_queue", "session")

    def __init__(
        self, number: int, session: Session, cache: PublishCache, *, frame_max: int, message_size_max: int
    ) -> None:
        super().__init__(number, cache, frame_max=frame_max, message_size_max=message_size_max)
        self.session = session
        self.last_queue = ""
        self.bulk_delete: BulkDelete | None = None


@slotted
class CommitUnderWay:
    """A tx.commit, which may take several turns. It is answered when the commit is done."""

    channel: Channel
    commit: Commit
    ids: ClassVar[tuple[int, int]] = (90, 20)  # class and method of tx.commit
