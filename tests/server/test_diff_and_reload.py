"""What `leveret diff` says of when a change takes effect, and when it does in a broker that reloads.

The first half looks at who reads which key; the second changes the configuration of real brokers.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from broker_process import leveret_serve
from rawclient import Client, Eof

from leveret.cli import control_client, diff_command
from leveret.cli.control_client import request
from leveret.configured.options import broker_options, frontend_options, journal_options
from leveret.serving.console import console_options
from leveret.serving.tls_files import load_tls
from leveret.settings import Configuration, load_configuration
from leveret.settings.difference import differences
from leveret.settings.lifetime import (
    ARRIVAL,
    AT_BINDING,
    AT_CONNECTION,
    AT_CREATION,
    LIVE,
    MIXED,
    NEVER,
    RESTART,
    WITHOUT_MEANING,
    Lifetime,
)
from leveret.settings.rows.broker_keys import KEYS

# ------------------------------------------------------------------------------------------------ who reads which key

Read = set[tuple[str, str]]


class Listening(Configuration):
    """A configuration that notes what it is asked for."""

    __slots__ = ()
    read: ClassVar[Read] = set()

    def value(self, table: str, key: str) -> Any:
        self.read.add((table, key))
        return super().value(table, key)


def read_by(*readers: Callable[[Configuration], object]) -> Read:
    """The keys that these ask for; the profile apart, which all of them do."""
    Listening.read.clear()
    for reader in readers:
        reader(Listening())
    return Listening.read - {("broker", "profile")}


def keys_of(*lifetimes: Lifetime) -> Read:
    return {(table, name) for table, keys in KEYS.items() for name, key in keys.items() if key.acts in lifetimes}


#: Asked for when the process starts, and not again.
AT_START = {
    *(("broker", key) for key in ("listen", "data", "definitions", "definitions-all-or-nothing")),
    *(
        ("broker", key)
        for key in ("persist-delivery-count-before-delivery", "max-redelivery-records", "persist-id-cache")
    ),
    *(("limits", key) for key in ("memory", "unsent-per-connection", "history-events")),
    *(("management", key) for key in ("enabled", "listen", "metrics", "plain-outside")),
    *(("cluster", key) for key in KEYS["cluster"] if key != "transfer-after"),
    ("cluster.tls", "ca"),
}
#: What the loaded settings carry, and what the composition root looks at by itself.
OTHERWISE = {
    *(("broker", key) for key in ("default-max-delivery-attempts", "uuid-namespace", "id-cache-size")),
    ("broker", "configuration-file-refresh-period"),
    ("limits", "log-lines-per-second"),
    ("management", "metrics-open"),
    *(("system-usage", key) for key in KEYS["system-usage"]),
}


def options_of_console(configuration: Configuration) -> object:
    """As they are made for each connection."""
    table: Any = None
    return console_options(table, configuration, 0, None, list)


def test_new_connections_are_what_frontends_are_told() -> None:
    """A session keeps the options that were there when it came; certificates are asked for at each handshake."""
    tls = {("tls", key) for key in KEYS["tls"]}
    tls |= {(table, key) for table in ("cluster.tls", "cluster.etcd-tls") for key in KEYS[table]} - {
        ("cluster.tls", "ca")
    }
    assert read_by(frontend_options, load_tls) | tls == keys_of(AT_CONNECTION)


def test_the_rest_is_the_engines_which_asks_its_options_each_time() -> None:
    """They are replaced as a whole; the console asks for its own whenever it needs them."""
    read = read_by(broker_options, lambda one: one.flow, options_of_console) - keys_of(
        AT_CONNECTION, RESTART
    )  # shown only
    assert read | OTHERWISE == keys_of(LIVE, ARRIVAL, AT_CREATION, AT_BINDING)


def test_a_restart_is_needed_for_what_is_opened_at_the_start() -> None:
    """The journal, sockets, files."""
    assert read_by(journal_options) | AT_START == keys_of(RESTART)


def test_every_key_is_of_one_of_these() -> None:
    """What means nothing here is asked for by nobody."""
    assert keys_of(MIXED) == {("broker", "profile")}
    told = read_by(frontend_options, load_tls, broker_options, journal_options)
    assert not keys_of(WITHOUT_MEANING) & (told | AT_START | OTHERWISE)


# ------------------------------------------------------------------------------------------------------- real brokers

ADMIN = "[[user]]\nname = 'admin'\npassword = 'a'\ntags = ['administrator']\n[[user.permission]]\nconfigure = '.*'\n"
MINE = ADMIN + "write = '.*'\nread = '.*'\n[[user]]\nname = 'u'\n"
GRANT = "[[user.permission]]\nconfigure = {}\nwrite = '.*'\nread = '.*'\n"


def load(text: str) -> Configuration:
    configuration, faults = load_configuration([("f.toml", text)])
    assert not faults, faults
    return configuration


def said(before: str, after: str) -> Lifetime | None:
    """What diff says of the one change that there is."""
    acts = {change.acts for change in differences(load(before), load(after))}
    assert len(acts) == 1, acts
    return acts.pop()


class Running:
    """A broker, and the file that it was started with."""

    def __init__(self, directory: Path, port: int) -> None:
        self._file = directory / "leveret.toml"
        self.port = port
        self._clients: list[Client] = []

    def reload(self, text: str, login: str = "guest:guest") -> None:
        self._file.write_text(text)
        self._file.chmod(0o600)
        request(f"amqp://{login}@127.0.0.1:{self.port}/", "reload", {})

    def connect(self, login: bytes = b"\0guest\0guest") -> Client:
        client = Client("127.0.0.1", self.port)
        self._clients.append(client)
        client.handshake(response=login)
        client.call("channel.open")
        return client

    def end(self) -> None:
        for client in self._clients:
            client.abort()


@contextmanager
def running(directory: Path, text: str) -> Iterator[Running]:
    directory.mkdir(exist_ok=True)
    (directory / "leveret.toml").touch(mode=0o600)
    with leveret_serve(directory, config=text) as process:
        broker = Running(directory, process.port)
        try:
            yield broker
        finally:
            broker.end()


def allows(client: Client, *calls: tuple[str, dict[str, Any]]) -> bool:
    """Whether all of this is answered with -ok, on a channel of its own."""
    client.call("channel.open", channel=9)
    for method, values in calls:
        values = dict(values)
        body = values.pop("body", None)
        if body is not None:
            client.publish("", values["routing_key"], body, channel=9)
            continue
        client.send(method, channel=9, **values)
        answer = client.read()
        if answer.name == "channel.close":
            client.send("channel.close-ok", channel=9)
        if answer.name in ("channel.close", "connection.close"):
            return False
    client.call("channel.close", channel=9)
    return True


BIG = ("basic.publish", {"routing_key": "p.q", "body": bytes(3000)})
QOS = ("basic.qos", {})


def takes_big_messages(client: Client) -> bool:
    return allows(client, BIG, QOS)


def takes_two_consumers(client: Client) -> bool:
    client.call("queue.declare", queue="p.q")
    return allows(client, *2 * [("basic.consume", {"queue": "p.q"})])


def takes_big_transactions(client: Client) -> bool:
    return allows(client, ("tx.select", {}), BIG, ("tx.commit", {}))


def gives_two_at_once(client: Client) -> bool:
    client.call("queue.declare", queue="p.two")
    client.publish("", "p.two", b"1")
    client.publish("", "p.two", b"2")
    is_given = True
    client.call("channel.open", channel=8)
    for _ in range(2):
        client.send("basic.get", channel=8, queue="p.two")
        if client.read().name == "channel.close":
            client.send("channel.close-ok", channel=8)
            is_given = False
    if is_given:
        client.call("channel.close", channel=8)
    client.call("queue.delete", queue="p.two")
    return is_given


def has_defined_queue(client: Client) -> bool:
    return allows(client, ("queue.declare", {"queue": "defined", "passive": True}))


def limit(line: str) -> str:
    return f"[limits]\n{line}\n"


@pytest.mark.parametrize(
    "before, after, looks",
    [
        ("", limit("message-size = 2000"), takes_big_messages),
        ("", limit("consumers-per-channel = 1"), takes_two_consumers),
        ("", limit("transaction-size = 2000"), takes_big_transactions),
        ("", limit("unacked-per-channel = 1"), gives_two_at_once),
        ("", "[broker]\ndefinitions = 'd.json'\n", has_defined_queue),
    ],
)
def test_keys(before: str, after: str, looks: Callable[[Client], bool], tmp_path: Path) -> None:
    """On a connection that was there, on a new one, or only in a new process."""
    queue = {"name": "defined", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    (tmp_path / "d.json").write_text(json.dumps({"queues": [queue]}))
    with running(tmp_path, before) as broker:
        old = broker.connect()
        at_first = looks(old)
        broker.reload(after)
        if looks(old) != at_first:
            shown = LIVE
        elif looks(broker.connect()) != at_first:
            shown = AT_CONNECTION
        else:
            shown = RESTART
    with running(tmp_path, after) as broker:
        assert looks(broker.connect()) != at_first
    assert said(before, after) is shown


@dataclass(frozen=True)
class Thing:
    """Something that is made by name, and then looked at: True or False."""

    make: Callable[[Client, str], object]
    looks: Callable[[Client, str], bool]


def declare(client: Client, name: str) -> None:
    client.call("queue.declare", queue=name)


def fill(client: Client, name: str) -> None:
    """A queue with three messages."""
    declare(client, name)
    for _ in range(3):
        client.publish("", name, b"m")


def has_three(client: Client, name: str) -> bool:
    return client.count(name)[0] == 3


def takes_two(client: Client, name: str) -> bool:
    return allows(client, *2 * [("basic.consume", {"queue": name})])


def bind(client: Client, name: str) -> None:
    declare(client, name)
    allows(client, ("queue.bind", {"queue": name, "exchange": "amq.fanout"}))


def is_reached(client: Client, name: str) -> bool:
    client.publish("amq.fanout", "", b"m")
    return client.take(name, no_ack=True).body == b"m" if client.count(name)[0] else False


def dies_nowhere(client: Client, name: str) -> bool:
    message = client.take(name)
    client.send("basic.reject", delivery_tag=message["delivery_tag"], requeue=False)
    return client.get("p.dead") is None


def publish(client: Client, name: str) -> None:
    declare(client, "p.from")
    declare(client, "p.dead")
    client.publish("", "p.from", name.encode())


def is_not_copied(client: Client, name: str) -> bool:
    return name.encode() not in client.bodies("p.dead")


def fill_and_prepare(client: Client, name: str) -> None:
    declare(client, "p.dead")
    fill(client, name)


def match(line: str) -> str:
    return f"[[address-setting]]\nmatch = 'p.#'\n{line}\n"


def policy(definition: str) -> str:
    return f"[[policy]]\nname = 'p'\npattern = '^p'\napply-to = 'queues'\ndefinition = {{ {definition} }}\n"


DIVERT = "[[divert]]\nname = 'd'\naddress = 'p.from'\nforwarding-address = 'p.dead'\n"


@pytest.mark.parametrize(
    "before, after, thing, when_new",
    [
        (match("no-expiry = false"), match("no-expiry = false\nexpiry-delay = 0"), Thing(fill, has_three), ARRIVAL),
        (
            match("no-expiry = false"),
            match("no-expiry = false\nmax-size-messages = 1"),
            Thing(fill, has_three),
            ARRIVAL,
        ),
        (
            match("dead-letter-address = ''"),
            match("dead-letter-address = 'p.dead'"),
            Thing(fill_and_prepare, dies_nowhere),
            LIVE,
        ),
        (
            match("default-max-consumers = 5"),
            match("default-max-consumers = 1"),
            Thing(declare, takes_two),
            AT_CREATION,
        ),
        ("", limit("bindings = 1"), Thing(bind, is_reached), AT_BINDING),
        ("", DIVERT, Thing(publish, is_not_copied), ARRIVAL),
        (policy("expires = 600000"), policy("expires = 600000, max-length = 1"), Thing(fill, has_three), LIVE),
    ],
)
def test_settings(before: str, after: str, thing: Thing, when_new: Lifetime, tmp_path: Path) -> None:
    """On what was there, or on what is made after the reload."""
    if "max-size" in after:
        before, after = before + "address-full-policy = 'DROP'\n", after + "address-full-policy = 'DROP'\n"
    with running(tmp_path, before) as broker:
        client = broker.connect()
        thing.make(client, "p.one")
        broker.reload(after)
        if not thing.looks(client, "p.one"):
            shown = LIVE
        else:
            thing.make(client, "p.two")
            shown = RESTART if thing.looks(client, "p.two") else when_new
    assert said(before, after) is shown


def test_a_message_ttl_of_a_policy(tmp_path: Path) -> None:
    """It is said by itself, and is for messages that arrive later."""
    before, after = policy("expires = 600000"), policy("expires = 600000, message-ttl = 0")
    changes = differences(load(before), load(after))
    assert [change.acts for change in changes] == [LIVE, ARRIVAL]
    with running(tmp_path, before) as broker:
        client = broker.connect()
        fill(client, "p.one")
        broker.reload(after)
        assert has_three(client, "p.one")
        fill(client, "p.two")
        assert not has_three(client, "p.two")


def test_a_declared_queue(tmp_path: Path) -> None:
    """What does not change in a queue that exists, changes when it was deleted and the file is loaded again."""
    before = "[[address]]\nname = 'q'\n[[address.queue]]\nname = 'q'\nmax-consumers = 2\n"
    after = before.replace("2", "1")
    assert said(before, after) is NEVER
    with running(tmp_path, before) as broker:
        client = broker.connect()
        broker.reload(after)
        assert takes_two(client, "q")
        client.call("queue.delete", queue="q")
        broker.reload(after)
        assert not takes_two(client, "q")


def test_a_queue_that_goes(tmp_path: Path) -> None:
    """Deleted, or kept, as diff says."""
    before = "[[address]]\nname = 'q'\n[[address.queue]]\nname = 'q'\n"
    forced = "[[address-setting]]\nmatch = 'q'\nconfig-delete-queues = 'FORCE'\n"
    kept = [str(change) for change in differences(load(before), load(""))]
    assert kept == ["queue 'q': no longer declared: stays, with config-delete-queues OFF"]
    gone = [str(change) for change in differences(load(before), load(forced))]
    assert gone[1:] == ["queue 'q': no longer declared: deleted with its messages (at once)"]
    with running(tmp_path, before) as broker:
        client = broker.connect()
        broker.reload("")
        assert client.count("q") == (0, 0)
        broker.reload(before)
        broker.reload(forced)
        assert not allows(client, ("queue.declare", {"queue": "q", "passive": True}))


def test_users(tmp_path: Path) -> None:
    """Permissions at once, passwords for new connections; one that is gone is sent away."""
    first = MINE + "password = 'one'\n" + GRANT.format("'.*'")
    other_password = first.replace("'one'", "'two'")
    less = other_password.replace("'u'\n", "'u'\n", 1).replace(GRANT.format("'.*'"), GRANT.format("''"))
    assert said(first, other_password) is AT_CONNECTION
    assert said(other_password, less) is LIVE
    assert said(less, ADMIN + "write = '.*'\nread = '.*'\n") is LIVE
    with running(tmp_path, first) as broker:
        client = broker.connect(b"\0u\0one")
        broker.reload(other_password, "admin:a")
        declare(client, "p.mine")
        broker.connect(b"\0u\0two")
        with pytest.raises(AssertionError, match=r"connection\.close"):
            broker.connect(b"\0u\0one")
        broker.reload(less, "admin:a")
        assert not allows(client, ("queue.declare", {"queue": "p.other"}))
        broker.reload(ADMIN + "write = '.*'\nread = '.*'\n", "admin:a")
        with pytest.raises((Eof, AssertionError)):
            declare(client, "p.mine")


def test_a_live_diff_reads_a_pipe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked is what the broker gets: a pipe is empty when it is read again."""
    text = '[[queue]]\nname = "q"\n'
    read_end, write_end = os.pipe()
    os.write(write_end, text.encode())
    os.close(write_end)
    sent: list[Any] = []

    def answered(url: str, command: str, arguments: dict[str, Any], **_: Any) -> Any:
        sent.append(arguments)
        return {"changes": [], "queues": [], "more": 0}

    monkeypatch.setattr(control_client, "request", answered)
    options = Namespace(files=[f"/dev/fd/{read_end}"], live=True, url=None, json=False)
    monkeypatch.setattr(diff_command, "context_of", lambda options: None)
    try:
        assert diff_command.run(options) == diff_command.EXIT_SAME
    finally:
        os.close(read_end)
    assert sent == [{"files": [[f"/dev/fd/{read_end}", text]]}]
