"""Commands about the leases of a leased queue. Source: ruling 24; queues page A."""

from typing import Any

from ..engine import BadRequest, Queue
from ..engine.leases import is_leased, list_leases, list_owners, renew_leases
from .command import command
from .command_error import CommandError
from .kinds import QueueName, VhostName
from .operator import Operator
from .steps import Steps

#: Maximum leases in a list, earliest deadline first.
LISTED_MAX = 1000


@command("leases", reads=True)
def leases(
    operator: Operator, queue: QueueName, *, after: int = 0, count: int = LISTED_MAX, vhost: VhostName = "/"
) -> list[dict[str, Any]]:
    """List the leases of a leased queue: which client has which message, and until when.

    after: skip this many leases
    count: at most this many (default and at most 1000)
    """
    return list_leases(_leased(operator, vhost, queue), after + min(count, LISTED_MAX))[after:]


@command("owners", reads=True)
def owners(operator: Operator, queue: QueueName, *, vhost: VhostName = "/") -> Steps:
    """Count the messages of a leased queue by owning node: ready, leased, stranded; and tell what they wait for."""
    try:
        rows = yield from list_owners(_leased(operator, vhost, queue))
    except BadRequest as error:
        raise CommandError(f"queue {queue!r}: {error}") from None
    return rows


@command("lease renew")
def renew(operator: Operator, queue: QueueName, bookmark: str, *, vhost: VhostName = "/") -> dict[str, Any]:
    """Renew leases of a leased queue, whichever clients have them.

    bookmark: of the messages; commas between several
    """
    found = _leased(operator, vhost, queue)
    try:
        count = renew_leases(found, bookmark)
    except BadRequest as error:
        raise CommandError(str(error)) from None
    return {"queue": queue, "vhost": vhost, "renewed": count}


def _leased(operator: Operator, vhost: str, name: str) -> Queue:
    """A leased queue. Raises: CommandError."""
    queue = operator.queue(vhost, name)
    if not is_leased(queue):
        raise CommandError(f"queue {name!r} is not a leased queue")
    return queue
