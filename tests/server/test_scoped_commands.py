"""Commands of operators for queues that only some nodes of a cluster see: under their full names, at any node.

Source: cluster page 12.
"""

from typing import Any

import pytest
from desk import VirtualDesk

from leveret.engine import Client, Envelope, Field, Permissions, User
from leveret.engine.errors import InvalidArgument
from leveret.engine.publishing.arrival import publish_by_name
from leveret.engine.users.permissions import Grant
from leveret.operator.command_error import CommandError
from leveret.testing.harness import arguments_of, messages

GROUPS = dict.fromkeys(("n1", "n2", "n3"), "")
DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead", "x_max_deliveries": 1}


def of_files(desk: VirtualDesk, site: str, name: str, **arguments: Any) -> None:
    """The files of a node declare a leased queue."""
    table = {"x-queue-type": Field("S", b"amps"), **arguments_of(arguments)}
    desk.vhost.queues.declare(name, client=None, durable=True, arguments=table, site=site)


@pytest.fixture
def desk() -> VirtualDesk:
    """The leader is n1. Each node has its own `q`, n2 and n3 have `g`, all have `d`."""
    desk = VirtualDesk('[[queue]]\nname = "dead"\n', site="n1", groups=GROUPS)
    for site in GROUPS:
        of_files(desk, site, "q", x_replication="local", x_queue_filter="a = 1", **DEAD)
    for site in ("n2", "n3"):
        of_files(desk, site, "g", x_replication="group", x_initial_owner="n3", x_queue_domain="X")
    of_files(desk, "n3", "d", x_replication="distributed")
    return desk


FULL_NAMES = ["q@n1", "q@n2", "q@n3", "g@X", "d"]


def ready(desk: VirtualDesk) -> dict[str, int]:
    """Queues with messages that are ready."""
    return {name: queue.ready_count for name, queue in desk.vhost.queues.items() if queue.ready_count}


def publish(desk: VirtualDesk, name: str, **headers: Any) -> Any:
    properties = {"headers": {"a": 1, **headers}}
    return desk.command("publish", exchange="", **{"routing-key": name}, payload="x", properties=properties)


@pytest.mark.parametrize("name", FULL_NAMES)
def test_a_publish_to_a_full_name_is_captured_by_that_queue(desk: VirtualDesk, name: str) -> None:
    """And `route` says so. The message is of the topic of the queue, as if a client of its node had published it."""
    (row,) = desk.command("route", exchange="", **{"routing-key": name}, properties={"headers": {"a": 1}})["queues"]
    assert (row["queue"], row["how"]) == (name, "by its topic")
    assert publish(desk, name) == {"routed": True}
    assert ready(desk) == {name: 1}
    (got,) = desk.command("get", queue=name)
    assert got["properties"]["headers"]["x-topic"] == name.partition("@")[0]


def test_a_queue_that_the_leader_does_not_host_is_reached(desk: VirtualDesk) -> None:
    """Its files have another filter."""
    with pytest.raises(InvalidArgument, match="E-MISMATCH"):
        of_files(desk, "n1", "d", x_replication="distributed", x_queue_filter="b = 1")
    assert publish(desk, "d") == {"routed": True}
    assert ready(desk) == {"d": 1}


@pytest.mark.parametrize(
    ("name", "more"), [("new@n2", {}), ("new@Y", {"x-queue-domain": "Y", "x-initial-owner": "n2"})]
)
def test_an_operator_declares_a_queue_by_its_full_name(desk: VirtualDesk, name: str, more: dict[str, str]) -> None:
    """It is the one that the files of the node, or its clients, declare."""
    arguments = {"x-queue-type": "amps", "x-replication": "group" if more else "local", **more}
    for is_new in (True, False):
        said = desk.command("declare-queue", queue=name, durable=True, arguments=arguments)
        assert said["created"] is is_new
    of_files(desk, "n2", "new", **{key.replace("-", "_"): value for key, value in arguments.items()})
    client = Client(desk.vhost, User("guest"), "c", lambda: None, {}, site="n2")
    assert desk.vhost.queues.seen("new", client) is desk.vhost.queues[name]
    assert [full_name for full_name in desk.vhost.queues if full_name.startswith("new")] == [name]


def test_a_route_is_that_of_a_publish(desk: VirtualDesk) -> None:
    """A short name is that of the leader's own queue; a name of no queue leads nowhere."""
    for name, expected in (("q", ["q@n1"]), ("g", []), ("q@n9", [])):
        found = desk.command("route", exchange="", **{"routing-key": name}, properties={"headers": {"a": 1}})
        assert [row["queue"] for row in found["queues"]] == expected
        assert publish(desk, name) == {"routed": bool(expected)}
    assert ready(desk) == {"q@n1": 1}


@pytest.mark.parametrize("into", ["exchange", "queue"])
def test_dead_letters_go_back_to_the_node_where_they_died(desk: VirtualDesk, into: str) -> None:
    """Not to the leader's queue of that name."""
    publish(desk, "q@n2")
    desk.command("get", queue="q@n2", ackmode="reject_requeue_false")
    assert ready(desk) == {"dead": 1}
    desk.command("replay", queue="dead", to=into)
    desk.advance_ms(1000)
    assert ready(desk) == {"q@n2": 1}


