"""Flow control as peers of the differential mode: the model, and the engine with publishers that wait.

Two queues, and `*` for both of them; three publishers with confirms, and one who gets.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
from flow_bench import HEADER, FlowBench, Publisher
from flow_model import FlowMessage, FlowModel
from model_side import Observation, Operation, Side

from leveret.engine import BrokerOptions
from leveret.engine.invariants import check_broker
from leveret.engine.messages.content import NATIVE
from leveret.settings import SettingsRepository, SystemUsage, entry

#: Rules -> address-settings.
NAMES = {
    "memory": "memory_limit",
    "minimum": "minimum_message_size",
    "fails": "send_fail_if_no_space",
    "policy": "address_full_policy",
    "octets": "max_size_bytes",
    "messages": "max_size_messages",
    "threshold": "max_size_bytes_reject_threshold",
}
QUEUES = ("a", "b")


def said(operation: Operation, queue: str) -> dict[str, Any]:
    """What is declared of a queue."""
    return {name: value for name, value in operation.get(queue, {}).items() if name in NAMES}


def to(operation: Operation) -> list[str]:
    """The queues of a publish."""
    return list(QUEUES) if operation["queue"] == "*" else [operation["queue"]]


class FlowModelSide(Side):
    """The model."""

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        self.model = FlowModel()
        self.out: list[tuple[str, FlowMessage]] = []

    def seen(self) -> Observation:
        model = self.model
        seen: Observation = {"queues": {name: [one.name for one in it.ready] for name, it in model.queues.items()}}
        for name, publisher in sorted(model.publishers.items()):
            seen[name] = [publisher.outcomes, len(publisher.held)]
            publisher.outcomes = ""
        seen["used"] = {f"{one.name} {one.queue}": [one.used(), one.is_full] for one in model.limits}
        waiting = (turn.publisher.name for one in model.limits for turn in one.ring)
        seen["waiting"] = sorted(waiting)
        return seen

    def _declare(self, operation: Operation, number: int) -> None:
        if not self.model.queues:
            self.model.configure({name: said(operation, name) for name in QUEUES}, operation.get("broker"))

    def _publish(self, operation: Operation, number: int) -> None:
        if self.model.queues:
            messages = [FlowMessage(f"{number}-{at}", size) for at, size in enumerate(operation.get("sizes", ()))]
            self.model.publish(self.model.publisher(f"p{operation['c']}"), messages, to(operation))

    def _rush(self, operation: Operation, number: int) -> Any:
        queue = self.model.queues.get("a")
        if queue is None:
            return None
        got = queue.ready.pop(0).name if queue.ready else "empty"
        for limit in self.model.limits:
            limit.look()
        self._publish(operation, number)
        return got

    def _leave(self, operation: Operation, number: int) -> None:
        if self.model.queues:
            self.model.leave(self.model.publisher(f"p{operation['c']}"))

    def _get(self, operation: Operation, number: int) -> Any:
        queue = self.model.queues.get(operation["queue"])
        if queue is None or not queue.ready:
            return "empty"
        message = queue.ready.pop(0)
        if not operation.get("no_ack"):
            queue.out.append(message)
            self.out.append((queue.name, message))
        self.model.settle()
        return message.name

    def _ack(self, operation: Operation, number: int) -> None:
        if self.out:
            name, message = self.out.pop(operation["delivery_tag"] % len(self.out))
            self.model.queues[name].out.remove(message)
            self.model.settle()

    def _purge(self, operation: Operation, number: int) -> Any:
        queue = self.model.queues.get(operation["queue"])
        if queue is None:
            return None
        count = len(queue.ready)
        queue.ready = []
        self.model.settle()
        return count


class Bench(FlowBench):
    """A bench with two queues, whose publishers may publish to both at once."""

    def route(self, key: str, exchange: str = "") -> Any:
        return super().route(key, "amq.fanout" if key == "*" else exchange)


class FlowEngineSide(Side):
    """The engine."""

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        self.bench: Any = None
        self.publishers: dict[str, Publisher] = {}
        self.out: list[int] = []

    def _configure(self) -> None:
        system = None if self.memory is None else SystemUsage(memory=self.memory, store=0, temp=0)
        entries = [entry(name, cursor="vm", **{NAMES[key]: value for key, value in rules.items()})
                   for name, rules in self.rules.items()]  # fmt: skip
        options = BrokerOptions(system_usage=system)
        self.bench.broker.reloading.replace_settings(SettingsRepository(entries, usage=system), options)

    def seen(self) -> Observation:
        if self.bench is None:
            return {"queues": {}, "used": {}, "waiting": []}
        self.bench.end_turn()
        seen: Observation = {"queues": {}}
        for name in QUEUES:
            messages = self.bench.vhost.queues[name].messages()
            seen["queues"][name] = [NATIVE.split(one.content)[1].decode().rstrip(".") for one in messages]
        for name, publisher in sorted(self.publishers.items()):
            seen[name] = [publisher.outcomes(), len(publisher.wants)]
        names = {"max-size-bytes": "octets", "max-size-messages": "messages", "memory": "memory"}
        names["max-size-bytes-reject-threshold"] = "threshold"
        used = {}
        for node in self.bench.broker.flow.nodes():
            if node.limit_name in names:
                where = "" if node.is_root else node.destination.split("'")[1]
                if where and self.rules[where].get("policy") == "PAGE":
                    continue  # it holds nobody
                used[f"{names[node.limit_name]} {where}"] = [node.used, node.is_full]
        seen["used"] = used
        seen["waiting"] = sorted(one.client.name for one in self.bench.broker.flow.blocked())
        check_broker(self.bench.broker)
        return seen

    def _declare(self, operation: Operation, number: int) -> None:
        if self.bench is not None:
            return
        self.rules = {name: said(operation, name) for name in QUEUES}
        self.memory = operation.get("broker")
        self.bench = Bench()
        self._configure()
        self.bench.vhost.queues.delete("q", None)
        for name in QUEUES:
            self.bench.queue(name)
            self.bench.vhost.bindings.add("queue", name, "amq.fanout", "", {})

    def _publisher(self, operation: Operation) -> Publisher:
        name = f"p{operation['c']}"
        if name not in self.publishers:
            self.publishers[name] = Publisher(self.bench, name)
        return self.publishers[name]

    def _publish(self, operation: Operation, number: int) -> None:
        if self.bench is None:
            return
        publisher, contents = self._publisher(operation), []
        for at, size in enumerate(operation.get("sizes", ())):
            rest = size - len(NATIVE.join(HEADER, b""))
            contents.append(NATIVE.join(HEADER, f"{number}-{at}".encode().ljust(rest, b".")))
        publisher.publish(*contents, to=operation["queue"])

    def _rush(self, operation: Operation, number: int) -> Any:
        if self.bench is None:
            return None
        got = self._get({"queue": "a", "no_ack": True}, number)
        self._publish(operation, number)
        return got

    def _leave(self, operation: Operation, number: int) -> None:
        if self.bench is not None:
            publisher = self._publisher(operation)
            self.bench.broker.flow.leave(publisher)
            publisher.wants.clear()

    def _get(self, operation: Operation, number: int) -> Any:
        if self.bench is None:
            return "empty"
        got = self.bench.consumer.get(
            self.bench.vhost.queues[operation["queue"]], no_ack=operation.get("no_ack", False)
        )
        if got is None:
            return "empty"
        if not operation.get("no_ack"):
            self.out.append(got[0])
        return NATIVE.split(got[1].content)[1].decode().rstrip(".")

    def _ack(self, operation: Operation, number: int) -> None:
        if self.out:
            self.bench.consumer.ack(self.out.pop(operation["delivery_tag"] % len(self.out)))

    def _purge(self, operation: Operation, number: int) -> Any:
        return None if self.bench is None else self.bench.vhost.queues[operation["queue"]].purge()
