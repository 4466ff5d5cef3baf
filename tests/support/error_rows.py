"""A table of conversations, each named after a case of tests/spec/error_cases.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rawclient import Client
from spec_broker import SpecBroker

Row = Callable[[Client, SpecBroker], None]


class Rows:
    """Rows by the name of their case. A row gets a client that is logged in and has channel 1 open, and brings the
    broker to the point where the case says what must come."""

    def __init__(self) -> None:
        self.by_name: dict[str, Row] = {}
        self.bare: set[str] = set()  # these want a client that has said nothing yet

    def row(self, name: str, *, bare: bool = False) -> Callable[[Row], Row]:
        """Enter a function as the row `name`."""

        def enter(function: Row) -> Row:
            assert name not in self.by_name, name
            self.by_name[name] = function
            if bare:
                self.bare.add(name)
            return function

        return enter

    def one(self, name: str, method: str, **values: Any) -> None:
        """A row of one method, whose outcome is the case's."""
        self.row(name)(lambda client, broker: client.send(method, **values))

    def ok(self, name: str, method: str, **values: Any) -> None:
        """A row of one method that is answered with its -ok."""

        def call(client: Client, broker: SpecBroker) -> None:
            client.call(method, **values)

        self.row(name)(call)

    def octets(self, name: str, octets: bytes) -> None:
        """A row of these octets."""
        self.row(name)(lambda client, broker: client.send_octets(octets))

    def ids(self, name: str, channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> None:
        """A row of one method frame with these ids and argument octets."""
        self.row(name)(lambda client, broker: client.method(channel, class_id, method_id, arguments))
