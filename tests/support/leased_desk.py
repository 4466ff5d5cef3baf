"""A desk for leased queues: consumer arguments, dead letters with their reasons, requests to amps.control."""

from __future__ import annotations

import json
from typing import Any

from desk import GETS, C, Got, Refused, VirtualDesk, dashed, got_of
from pamqp import frame, heartbeat
from peer import method

HEARTBEAT = frame.marshal(heartbeat.Heartbeat(), 0)

#: Dead letters go to the queue `dead`.
DLX = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
#: A queue with barriers, and one.
BARRIER = {"x_barrier_expr": "/sync IS NOT NULL"}
SYNC = '{"sync": 1}'


class LeasedDesk(VirtualDesk):
    """A desk that knows consumer arguments. `queue(...)` declares `q`, with room for 1,000 unless it says otherwise."""

    def queue(self, name: str = "q", **arguments: Any) -> None:
        """A leased queue; with a dead-letter queue `dead` where it names one."""
        arguments = dashed(arguments)
        if "x-dead-letter-exchange" in arguments:
            super().declare("dead")
        self.declare(name, **{"x-queue-type": "amps", "x-max-backlog-per-consumer": 1000, **arguments})

    def subscribe(
        self,
        queue: str = "q",
        *,
        qos: int | None = None,
        tag: str = "t",
        no_ack: bool = False,
        **arguments: Any,
    ) -> LeasedDesk:
        """basic.qos if it is given, and basic.consume."""
        if qos is not None:
            self._call(GETS, C.Basic.Qos, prefetch_count=qos)
        table = dashed(arguments)
        if table.get("x-browse") is True:
            fields = {"queue": queue, "consumer_tag": tag, "no_ack": no_ack, "arguments": table}
            self.peer.send(method(GETS, C.Basic.Consume, **fields))
            answers = self.peer.take()
            if isinstance(answers[0].frame, C.Channel.Close):
                raise Refused(answers[0].frame.reply_code, answers[0].frame.reply_text)
            self._deliveries += [got_of(one) for one in answers if isinstance(one.frame, C.Basic.Deliver)]
            assert isinstance(answers[0].frame, C.Basic.ConsumeOk) and isinstance(answers[-1].frame, C.Basic.Cancel)
        else:
            self._call(GETS, C.Basic.Consume, queue=queue, consumer_tag=tag, no_ack=no_ack, arguments=table)
        return self

    def other(self, *, heartbeat_s: int = 0) -> LeasedDesk:
        """Another connection. `heartbeat_s`: it has heartbeats, and is heard from by `beat` and by what it does."""
        return LeasedDesk(beside=self, heartbeat_s=heartbeat_s)

    def beat(self) -> None:
        """A heartbeat; those of the broker are taken."""
        self.peer.send(HEARTBEAT)
        self.listen()

    def listen(self) -> None:
        """Heartbeats of the broker are taken."""
        self._deliveries += [got_of(one) for one in self.peer.take() if isinstance(one.frame, C.Basic.Deliver)]

    def bodies(self) -> str:
        """Of deliveries since the last look, joined."""
        return "".join(got.body for got in self.taken())

    def dead(self) -> list[Got]:
        """Dead letters, which are gone then."""
        found: list[Got] = []
        while (got := self.get("dead", no_ack=True)) is not None:
            found.append(got)
        return found

    def reasons(self) -> list[str]:
        """Why each dead letter expired."""
        return [got.headers["x-amps-reason"] for got in self.dead()]


def numbered(number: int) -> str:
    """A body."""
    return json.dumps({"n": number})


def one(desk: LeasedDesk) -> Got:
    """The only delivery since the last look."""
    (got,) = desk.taken()
    return got


def crowd(desk: LeasedDesk, *limits: int) -> list[LeasedDesk]:
    """Consumers with these backlogs, in their order."""
    return [desk.other().subscribe(qos=limit) for limit in limits]


def ask(desk: LeasedDesk, key: str = "sow_delete", **headers: str) -> dict[str, Any]:
    """A request to amps.control, and its answer."""
    desk.declare("answers", x_queue_type="classic")
    headers = dashed(headers)
    outcome = desk.publish(
        "", exchange="amps.control", key=key, headers=headers, reply_to="answers", correlation_id="7"
    )
    assert outcome == ["ack"]
    got = desk.must_get("answers")
    desk.ack(got)
    assert got.properties.correlation_id == "7" and got.properties.content_type == "application/json"
    answer = json.loads(got.body)
    assert isinstance(answer, dict)
    return answer
