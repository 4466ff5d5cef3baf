"""Sends publisher confirms of a connection, once their publishes are safe in the journal.

The engine decides which tags are due. Source: performance page 4, rule 6.
"""

from collections.abc import Iterable

from ...engine import Broker
from ..peer.channel import Channel
from ..peer.output import Output
from ..wire.layout import ACK_FRAME, FRAME_END, METHOD
from ..wire.states import ChannelState
from .journal_wait import JournalWait

OPEN = ChannelState.OPEN
BASIC_ACK = 60 << 16 | 80
BASIC_NACK = 60 << 16 | 120
#: Bits of basic.nack without `multiple`: `requeue` is set, its default, though it means nothing to publishers.
NACK_BITS = 2
_PACK = ACK_FRAME.pack


class Confirming:
    """Sends confirms. `channels`: those in confirm mode with unconfirmed publishes."""

    def __init__(self, broker: Broker, journal: JournalWait, output: Output) -> None:
        self._broker = broker
        self._journal = journal
        self._output = output
        self.channels: dict[Channel, None] = {}

    def send_due(self) -> None:
        """Send the confirms that are due: basic.nack for publishes that a queue or a failed journal refused."""
        durability = self._broker.context.storage.durability
        safe_lsn = 0 if durability is None else durability.safe_lsn
        has_failed = durability is not None and durability.has_failed
        done: list[Channel] = []
        for channel in self.channels:
            confirms = channel.session.confirms
            if confirms is not None and channel.state is OPEN:
                if has_failed:
                    confirms.refuse_waiting(safe_lsn)
                self.send(channel, confirms.take(safe_lsn))
                if confirms.waiting:
                    continue
            done.append(channel)
        for channel in done:
            del self.channels[channel]
        if self.channels:
            self._journal.flush_on_progress()

    def send(self, channel: Channel, confirms: Iterable[tuple[int, bool, bool]]) -> None:
        """Send confirms, each as (tag, multiple, is_ack)."""
        output, number = self._output, channel.number
        for tag, multiple, is_ack in confirms:
            index, bits = (BASIC_ACK, multiple) if is_ack else (BASIC_NACK, multiple | NACK_BITS)
            output.parts.append(_PACK(METHOD, number, 13, index, tag, bits, FRAME_END))
            output.reply_size += ACK_FRAME.size


class AgreedConfirming(Confirming):
    """Sends confirms of a node of a cluster: ahead of waiting deliveries of the channel, behind its waiting answers."""

    def send(self, channel: Channel, confirms: Iterable[tuple[int, bool, bool]]) -> None:
        number = channel.number
        for tag, multiple, is_ack in confirms:
            index, bits = (BASIC_ACK, multiple) if is_ack else (BASIC_NACK, multiple | NACK_BITS)
            self._output.send_ahead(number, _PACK(METHOD, number, 13, index, tag, bits, FRAME_END))