def test_messages_move_into_a_queue_of_another_node(desk: VirtualDesk) -> None:
    """From a queue of all nodes."""
    publish(desk, "dead")
    desk.command("move", queue="dead", **{"to-queue": "q@n3"})
    desk.advance_ms(1000)
    assert ready(desk) == {"q@n3": 1}


def test_all_of_a_nodes_own_queue_is_the_nodes(desk: VirtualDesk) -> None:
    """`owners` counts it for that node, also while it is away; a queue without nodes has no owners."""
    publish(desk, "q@n2")
    (row,) = desk.command("owners", queue="q@n2")
    assert (row["node"], row["ready"], row["stranded"], row["waits_for"]) == ("n2", 1, 0, "a consumer at n2 with room")
    desk.pair.broker.sites.went("n2")
    desk.advance_ms(3000)
    (row,) = desk.command("owners", queue="q@n2")
    assert (row["is_there"], row["ready"], row["stranded"]) == (False, 0, 1)
    assert row["waits_for"] == "node n2, which is not there"
    desk.declare("plain", x_queue_type="amps")
    with pytest.raises(CommandError, match="no owners"):
        desk.command("owners", queue="plain")


def test_a_look_at_messages_leaves_them_to_their_nodes(desk: VirtualDesk) -> None:
    """`get` shows those of all nodes, whatever the backlog of a node, and puts them back; what it takes is gone."""
    of_files(desk, "n2", "e", x_replication="distributed", x_max_backlog_total=1)
    for site in ("n3", "n2", "n1"):
        with desk.pair.broker.sites.at(site):
            summary, contents = messages([site], {})
            publish_by_name(desk.vhost.context, Envelope("", "e", summary), contents)

    def owned() -> dict[str, int]:
        return {row["node"]: row["ready"] for row in desk.command("owners", queue="e")}

    for ackmode in ("ack_requeue_true", "reject_requeue_true"):
        assert [row["payload"] for row in desk.command("get", queue="e", count=5, ackmode=ackmode)] == [
            "n3",
            "n2",
            "n1",
        ]
        assert owned() == {"n1": 1, "n2": 1, "n3": 1}
    desk.command("get", queue="e", ackmode="ack_requeue_false")
    assert owned() == {"n1": 1, "n2": 1, "n3": 0}


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("get", {}),
        ("browse", {}),
        ("purge", {}),
        ("delete-queue", {}),
        ("leases", {}),
        ("owners", {}),
        ("pause", {}),
        ("discard", {"filter": "a = 1"}),
        ("move", {"to-queue": "d"}),
        ("scheduled", {"action": "list"}),
    ],
)
def test_a_short_name_is_answered_with_full_names(desk: VirtualDesk, command: str, more: dict[str, str]) -> None:
    """Operators are at no node."""
    with pytest.raises(CommandError, match="no queue 'q'.*: operators call it q@n1, q@n2, q@n3$"):
        desk.command(command, queue="q", **more)


@pytest.mark.parametrize("name", ["a@b", "a@n1", "@n1", "a@", "a@b@c"])
@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "amps"}, {"x-replication": "distributed"}])
def test_a_name_may_have_the_sign_without_a_scope(desk: VirtualDesk, name: str, arguments: dict[str, str]) -> None:
    """Such a queue is there for all nodes, by that name; the queue of a node beside it has the node's name as well."""
    if arguments:
        arguments = {"x-queue-type": "amps", **arguments}
    desk.command("declare-queue", queue=name, durable=True, arguments=arguments)
    clients = {site: Client(desk.vhost, User("guest"), "c", lambda: None, {}, site=site) for site in GROUPS}
    assert {desk.vhost.queues.seen(name, client) for client in clients.values()} == {desk.vhost.queues[name]}
    assert publish(desk, name) == {"routed": True} and ready(desk) == {name: 1}
    of_files(desk, "n2", name, x_replication="local")
    publish(desk, f"{name}@n2")
    assert ready(desk) == {name: 1, f"{name}@n2": 1}
    assert desk.vhost.queues.seen(name, clients["n2"]) is desk.vhost.queues[f"{name}@n2"]
    assert desk.command("delete-queue", queue=name)["messages"] == 1
    assert ready(desk) == {f"{name}@n2": 1}


@pytest.mark.parametrize("command", ["purge", "delete-queue"])
def test_an_operator_empties_the_queue_that_is_named(desk: VirtualDesk, command: str) -> None:
    """The others keep theirs."""
    for name in FULL_NAMES:
        publish(desk, name)
    assert desk.command(command, queue="q@n2")["messages"] == 1
    assert ready(desk) == dict.fromkeys(("q@n1", "q@n3", "g@X", "d"), 1)


def test_a_declaration_needs_the_permissions_of_the_name_that_the_client_says() -> None:
    """Its dead letters, too: not those of the full name, which the client does not know."""
    user = User("u", permissions={"/": Permissions(Grant("^q$", "^$|amq.default", "^q$"), user="u", vhost="/")})
    desk = VirtualDesk(site="n1", groups=GROUPS)
    client = Client(desk.vhost, user, "c", lambda: None, {}, site="n2")
    table = {"x-queue-type": Field("S", b"amps"), **arguments_of({"x_replication": "local", **DEAD})}
    assert desk.vhost.queues.declare("q", client=client, durable=True, arguments=table).name == "q@n2"
