"""`leveret ctl users`, `permissions`, `topic-permissions`, `vhosts`: what they do, and what they refuse."""

import json
from dataclasses import fields
from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import method, publish

from leveret.engine import NO_PASSWORD, User, hash_password
from leveret.operator.command_error import CommandError
from leveret.operator.control import EXCHANGE, ControlTable

SECRET = "correct horse battery staple"


class Ruled:
    """A broker with guest connected, and its control table."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.table = ControlTable()
        self.table.operator.attach(self.pair.broker)

    def __call__(self, command: str, action: str, **arguments: Any) -> Any:
        """Arguments have underscores for dashes."""
        said = {key.replace("_", "-"): value for key, value in arguments.items()}
        answer = self.table.run(command, {"action": action, **said})
        self.pair.end_turn()
        json.dumps(answer)
        return answer

    def user(self, name: str) -> User:
        """One that is there."""
        found = self.pair.broker.users.find(name)
        assert found is not None
        return found


@pytest.fixture
def ctl() -> Ruled:
    """A fresh one."""
    return Ruled()


def test_a_user_comes_changes_and_goes(ctl: Ruled) -> None:
    """Without permissions at first; password, tags and limits later."""
    ctl("users", "add", name="a", password=SECRET, tags="monitoring, management")
    assert ctl.user("a").password.is_right(SECRET)
    assert ctl.user("a").tags == ("monitoring", "management")
    assert ctl.user("a").permissions == {}
    ctl("users", "passwd", name="a", password="other")
    assert ctl.user("a").password.is_right("other")
    ctl("users", "passwd", name="a", password_hash="kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
    assert ctl.user("a").password.is_right("test12")
    ctl("users", "tags", name="a", tags="")
    assert ctl.user("a").tags == ()
    ctl("users", "limits", name="a", max_connections="3", max_channels=4)
    assert ctl("users", "limits", name="a", max_channels="-1")["max_connections"] == 3
    assert (ctl.user("a").max_connections, ctl.user("a").max_channels) == (3, None)
    assert [user["name"] for user in ctl("users", "list")] == ["guest", "a"]
    assert ctl("users", "delete", name="a") == {"name": "a", "connections_closed": 0}
    assert ctl.pair.broker.users.find("a") is None


def test_each_command_leaves_the_rest_of_a_user(ctl: Ruled) -> None:
    """A new password keeps tags, limits, permissions, and topic permissions, in all virtual hosts; so do the others."""
    ctl("vhosts", "add", name="v")
    ctl("users", "add", name="a", password=SECRET, tags="monitoring")
    ctl("users", "limits", name="a", max_connections=3, max_channels=0)
    for vhost in ("/", "v"):
        ctl("permissions", "set", user="a", vhost=vhost, configure="c", write="w", read="r")
    for exchange in ("amq.topic", "other"):
        ctl("topic-permissions", "set", user="a", exchange=exchange, write="w", read="r")
    before = ctl.user("a")
    assert (before.max_connections, before.max_channels) == (3, 0)
    assert len(ctl("permissions", "list", user="a")) == len(ctl("topic-permissions", "list")) == 2
    for command, action, arguments, changed in (
        ("users", "passwd", {"name": "a", "password": "p"}, ("password",)),
        ("users", "tags", {"name": "a", "tags": "management"}, ("tags",)),
        ("users", "limits", {"name": "a", "max_channels": 9}, ("max_channels",)),
        ("users", "replace", {"name": "a", "password": "q", "tags": "policymaker"}, ("password", "tags")),
        ("permissions", "set", {"user": "a", "configure": "d", "write": "w", "read": "r"}, ("permissions",)),
        ("permissions", "clear", {"user": "a"}, ("permissions", "topics_before_permissions")),
    ):
        before = ctl.user("a")
        ctl(command, action, **arguments)
        after = ctl.user("a")
        assert {one.name for one in fields(User) if getattr(before, one.name) != getattr(after, one.name)} == {*changed}
    assert [row["vhost"] for row in ctl("permissions", "list", user="a")] == ["v"]
    assert len(ctl("topic-permissions", "list")) == 2


def test_a_user_without_a_password(ctl: Ruled) -> None:
    """Replaced without one: nobody logs in by a password."""
    assert ctl("users", "replace", name="a", password="p", tags="")["created"]
    assert not ctl("users", "replace", name="a", tags="")["created"]
    assert ctl.user("a").password == NO_PASSWORD


def test_connections_that_end_are_counted(ctl: Ruled) -> None:
    """Of a user, and of a virtual host; those of others stay."""
    ctl("users", "add", name="a", password=SECRET, vhost="/")
    ctl("vhosts", "add", name="v")
    ctl("permissions", "set", user="a", vhost="v", configure="", write="", read="")
    connections = ctl.pair.broker.connections
    for vhost in ("/", "v"):
        connections.open(vhost, ctl.user("a"), name=vhost, flush=lambda: None)
    assert [row["connections"] for row in ctl("vhosts", "list")] == [1, 1]
    assert ctl("vhosts", "delete", name="v")["connections_closed"] == 1
    assert ctl("users", "delete", name="a")["connections_closed"] == 1
    assert not connections


def test_permissions_are_set_listed_and_cleared(ctl: Ruled) -> None:
    """Topic permissions stay when the three patterns change, and are cleared by their own command."""
    ctl("users", "add", name="a", password="p")
    ctl("permissions", "set", user="a", configure="^a", write=".*", read="")
    ctl("topic-permissions", "set", user="a", exchange="amq.topic", write="^a", read="^b")
    ctl("permissions", "set", user="a", vhost="/", configure="^b", write=".*", read="")
    assert ctl("permissions", "list", user="a") == [
        {"user": "a", "vhost": "/", "configure": "^b", "write": ".*", "read": ""}
    ]
    assert ctl("topic-permissions", "list", user="a") == [
        {"user": "a", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": "^b"}
    ]
    ctl("topic-permissions", "clear", user="a", exchange="amq.topic")
    assert ctl("topic-permissions", "list") == []


def test_topic_permissions_before_permissions(ctl: Ruled) -> None:
    """They wait, open nothing, and are in force with the permissions; without these they wait again."""
    ctl("users", "add", name="a", password=SECRET)
    topic = {"user": "a", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": "^b"}
    ctl("topic-permissions", "set", user="a", exchange="amq.topic", write="^a", read="^b")
    assert ctl("topic-permissions", "list") == [topic]
    assert ctl("permissions", "list", user="a") == []
    assert ctl.user("a").permissions == {}
    ctl("permissions", "set", user="a", configure="", write=".*", read=".*")
    permissions = ctl.user("a").permissions
    assert permissions is not None and permissions["/"].grant.topics["amq.topic"].write == "^a"
    assert ctl("topic-permissions", "list") == [topic]
    ctl("permissions", "clear", user="a")
    assert (ctl.user("a").permissions, ctl("topic-permissions", "list")) == ({}, [topic])
    ctl("topic-permissions", "clear", user="a")
    assert ctl.user("a").topics_before_permissions == {}


def test_waiting_topic_permissions_go_with_their_virtual_host(ctl: Ruled) -> None:
    """Nothing of them is there when another one gets its name."""
    ctl("users", "add", name="a", password=SECRET)
    ctl("vhosts", "add", name="gone")
    ctl("topic-permissions", "set", user="a", vhost="gone", exchange="amq.topic", write="", read="")
    ctl("vhosts", "delete", name="gone")
    assert ctl("topic-permissions", "list") == []
    ctl("permissions", "clear", user="a")
    assert ctl("permissions", "list", user="a") == []


def test_who_may_everything_everywhere_is_written_out_when_it_is_changed(ctl: Ruled) -> None:
    """The default guest: all permissions in each virtual host, then in each but the one that was changed."""
    ctl("vhosts", "add", name="v")
    assert [row["vhost"] for row in ctl("permissions", "list", user="guest")] == ["/", "v"]
    ctl("permissions", "clear", user="guest", vhost="v")
    assert [row["vhost"] for row in ctl("permissions", "list", user="guest")] == ["/"]


def test_virtual_hosts(ctl: Ruled) -> None:
    """Added, limited, listed, deleted."""
    ctl("vhosts", "add", name="v")
    ctl("vhosts", "limits", name="v", max_queues="5")
    assert ctl("vhosts", "list")[1] == {
        "name": "v",
        "connections": 0,
        "queues": 0,
        "max_connections": None,
        "max_queues": 5,
        "default_queue_type": None,
        "tracing": False,
    }
    assert ctl("vhosts", "delete", name="v") == {"name": "v", "connections_closed": 0}
    assert "v" not in ctl.pair.broker.virtual_hosts


def test_each_command_leaves_the_rest_of_a_virtual_host(ctl: Ruled) -> None:
    """One that is there is not changed by `add`; limits keep the type of queues, and the type the limits."""
    ctl("vhosts", "add", name="v", default_queue_type="quorum")
    ctl("vhosts", "add", name="v", default_queue_type="stream")
    ctl("vhosts", "limits", name="v", max_queues=0)
    ctl("vhosts", "limits", name="v", max_connections=7)
    ctl("vhosts", "add", name="v")
    shown = ctl("vhosts", "list")[1]
    assert [shown[name] for name in ("default_queue_type", "max_queues", "max_connections")] == ["quorum", 0, 7]
    ctl("vhosts", "default-queue-type", name="v", type="stream")
    ctl.table.run("trace-on", {"vhost": "v"})
    assert [row["tracing"] for row in ctl("vhosts", "list")] == [False, True]
    shown = ctl("vhosts", "list")[1]
    assert [shown[name] for name in ("default_queue_type", "max_queues", "max_connections")] == ["stream", 0, 7]


@pytest.mark.parametrize(
    "command, action, arguments, why",
    [
        ("users", "add", {"name": "guest", "password": "p"}, "exists already"),
        ("users", "add", {"name": "", "password": "p"}, "expected name=NAME"),
        ("users", "add", {"name": "x" * 256, "password": "p"}, "expected name=NAME"),
        ("users", "add", {"name": "x"}, "expected either a password or password-hash"),
        ("users", "add", {"name": "x", "password": ""}, "must be text that is not empty"),
        ("users", "add", {"name": "x", "password": SECRET, "password-hash": SECRET}, "expected either"),
        ("users", "add", {"name": "x", "password-hash": SECRET}, "expected the base64 text of 36 octets"),
        ("users", "add", {"name": "x", "password-hash": "", "hashing-algorithm": "rot13"}, "expected one of"),
        ("users", "add", {"name": "x", "password": SECRET, "tags": 5}, "tags must be"),
        ("users", "add", {"name": "x", "password": SECRET, "color": "red"}, "unknown argument 'color'"),
        ("users", "fly", {}, "unknown action 'fly', expected one of list, add, delete"),
        ("users", "delete", {"name": "nobody"}, "no user 'nobody'"),
        ("users", "limits", {"name": "guest", "max-channels": "few"}, "max-channels must be a number"),
        (
            "permissions",
            "set",
            {"user": "guest", "configure": "(", "write": "", "read": ""},
            "configure: '(' missing )",
        ),
        ("permissions", "set", {"user": "guest", "configure": ""}, "expected write=PATTERN"),
        (
            "permissions",
            "set",
            {"user": "guest", "vhost": "no", "configure": "", "write": "", "read": ""},
            "no virtual host 'no'",
        ),
        ("topic-permissions", "set", {"user": "guest", "write": "", "read": ""}, "expected exchange=TEXT"),
        ("vhosts", "delete", {"name": "no"}, "no virtual host 'no'"),
        ("vhosts", "limits", {"name": "/", "max-queues": "1.5"}, "max-queues must be a number"),
    ],
)
def test_what_is_refused_and_changes_nothing(
    ctl: Ruled, command: str, action: str, arguments: dict[str, Any], why: str
) -> None:
    """A clear sentence, without the password."""
    before = list(ctl.pair.broker.users)
    with pytest.raises(CommandError) as refused:
        ctl.table.run(command, {"action": action, **arguments})
    assert why in str(refused.value)
    assert SECRET not in str(refused.value)
    assert list(ctl.pair.broker.users) == before


def test_who_deletes_himself_hears_that_it_was_done_and_then_goodbye() -> None:
    """The answer leaves before connection.close 320 does."""
    table = ControlTable()
    pair = Pair(broker={"services": {EXCHANGE: table.handle}})
    table.operator.attach(pair.broker)
    peer = pair.open()
    queue = peer.call(1, C.Queue.Declare, queue="", exclusive=True).queue
    peer.call(1, C.Basic.Consume, queue=queue, consumer_tag="t", no_ack=True)
    request = json.dumps({"command": "users", "arguments": {"action": "delete", "name": "guest"}})
    peer.send(publish(1, "", request.encode(), exchange=EXCHANGE, reply_to=queue))
    pair.end_turn()
    delivered, closed = peer.take()
    assert isinstance(delivered.frame, C.Basic.Deliver)
    assert isinstance(closed.frame, C.Connection.Close)
    assert (closed.frame.reply_code, closed.frame.reply_text) == (320, "CONNECTION_FORCED - user 'guest' is deleted")
    assert not pair.broker.connections


def test_a_revoked_permission_holds_with_the_next_publish() -> None:
    """Routes are kept by connections; permissions count as topology, so they are looked up anew."""
    pair = Pair()
    table = ControlTable()
    table.operator.attach(pair.broker)
    peer = pair.open()
    peer.call(1, C.Queue.Declare, queue="q")
    queue = pair.broker.virtual_hosts["/"].queues["q"]
    for _ in range(3):
        peer.send(publish(1, "q", b"x"))
    assert queue.ready_count == 3
    arguments = {"action": "set", "user": "guest", "configure": ".*", "write": "^other$", "read": ".*"}
    table.run("permissions", arguments)
    peer.send(publish(1, "q", b"x"))
    (closed,) = peer.take()
    assert isinstance(closed.frame, C.Channel.Close)
    assert closed.frame.reply_code == 403
    assert queue.ready_count == 3


def test_the_hash_that_is_kept_is_salted(ctl: Ruled) -> None:
    """The same password twice is not the same hash."""
    ctl("users", "add", name="a", password=SECRET)
    ctl("users", "add", name="b", password=SECRET)
    assert ctl.user("a").password != ctl.user("b").password
    assert ctl.user("a").password != hash_password(SECRET, bytes(4))


def test_nothing_is_asked_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand publishes in many reads: one question for their route, none for the messages, deliveries and acks."""
    asked: list[str] = []
    pair = Pair()
    table = ControlTable()
    table.operator.attach(pair.broker)
    arguments = {"action": "set", "user": "guest", "configure": "^q$", "write": "^amq", "read": "^q$"}
    table.run("permissions", arguments)
    peer = pair.open()
    peer.call(1, C.Queue.Declare, queue="q")
    peer.call(1, C.Basic.Consume, queue="q", consumer_tag="t")
    may = User.may
    monkeypatch.setattr(User, "may", lambda self, *what: asked.append(what[0]) or may(self, *what))
    for _ in range(100):
        peer.send(b"".join(publish(1, "q", b"x") for _ in range(10)))
        last = peer.take()[-1].frame.delivery_tag
        peer.send(method(1, C.Basic.Ack, delivery_tag=last, multiple=True))
    assert last == 1000
    assert asked == ["write"]
