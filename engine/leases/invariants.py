"""Checks the state of leased queues: leases against delivery tags, deadlines and consumers (`engine/invariants/`)."""

from collections.abc import Iterator

from ..invariants.queues import LATE_NS, is_before
from ..messages.message import Message
from ..stores.store import ids_in
from .state import Leases


def faults(leases: Leases, unacked: list[Message], *, is_small: bool) -> Iterator[str]:
    """See `Kind.faults`. Each lease and slot has a session's tag and an end, and each tag has a lease or slot."""
    queue, book = leases.queue, leases.book
    will_end_more = queue in queue.context.broker.background.to_trim  # then it sets the deadline
    out = {id(message): message for message in unacked}
    for name, table in (("lease", book.leases), ("slot", book.slots)):
        for id_, message in table.by_id.items():
            if message.id != id_ or out.pop(id(message), None) is None:
                yield f"the {name} of {id_} has no tag in a session"
        if table._period_ns:
            if list(table._begun_ns) != list(table.by_id):
                yield f"{len(table)} {name}s, and the ends of {len(table._begun_ns)} are known"
            due_ns = table.next_ns()
            if due_ns and not will_end_more and not is_before(leases.deadline, due_ns + LATE_NS):
                yield f"a {name} ends at {due_ns}, and no deadline is set"
    if out:
        yield f"tags are out without a lease: {[message.id for message in out.values()][:20]}"
    consumer_list = leases.consumer_list
    gone = (leases.browsing.keys() | leases.replaying.keys()).difference(consumer_list.consumers)
    if gone:
        yield f"shows messages to {len(gone)} consumers that are gone"
    unknown = (consumer_list.unleased | consumer_list.overdue | consumer_list.renewing).difference(
        consumer_list.consumers
    )
    if unknown:
        yield f"remembers {len(unknown)} holders that are not its consumers"
    if is_small:
        yield from _messages_of(leases)
        yield from _owners_of(leases)


def _owners_of(leases: Leases) -> Iterator[str]:
    """Faults of owners: each transferred message must be in the queue, and noted as ready exactly if it is ready."""
    owners = leases.owners
    if owners is None or not (owners.moved or owners.moved_ready):
        return
    ready, scheduled = set(ids_in(leases.queue.store)), {message.id for message in leases.queue.scheduled}
    gone = owners.moved.keys() - ready - scheduled - leases.book.leases.by_id.keys()
    if gone:
        yield f"remembers the owners of messages that are gone: {sorted(gone)[:20]}"
    back = {id_ for number, ids in owners.moved_ready.items() for id_ in ids if owners.moved.get(id_) == number}
    if not back >= owners.moved.keys() & ready:
        yield f"has not noted {sorted(owners.moved.keys() & ready - back)[:20]} as ready"
    strays = {id_ for ids in owners.moved_ready.values() for id_ in ids} - ready
    if strays:
        yield f"has noted {sorted(strays)[:20]} as ready, and they are not"


def _messages_of(leases: Leases) -> Iterator[str]:
    """Faults of the cancels, whose messages must be in the queue, and of the count of active messages."""
    book, active = leases.book, leases.active
    if not book.cancels and active is None:
        return
    ready_ids = ids_in(leases.queue.store)
    gone = book.cancels.keys() - book.leases.by_id.keys() - set(ready_ids)
    if gone:
        yield f"counts cancels of messages that are gone: {sorted(gone)[:20]}"
    if active is not None:  # positions are ids then
        count = len(book.leases) + sum(id_ <= active.end for id_ in ready_ids)
        if active.count != count:
            yield f"counts {active.count} active messages, {count} are there"
