"""The broker of a scenario: its address and its controls. It is started here, or external and given by its URL."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..wire.handshake import Handshake
from .processes import Lifecycle

DEFAULT_PORT = 5672


@dataclass(frozen=True, slots=True)
class Broker:
    """Where to connect, and the controls of the broker itself by name (restart, crash, alarm-on, ...).

    `offers`: the needs of scenarios that it meets. `withholds`: other needs, with the reason.
    `is_ours`: it was started here, so nothing has to be cleaned up after the run.
    """

    name: str
    version: str
    host: str
    port: int
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    tls_port: int = 0
    ca: Path | None = None
    is_ours: bool = False
    controls: Mapping[str, Callable[[], object]] = field(default_factory=dict, repr=False)
    withholds: Mapping[str, str] = field(default_factory=dict)
    processes: Lifecycle | None = field(default=None, repr=False)
    is_frail: bool = False  # it may hang after a failure, so each client has its own, restarted for each scenario
    texts: Mapping[str, str] = field(default_factory=dict)  # its texts in place of RabbitMQ's
    seconds_max: float = 60.0  # for an answer; fewer for brokers that are only measured and often fail

    def revive(self) -> bool:
        """After a failure, restart a broker of ours that has crashed or is frail. Returns whether it had crashed."""
        if self.processes is None:
            return False
        crashed = self.processes.has_ended()
        if crashed or self.is_frail:
            self.processes.start_again()
        return crashed

    def lacking(self, needs: frozenset[str]) -> str:
        """The reason why a scenario with these needs cannot run here; "": it can."""
        offered = {
            "restart": "restart" in self.controls,
            "alarm": "alarm-on" in self.controls,
            "disk": "disk-full" in self.controls,
            "tls": self.tls_port > 0,
        }
        missing = sorted(need for need in needs if not offered.get(need))
        return "; ".join(self.withholds.get(need, REASONS.get(need, need)) for need in missing)


REASONS = {
    "restart": "the broker is not ours to restart (--restart COMMAND)",
    "alarm": "no way to raise its memory alarm (--alarm-on COMMAND --alarm-off COMMAND)",
    "disk": "no way to fill its disk (--disk-full COMMAND --disk-free COMMAND)",
    "tls": "no port with TLS (--tls-port PORT --ca FILE)",
}


def external(url: str, tls_port: int, ca: Path | None, commands: Mapping[str, str]) -> Broker:
    """An external broker. `commands`: name of a control -> shell command; "": there is none.

    Raises: ValueError: it is not an amqp URL. NoBroker: the broker does not answer, or refuses the login.
    """
    needed = "amqp://USER:PASSWORD@HOST:PORT/VHOST is needed; TLS is --tls-port"
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise ValueError(f"{url}: {error}; {needed}") from error
    if parts.scheme != "amqp" or not parts.hostname:
        raise ValueError(f"{url}: {needed}")
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    vhost = unquote(parts.path[1:]) or "/"
    with Handshake(parts.hostname, port) as handshake:
        properties = handshake.greeting()
        handshake.login(user, password, vhost)
    controls = {name: _command(command) for name, command in commands.items() if command}
    return Broker(
        properties.get("product", "?").lower(),
        properties.get("version", "?"),
        parts.hostname,
        port,
        user,
        password,
        vhost,
        tls_port,
        ca,
        controls=controls,
    )


def _command(line: str) -> Callable[[], object]:
    return lambda: subprocess.run(shlex.split(line), check=True)
