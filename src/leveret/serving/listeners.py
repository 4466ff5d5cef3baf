"""The listening sockets of the process: bound before a broker is built, and closed after the last one has ended."""

import logging
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ..settings.frozen import frozen
from .addresses import Address, AddressTaken, ConsoleAddresses, bind, url_of
from .options import ServeOptions

logger = logging.getLogger("leveret")

BACKLOG = 1024


@frozen
class Listeners:
    """Listening sockets with their addresses: of AMQP, of the console, and of its metrics."""

    amqp: dict[socket.socket, Address]
    console: dict[socket.socket, Address]
    metrics: dict[socket.socket, Address]

    @classmethod
    def bind(cls, options: ServeOptions) -> "Listeners":
        """Bind all addresses of the options. Raises: AddressTaken."""
        console, bound = options.console or ConsoleAddresses([]), cls({}, {}, {})
        try:
            bound.amqp.update(bind_all(options.listen))
            bound.console.update(bind_console("console", console.listen, is_named=console.is_named))
            bound.metrics.update(bind_console("metrics", console.metrics, is_named=console.are_metrics_named))
        except AddressTaken:
            bound.close()
            raise
        return bound

    @property
    def amqp_tls(self) -> list[socket.socket]:
        return [listener for listener, address in self.amqp.items() if address.is_tls]

    @property
    def amqp_plain(self) -> list[socket.socket]:
        return [listener for listener, address in self.amqp.items() if not address.is_tls]

    @property
    def amqp_urls(self) -> list[str]:
        """The addresses of AMQP as clients write them."""
        return [url_of(address, listener) for listener, address in self.amqp.items()]

    @property
    def http_urls(self) -> list[str]:
        """The addresses of the console and of its metrics as clients write them."""
        metrics = ((url_of(address, listener), address.path) for listener, address in self.metrics.items())
        return [
            *(url_of(address, listener) for listener, address in self.console.items()),
            *(f"{url}{'' if path else 'metrics'}" for url, path in metrics),
        ]

    def close(self) -> None:
        """Close all, and remove the files of Unix sockets."""
        for listeners in (self.amqp, self.console, self.metrics):
            close_all(listeners)


def close_all(listeners: Mapping[socket.socket, Address]) -> None:
    """Close listeners, and remove the files of Unix sockets."""
    for listener, address in listeners.items():
        listener.close()
        if address.path:
            with suppress(OSError):
                os.unlink(address.path)


def bind_all(addresses: Iterable[Address]) -> dict[socket.socket, Address]:
    """A listener for each address, in order; if one cannot be bound, none stays. Raises: AddressTaken."""
    listeners: dict[socket.socket, Address] = {}
    try:
        for address in addresses:
            listeners[bind(address, BACKLOG)] = address
    except AddressTaken:
        close_all(listeners)
        raise
    return listeners


def bind_console(what: str, addresses: list[Address], *, is_named: bool) -> dict[socket.socket, Address]:
    """Listeners of the console; none if an address is taken that was not named explicitly. Raises: AddressTaken."""
    try:
        return bind_all(addresses)
    except AddressTaken as error:
        if is_named:
            raise
        logger.warning("no %s: %s", what, error)
        return {}
