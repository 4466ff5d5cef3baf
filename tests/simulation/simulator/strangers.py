"""Peers that are no clients: they send nothing, or half a handshake, or octets that are no frames."""

from __future__ import annotations

from random import Random
from typing import Protocol

from leveret.interop.wire.raw_codec import PROTOCOL_HEADER, frame, method_frame

from .clients.knowledge import Knowledge
from .loop import SECOND
from .network import HERE, Network
from .schedule import Schedule

#: Where they come from.
ADDRESSES = (HERE, "192.0.2.1", "192.0.2.2", "192.0.2.3")
#: A stranger that nobody sends away goes after so long.
STAYS_S = 25


class Place(Protocol):
    """Where a stranger appears."""

    network: Network
    schedule: Schedule
    knowledge: Knowledge


class Stranger:
    """Connects, says what it has to say, and waits until it is sent away, or has enough."""

    def __init__(self, world: Place, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self._answers = 0
        self.link = world.network.connect(self, address=chance.choice(ADDRESSES))
        if self.link is None:
            return
        self._kind = chance.choice(list(_FIRST))
        world.knowledge.happened[f"stranger: {self._kind}"] += 1
        self.link.send(_FIRST[self._kind](chance))
        world.schedule.after(int(chance.uniform(0, STAYS_S) * SECOND), self.link.close)

    def received(self, data: bytes) -> None:
        self._answers += 1
        if self._answers == 1 and self._kind in _SECOND and self.link is not None:
            self.link.send(_SECOND[self._kind](self._chance))

    def disconnected(self) -> None:
        self._world.knowledge.happened["stranger sent away"] += 1


def _octets(chance: Random) -> bytes:
    return chance.randbytes(chance.choice((1, 8, 100, 5000)))


def _noise(chance: Random) -> bytes:
    """Frames of every type, on every channel, with anything in them; some without an end."""
    parts = []
    for _ in range(chance.randint(1, 20)):
        payload = chance.randbytes(chance.choice((0, 4, 14, 200)))
        part = frame(chance.choice((0, 1, 1, 2, 3, 8, 255)), chance.choice((0, 0, 1, 65535)), payload)
        parts.append(part if chance.random() < 0.9 else part[:-1] + b"\0")
    return b"".join(parts)


def _login(chance: Random, password: str) -> bytes:
    response = f"\0guest\0{password}".encode()
    return method_frame(
        0, "connection.start-ok", client_properties={}, mechanism="PLAIN", response=response, locale="en_US"
    )


_FIRST = {
    "silent": lambda chance: b"",
    "half a header": lambda chance: PROTOCOL_HEADER[: chance.randrange(1, 8)],
    "another protocol": lambda chance: chance.choice((b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\1\0\0", b"AMQP\3\1\0\0")),
    "octets": _octets,
    "no login": lambda chance: PROTOCOL_HEADER,
    "half a frame": lambda chance: PROTOCOL_HEADER,
    "noise": lambda chance: PROTOCOL_HEADER,
    "wrong password": lambda chance: PROTOCOL_HEADER,
    "noise after the login": lambda chance: PROTOCOL_HEADER,
}
_SECOND = {
    "half a frame": lambda chance: _login(chance, "guest")[: chance.randrange(1, 40)],
    "noise": _noise,
    "wrong password": lambda chance: _login(chance, "sesame"),
    "noise after the login": lambda chance: (
        _login(chance, "guest")
        + method_frame(0, "connection.tune-ok", channel_max=0, frame_max=0, heartbeat=0)
        + method_frame(0, "connection.open", virtual_host="/")
        + method_frame(1, "channel.open")
        + _noise(chance)
    ),
}
