"""The broker that the specification runs against: a `leveret serve` of our own, or whatever the environment names."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rawclient import Client, Eof, Method

from leveret.cli.control_client import ControlFailed, request
from leveret.interop.brokers import peers
from leveret.interop.wire.loopback import LOOPBACK

# A refused login is answered after 3 s; the table does not want to wait.
CONFIGURATION = "[broker]\nrefused-login-delay = 0\n"
#: Users, permissions, virtual hosts and limits of the rows, in the one form that both brokers read.
DEFINITIONS = Path(__file__).resolve().parents[1] / "spec" / "definitions.json"


def _options(words: tuple[str, ...]) -> dict[str, str]:
    """The values of `--name value`, by name."""
    return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2])}


def _set_policy(command: str, name: str, pattern: str, definition: str, *options: str) -> tuple[str, dict[str, Any]]:
    arguments = {"action": "set", "name": name, "pattern": pattern, "definition": definition}
    return command, {**arguments, **_options(options)}


#: rabbitmqctl's word -> our command and its arguments.
AS_CONTROL: dict[str, Callable[..., tuple[str, dict[str, Any]]]] = {
    "add_vhost": lambda name, *options: ("vhosts", {"action": "add", "name": name, **_options(options)}),
    "trace_on": lambda: ("trace-on", {}),
    "trace_off": lambda: ("trace-off", {}),
    "delete_vhost": lambda name: ("vhosts", {"action": "delete", "name": name}),
    "add_user": lambda name, password: ("users", {"action": "add", "name": name, "password": password}),
    "delete_user": lambda name: ("users", {"action": "delete", "name": name}),
    "set_permissions": lambda _, vhost, user, configure, write, read: (
        "permissions",
        {"action": "set", "vhost": vhost, "user": user, "configure": configure, "write": write, "read": read},
    ),
    "set_policy": lambda *words: _set_policy("policies", *words),
    "set_operator_policy": lambda *words: _set_policy("operator-policies", *words),
    "clear_policy": lambda name: ("policies", {"action": "clear", "name": name}),
    "clear_operator_policy": lambda name: ("operator-policies", {"action": "clear", "name": name}),
}
RABBITMQ_MESSAGE_SIZE_MAX = 134_217_728
#: What RabbitMQ needs for the exchange types that we have built in.
RABBITMQ_PLUGINS = ("rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange")


class SpecBroker:
    """A broker on a port, the connections that a case opened, and the objects that it declared."""

    def __init__(self, host: str, port: int, *, is_rabbitmq: bool, peer: peers.Peer | None = None) -> None:
        self.host = host
        self.port = port
        self.peer = peer  # None: somebody else's, where nobody does what operators do
        self.is_rabbitmq = is_rabbitmq
        self._clients: list[Client] = []
        self._ruling: threading.Thread | None = None

    def connect(self) -> Client:
        """A bare TCP connection; nothing was said yet."""
        client = Client(self.host, self.port)
        self._clients.append(client)
        return client

    def open(self, *, channels: int = 1, **options: Any) -> Client:
        """A connection with channels 1 to `channels` open; `options` as of `Client.handshake`."""
        client = self.connect()
        client.handshake(**options)
        for channel in range(1, channels + 1):
            client.call("channel.open", channel=channel)
        return client

    def rule(self, *words: str) -> None:
        """What an operator does: rabbitmqctl's words or, with the same meaning, those of `leveret ctl`."""
        assert self.peer is not None
        if self.is_rabbitmq:
            peers.rabbitmqctl(self.peer, *words)
            if "permissions" in words[0]:  # a channel of theirs remembers what it may until it hibernates, idle for 1 s
                peers.rabbitmqctl(self.peer, "eval", "timer:sleep(2000).")
            return
        command, arguments = AS_CONTROL[words[0]](*words[1:])
        request(f"amqp://guest:guest@{self.host}:{self.port}/", command, arguments)

    def refusal(self, *words: str) -> str:
        """What is said against what an operator wants, on one line; empty when it is done."""
        try:
            self.rule(*words)
        except ControlFailed as error:
            return " ".join(str(error).split())
        except subprocess.CalledProcessError as error:
            return " ".join(str(error.stderr).removeprefix("Error:").split())
        return ""

    def rule_meanwhile(self, *words: str) -> None:
        """As `rule`, while the case reads on: RabbitMQ does not wait long for an answer to its goodbye."""
        self._ruling = threading.Thread(target=self.rule, args=words)
        self._ruling.start()

    def clean_up(self) -> None:
        """End the connections of the case and delete what it declared."""
        if self._ruling is not None:
            self._ruling.join()
            self._ruling = None
        declared = [thing for client in self._clients for thing in client.declared]
        for client in self._clients:
            _end(client)
        self._clients.clear()
        if not declared:
            return
        client = Client.open(self.host, self.port)
        for kind, name in dict.fromkeys(declared):
            if name.startswith(("p.", "amq.gen-")):
                values: dict[str, Any] = {kind: name}
                client.send(f"{kind}.delete", **values)
                if client.read().name == "channel.close":  # locked by a connection that is still dying
                    client.send("channel.close-ok")
                    client.call("channel.open")
        client.close()


def _end(client: Client) -> None:
    try:
        if client.running:
            client.close()
    except (Eof, OSError, AssertionError):
        pass  # the case ended the connection itself, or failed; its own report says so
    client.abort()


@contextmanager
def spec_broker(directory: Path, configuration: str = "", *, rabbitmq: str = "") -> Iterator[SpecBroker]:
    """LEVERET_SPEC_PORT: one that runs already. LEVERET_SPEC_PEER=rabbitmq: RabbitMQ's expectations, and a RabbitMQ
    of our own, configured with `rabbitmq`, unless a port is named. Neither: leveret, with `configuration` added to the
    test's own."""
    is_rabbitmq = os.environ.get("LEVERET_SPEC_PEER") == "rabbitmq"
    port = os.environ.get("LEVERET_SPEC_PORT")
    if port and not rabbitmq:
        yield SpecBroker(LOOPBACK, int(port), is_rabbitmq=is_rabbitmq)
    elif is_rabbitmq:
        config = f"load_definitions = {DEFINITIONS}\n"
        with peers.rabbitmq(config=config, advanced=rabbitmq, plugins=RABBITMQ_PLUGINS) as peer:
            yield SpecBroker(LOOPBACK, peer.port, is_rabbitmq=True, peer=peer)
    else:
        file = directory / "spec.toml"
        file.write_text(CONFIGURATION + f"definitions = '{DEFINITIONS}'\n" + configuration)
        with peers.leveret("--config", str(file)) as peer:
            yield SpecBroker(LOOPBACK, peer.port, is_rabbitmq=False, peer=peer)


def close_of(method: Method) -> tuple[int, str, int, int]:
    """Code, text and ids of a channel.close or connection.close."""
    assert method.name in ("channel.close", "connection.close"), method
    return method["reply_code"], method["reply_text"], method["class_id"], method["method_id"]


def expect_channel_close(client: Client, code: int, text: str, ids: tuple[int, int], *, channel: int = 1) -> None:
    """The next method closes the channel with exactly this; it is answered, so the number is free again."""
    assert close_of(client.expect("channel.close", channel=channel)) == (code, text, *ids)
    client.send("channel.close-ok", channel=channel)


def expect_connection_close(client: Client, code: int, text: str, ids: tuple[int, int]) -> None:
    """The next method closes the connection with exactly this; once answered the TCP connection ends."""
    client.running = False
    assert close_of(client.expect("connection.close", channel=0)) == (code, text, *ids)
    client.send("connection.close-ok", channel=0)
    client.expect_eof()
