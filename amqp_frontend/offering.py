"""Publishing to where there are limits: what is published now, what is held, and what is refused, and how.

Source: queues page E.4, the decision table; E.5.
"""

from collections.abc import Sequence

from ..engine import Full, errors
from .channel import Channel, KnownRoute, part_max_of
from .deliveries import render_returns
from .held_channel import Work
from .protocol_events import ChannelMethod, PublishReceived
from .session import AmqpSession

MS = 1_000_000
RESOURCE_ERROR = 506


def offer_run(session: AmqpSession, event: PublishReceived, channel: Channel, known: KnownRoute) -> None:
    """Publish as much of a run as there is room for; the rest is held or refused.

    Raises: DestinationFull (E.4 row 7), and what `Session.offer` raises.
    """
    area, engine_session, effort = session.backlog.area, channel.session, session.broker.effort
    route, envelope, blobs = known.route, known.envelope, event.blobs
    part_max = part_max_of(route)
    if engine_session.confirms is not None:
        session.confirming.channels[channel] = None
    start = 0
    while start < len(blobs):
        if start and effort.spent >= session.effort_max:
            session.backlog.unfinished = PublishReceived(channel, event.kind, blobs[start:])
            return
        allowance = area.allowance
        part = blobs[start : start + part_max] if start or len(blobs) > part_max else blobs
        if allowance is None:
            taken, returned, full = engine_session.offer(route, envelope, part, mandatory=known.mandatory)
        else:
            taken, returned, full = engine_session.offer(
                route,
                envelope,
                part,
                mandatory=known.mandatory,
                octets_max=allowance.octets,
                messages_max=allowance.messages,
            )
            allowance.spend(part[:taken])
        start += taken
        if returned:
            session.send_returns(channel, returned)
        if full is None:
            if not taken:
                area.put_back(channel, _rest(event, start))
                return
        elif is_refused(session, full):
            count = 1 if route.queues is None else len(blobs) - start  # as full for one as for the next
            refuse(session, channel, known, full, blobs[start : start + count], behind=len(blobs) - start - count)
            start += count
        else:
            area.hold_for(full, channel, _rest(event, start))
            return


def must_wait_to_commit(session: AmqpSession, event: ChannelMethod, channel: Channel) -> bool:
    """Whether tx.commit is held, as one: the journal refuses, or there is no room (E.4 row 13).

    Raises: DestinationFull.
    """
    area = session.backlog.area
    if session.journal.is_refusing:
        hold_for_disk(session, event, channel)
        return True
    full = channel.session.full_for_commit()
    if full is not None:
        if is_refused(session, full):
            raise errors.DestinationFull(destination=full.destination, limit=full.limit)
        area.hold_for(full, channel, event)
        return True
    transaction, allowance = channel.session.transaction, area.allowance
    if allowance is not None and transaction is not None:
        if transaction.size > allowance.octets:
            area.put_back(channel, event)
            return True
        allowance.spend_octets(transaction.size, sum(len(one.blobs) for one in transaction.publishes))
    return False


def hold_for_disk(session: AmqpSession, event: Work, channel: Channel) -> None:
    """The journal takes nothing now (`[address-setting] disk-full-policy`)."""
    disk = session.broker.flow.disk
    disk.switch("low on disk")
    session.backlog.area.hold_for(disk.full_for(), channel, event)


def is_refused(session: AmqpSession, full: Full) -> bool:
    """Whether what is handled now is refused instead of held, because of the policy, or because it has waited."""
    if full.fails or not full.fails_after_ms:
        return full.fails
    since_ns = session.backlog.area.since_ns
    return since_ns is not None and session.broker.clock.monotonic_ns() >= since_ns + full.fails_after_ms * MS


def _rest(event: PublishReceived, start: int) -> PublishReceived:
    return PublishReceived(event.channel, event.kind, event.blobs[start:]) if start else event


def refuse(
    session: AmqpSession, channel: Channel, known: KnownRoute, full: Full, blobs: Sequence[bytes], *, behind: int = 0
) -> None:
    """Rows 5 to 7: nack; or return; or the channel's end, and with it that of so many `behind` in the same run.

    Raises: DestinationFull, for the last.
    """
    engine_session = channel.session
    is_last = engine_session.confirms is None and not known.mandatory
    engine_session.pass_over(len(blobs) + (behind if is_last else 0), refused=True)
    if engine_session.confirms is not None:
        session.confirming.channels[channel] = None
        return
    if is_last:
        raise errors.DestinationFull(destination=full.destination, limit=full.limit)
    text = f"RESOURCE_ERROR - {full.destination}: {full.limit} limit"
    session.output.render()
    frame_max = session.connection.frame_max
    session.output.send_raw(
        *render_returns(channel.number, known.envelope, blobs, frame_max, code=RESOURCE_ERROR, text=text)
    )
