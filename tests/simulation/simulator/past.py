"""What an earlier release left: journals that its own program wrote, and what it knew to be in them.

`journals/<name>.json`: the files (deflated, in base64), the messages of each queue of "/" as [id, number, size], all by
publisher 900, and the names of all objects; `written_by`: the commit whose program it was.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulated_files import SimulatedFiles

from leveret.engine import Broker

from .clients.knowledge import Knowledge, key_of
from .ledger import Broken, Ledger

JOURNALS = Path(__file__).parents[1] / "journals"
PUBLISHER = 900


@dataclass(slots=True)
class Past:
    """One of them."""

    files: dict[str, bytes]
    messages: dict[str, list[tuple[int, int, int]]]
    objects: list[str]

    @classmethod
    def load(cls, name: str) -> Past:
        """By its name."""
        stored = json.loads((JOURNALS / f"{name}.json").read_text())
        files = {path: zlib.decompress(b64decode(data)) for path, data in stored["files"].items()}
        return cls(files, stored["messages"], stored["objects"])

    def restore(self, files: SimulatedFiles, ledger: Ledger, knowledge: Knowledge) -> None:
        """It is on the disk, and in the oracle's books."""
        for path, data in self.files.items():
            files.put(path, data)
        for queue, messages in self.messages.items():
            ledger.durable["/", queue] = {id_: key_of(PUBLISHER, number) for id_, number, _ in messages}
            for _, number, size in messages:
                knowledge.publish(key_of(PUBLISHER, number), size)

    def check_objects(self, broker: Broker) -> None:
        """All of them are there, and no others. Raises: Broken."""
        found = described(broker)
        if found != self.objects:
            raise Broken(f"of a release before there were {self.objects}, and now there are {found}")


def described(broker: Broker) -> list[str]:
    """The names of all objects, as the journals have them."""
    vhost = broker.virtual_hosts["/"]
    bindings: list[Any] = [one for exchange in vhost.exchanges.values() for one in exchange.bindings.values()]
    return sorted(
        [
            *(f"user {user.name}" for user in broker.users if not user.is_configured),
            *(f"policy {one.vhost} {one.name} {one.pattern} {dict(one.definition)}" for one in broker.context.policies),
            *(f"vhost {name}" for name in broker.virtual_hosts),
            *(f"queue {queue.name} {queue.type}" for queue in vhost.queues.values()),
            *(f"binding {one.source.name} {one.destination.name} {one.routing_key}" for one in bindings),
        ]
    )
