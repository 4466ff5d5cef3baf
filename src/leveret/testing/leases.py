"""Values for tests about leases: the holder and the deadline of each leased message, and the ends of leases.

Source: queues page A.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine import MS, Queue, holder_of
from ..settings.printable import printable
from .assertions import OMITTED, SHOWN_MAX
from .history import HistoryEvent
from .matching import Body, is_body, shown_expected
from .nearest_names import nearest_names
from .snapshots import MessageSnapshot, message_of

if TYPE_CHECKING:
    from .runtime import WatchedRuntime

#: The type of leased queues.
AMPS = "amps"
#: More leases than a queue can have.
COUNT_MAX = 1 << 31


@nearest_names
@dataclass(slots=True, frozen=True)
class LeaseSnapshot:
    """A leased message. `message`: as it was published.

    `consumer`: its tag, "" for a get. `connection`: the name that its client gave it, or its remote address. `until`:
    the deadline, in seconds of the broker's clock since its start, rounded to milliseconds; None: the lease has no
    deadline. `cancels`: how often the message was returned.
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
        """Whether body, consumer tag and part of the connection's name are these."""
        return (
            (body is OMITTED or is_body(body, self.message.body))
            and consumer in (None, self.consumer)
            and connection in self.connection
        )


def leases_in(queue: Queue, runtime: "WatchedRuntime") -> tuple[LeaseSnapshot, ...]:
    """The leases of a queue by deadline; () if the queue is not leased. Call it in the broker's loop."""
    if queue.type != AMPS:
        return ()
    from ..engine.leases import list_leases  # the package may be missing

    held = {message.id: message for message in queue.unacked_messages()}
    names: dict[object, str] = {endpoint.client: endpoint.name for endpoint in runtime.endpoints_of(queue.vhost_name)}
    now_ms = runtime.clock.monotonic_ns() // MS
    found = []
    for row in list_leases(queue, COUNT_MAX):
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
    """Check that the queue is leased. Raises: ValueError."""
    if queue.type != AMPS:
        raise ValueError(f"queue {queue.name!r} is not a leased queue, expected one with x-queue-type = amps")


def lease_failure(
    queue: Queue, count: int | None, body: Body, consumer: str | None, connection: str, found: Sequence[LeaseSnapshot]
) -> str:
    """The text of a failure of `assert_leased`: the leases, and the messages without one."""
    wanted = "a lease" if count is None else f"{count} leases"
    parts = [] if body is OMITTED else [f"of {shown_expected(body)}"]
    parts += [f"by consumer {consumer!r}"] if consumer is not None else []
    parts += [f"of a connection called {connection!r}"] if connection else []
    lines = [f"expected {' '.join([wanted, *parts])} in queue {queue.name!r}, but:"]
    lines.append("leased:" if found else "nothing is leased")
    lines += [f"  {one}" for one in found[:SHOWN_MAX]]
    lines.append(f"ready: {queue.ready_count}")
    return "\n".join(lines)


def end_failure(
    queue: str, why: str | None, count: int | None, ended: Sequence[HistoryEvent], running: Sequence[LeaseSnapshot]
) -> str:
    """The text of a failure of `assert_lease_ended`: the ends of leases, and the running leases."""
    wanted = "a lease" if count is None else f"{count} leases"
    how = "" if why is None else f" by {why!r}"
    lines = [f"expected {wanted} of queue {queue!r} to have ended{how}, but:"]
    lines.append("ended, oldest first:" if ended else "no lease has ended")
    lines += [f"  message {one.message} at {one.at:g} s: {one.detail['why']}" for one in ended[-SHOWN_MAX:]]
    lines.append("running:" if running else "no lease is running")
    lines += [f"  {one}" for one in running[:SHOWN_MAX]]
    return "\n".join(lines)
