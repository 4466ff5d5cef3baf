"""Desks that replay the log of a leased queue: one with the log in memory, one whose log is a journal."""

from __future__ import annotations

from typing import Any

from desk import GETS, C, Got, Refused, VirtualDesk, got_of
from durable_desk import DurableDesk
from peer import method
from simulated_files import SimulatedFiles


class Replays(VirtualDesk):
    """What both can do. `got`: the deliveries of the last look; `is_ended`: whether the broker cancelled since."""

    got: list[Got]
    is_ended: bool

    def queue(self, name: str = "q", **arguments: Any) -> None:
        """A leased queue."""
        self.declare(name, **{"x_queue_type": "amps", "x_max_backlog_per_consumer": 1000, **arguments})

    def replay(
        self, *, queue: str = "q", qos: int | None = 100, tag: str = "r", no_ack: bool = False, **arguments: Any
    ) -> str:
        """What a consumer with these arguments (`bookmark` is x-bookmark) gets at once. Raises: Refused."""
        table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        if qos is not None:
            self._call(GETS, C.Basic.Qos, prefetch_count=qos)
        consume = method(GETS, C.Basic.Consume, queue=queue, consumer_tag=tag, no_ack=no_ack, arguments=table)
        self.peer.send(consume)
        return self.more()

    def more(self) -> str:
        """The bodies of what came since the last look. Raises: Refused."""
        self.pair.end_turn()
        self.got, self._deliveries, self.is_ended = self._deliveries, [], False
        for one in self.peer.take():
            if isinstance(one.frame, C.Basic.Deliver):
                self.got.append(got_of(one))
            elif isinstance(one.frame, C.Basic.Cancel):
                self.is_ended = True
            elif isinstance(one.frame, C.Connection.Close):
                raise Refused(one.frame.reply_code, one.frame.reply_text)
            elif isinstance(one.frame, C.Channel.Close):
                self.peer.send(method(GETS, C.Channel.CloseOk), method(GETS, C.Channel.Open))
                self.peer.take()
                raise Refused(one.frame.reply_code, one.frame.reply_text)
        return "".join(one.body for one in self.got)

    def delete(self, queue: str = "q", *, if_empty: bool = False) -> int:
        self.peer.send(method(GETS, C.Queue.Delete, queue=queue, if_empty=if_empty))
        self.confirmed()
        self.peer.take()
        return 0

    def clear(self, name: str = "q") -> None:
        """All messages of a queue are acknowledged."""
        while (got := self.get(name)) is not None:
            self.ack(got)

    def confirmed(self) -> None:
        """What was published is safe."""


class MemoryReplays(Replays):
    """Without a journal."""


class JournalReplays(Replays, DurableDesk):
    """With one, on simulated files."""

    def __init__(self, settings: str = "", files: SimulatedFiles | None = None, *, wall_ms: int | None = None) -> None:
        DurableDesk.__init__(self, files or SimulatedFiles(), settings, wall_ms=wall_ms)

    def confirmed(self) -> None:
        self.settle()
        self.confirms()
