"""Leases, as a test sees them: who holds which message of a leased queue, until when; and how leases ended.

Source: queues page A.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine import Queue, holder_of, leases_of
from ..settings.printable import printable
from .assertions import _UNSAID, SHOWN_MAX
from .history import HistoryEvent
from .matching import Body, is_body, shown_expected
from .nearest_names import nearest_names
from .snapshots import MessageSnapshot, message_of

if TYPE_CHECKING:
    from .edge import Edge

MS = 1_000_000
#: Live leases of one queue that a test sees: all of them.
COUNT_MAX = 1 << 31


@nearest_names
@dataclass(slots=True, frozen=True)
class LeaseSnapshot:
    """A message that somebody holds. `message`: as it was published.

    `consumer`: its tag, "" for a get. `connection`: the name that its client gave it, or where it comes from. `until`:
    seconds of the broker's clock since its start, to the millisecond; None: the lease does not end by time. `cancels`:
    how often the message was given back.
    """

    queue: str
    message: MessageSnapshot
    consumer: str
    connection: str
    until: float | None
    deliveries: int
    cancels: int

    def __str__(self) -> str:
        who = f"consumer {printable(self.consumer)!r}" if self.consumer else "a get"
        end = "without end" if self.until is None else f"until {self.until:g} s"
        return (
            f"{self.queue!r}: {who} of {printable(self.connection)} holds {self.message}, {end},"
            f" delivery {self.deliveries}, {self.cancels} cancels"
        )

    def is_like(self, body: Body, consumer: str | None, connection: str) -> bool:
        """Whether it is the one that a test means: the body, the consumer's tag, a part of the connection's name."""
        return (
            (body is _UNSAID or is_body(body, self.message.body))
            and consumer in (None, self.consumer)
            and connection in self.connection
        )


def leases_in(queue: Queue, edge: "Edge") -> tuple[LeaseSnapshot, ...]:
    """Those of a queue, which end first come first; none where it is no leased queue. In the broker's loop."""
    if queue.rules.leased is None:
        return ()
    held = {message.id: message for message in queue.unacked_messages()}
    names: dict[object, str] = {endpoint.client: endpoint.name for endpoint in edge.endpoints_of(queue.vhost_name)}
    now_ms = edge.clock.monotonic_ns() // MS
    found = []
    for row in leases_of(queue, COUNT_MAX):
        lease = held[int(str(row["bookmark"]).split("|")[1])]
        message, client = message_of(lease), holder_of(lease).session.client
        ends_in_ms = row["ends_in_ms"]
        assert ends_in_ms is None or isinstance(ends_in_ms, int)
        until = None if ends_in_ms is None else (now_ms + ends_in_ms) / 1000
        cancels, consumer = row["cancels"], row["consumer"]
        assert isinstance(cancels, int)
        connection = names.get(client, client.name)
        found.append(
            LeaseSnapshot(queue.name, message, str(consumer or ""), connection, until, message.deliveries, cancels)
        )
    return tuple(found)


def check_leased(queue: Queue) -> None:
    """That it lends its messages at all. Raises: ValueError."""
    if queue.rules.leased is None:
        raise ValueError(f"queue {queue.name!r} is no leased queue, expected one with x-queue-type = amps")


def lease_failure(
    queue: Queue, count: int | None, body: Body, consumer: str | None, connection: str, found: Sequence[LeaseSnapshot]
) -> str:
    """Why `assert_leased` fails: who holds what, and what nobody holds."""
    wanted = "a lease" if count is None else f"{count} leases"
    parts = [] if body is _UNSAID else [f"of {shown_expected(body)}"]
    parts += [f"by consumer {consumer!r}"] if consumer is not None else []
    parts += [f"of a connection called {connection!r}"] if connection else []
    lines = [f"expected {' '.join([wanted, *parts])} in queue {queue.name!r}, but it is otherwise"]
    lines.append("leased:" if found else "nothing is leased")
    lines += [f"  {one}" for one in found[:SHOWN_MAX]]
    lines.append(f"ready: {queue.ready_count}")
    return "\n".join(lines)


def end_failure(
    queue: str, why: str | None, count: int | None, ended: Sequence[HistoryEvent], running: Sequence[LeaseSnapshot]
) -> str:
    """Why `assert_lease_ended` fails: how leases ended, and which run."""
    wanted = "a lease" if count is None else f"{count} leases"
    how = "" if why is None else f" by {why!r}"
    lines = [f"expected {wanted} of queue {queue!r} to have ended{how}, but it is otherwise"]
    lines.append("ended, oldest first:" if ended else "no lease has ended")
    lines += [f"  message {one.message} at {one.at:g} s: {one.detail['why']}" for one in ended[-SHOWN_MAX:]]
    lines.append("running:" if running else "no lease is running")
    lines += [f"  {one}" for one in running[:SHOWN_MAX]]
    return "\n".join(lines)
