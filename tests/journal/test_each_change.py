"""Each kind of change that survives restarts: its answer waits for its record, and a kill behind that finds it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulated_files import SimulatedFiles

from leveret.engine import MS, Grant, Permissions, TopicPermission, User, VirtualHostLimits
from leveret.journal.recording import checkpoint as stating
from leveret.settings import Origin, Policies, make_policy
from leveret.testing.harness import Harness, arguments_of

GRANT = Grant("^c", "^w", "^r", {"amq.topic": TopicPermission("^a", "^b")})
ANN = User(
    "ann",
    tags=("b", "a"),
    loopback_only=True,
    permissions={"/": Permissions(GRANT, user="ann", vhost="/")},
    max_connections=3,
    max_channels=5,
    topics_before_permissions={"other": {"x": TopicPermission("^c", "^d")}},
)
POLICY = make_policy("p", "/", "^nothing$", {"max-length": 3}, apply_to="queues", priority=7)
OPERATORS = make_policy("p", "/", "^nothing$", {"max-length": 4}, priority=-2, is_operator=True)

Act = Callable[[Harness], object]


def _policies(*policies: Any) -> Act:
    return lambda world: world.broker.reloading.replace_policies(Policies(policies))


def _limit(limits: VirtualHostLimits) -> Act:
    return lambda world: world.broker.virtual_hosts.limit(world.broker.virtual_hosts["v"], limits)


def _bound(*, to: str, source: str = "x", removes: bool = False) -> Act:
    kind, name = to.split()

    def act(world: Harness) -> None:
        bindings = world.vhost.bindings
        (bindings.remove if removes else bindings.add)(kind, name, source, "k", arguments_of({"x_match": "all"}))

    return act


def _declare_without_right(world: Harness) -> None:
    """Its dead letters may not create queues, as the client that declared it may not."""
    user = User("few", permissions={"/": Permissions(Grant("^few$", ".*", ".*"), user="few", vhost="/")})
    world.broker.connections.replace_user(user)
    client = world.broker.connections.open("/", user, name="few", flush=lambda: None)
    world.queue("few", client=client, x_dead_letter_address="elsewhere")
    client.close()


#: Each in the order given, on one broker; the first ones make what later ones change.
CHANGES: list[tuple[str, Act]] = [
    ("queue declared", lambda world: world.queue("made", x_max_length=4)),
    ("queue auto-created", lambda world: world.vhost.queues.create("auto", address="other", is_auto_created=True)),
    ("queue that makes none", _declare_without_right),
    ("exchange declared", lambda world: world.vhost.exchanges.declare("x", "headers", durable=True, internal=True)),
    (
        "exchange that deletes itself",
        lambda world: world.vhost.exchanges.declare("y", "topic", durable=True, auto_delete=True),
    ),
    ("bound to a queue", _bound(to="queue made")),
    ("bound to an exchange", _bound(to="exchange y")),
    ("unbound from a queue", _bound(to="queue made", removes=True)),
    ("unbound from an exchange", _bound(to="exchange y", removes=True)),
    ("bound to a predefined exchange", _bound(to="exchange amq.fanout")),
    ("unbound from a predefined exchange", _bound(to="exchange amq.fanout", removes=True)),
    ("bound from a predefined exchange", _bound(to="queue made", source="amq.topic")),
    ("unbound where a predefined exchange is the source", _bound(to="queue made", source="amq.topic", removes=True)),
    ("virtual host made", lambda world: world.broker.virtual_hosts.create("v")),
    ("virtual host limited", _limit(VirtualHostLimits(3, 4, "quorum"))),
    ("virtual host of the configuration", _limit(VirtualHostLimits(5, 6, is_configured=True))),
    ("user added", lambda world: world.broker.connections.replace_user(ANN)),
    ("user changed", lambda world: world.broker.connections.replace_user(replace(ANN, max_connections=4))),
    ("policy set", _policies(POLICY)),
    ("policy of operators set", _policies(POLICY, OPERATORS)),
    ("policy deleted", _policies(OPERATORS)),
    ("policy of operators deleted", _policies()),
    ("parameter set", lambda world: world.broker.parameters.set(("/", "c", "n"), {"a": [1]})),
    ("parameter of none set", lambda world: world.broker.parameters.set(("", "", "n"), "text")),
    ("parameter deleted", lambda world: world.broker.parameters.remove(("/", "c", "n"))),
    ("parameter of none deleted", lambda world: world.broker.parameters.remove(("", "", "n"))),
    ("message published", lambda world: world.publish("a", key="made", delivery_mode=2)),
    ("message delayed", lambda world: world.publish("b", key="made", headers={"x-delay": 60_000}, delivery_mode=2)),
    ("message got", lambda world: world.take(1, "made")),
    ("queue purged", lambda world: world.named("made").purge()),
    ("notes of a queue's kind", lambda world: world.named("made").events.notes_changed()),
    ("bound to a queue again", _bound(to="queue made")),
    ("bound to an exchange again", _bound(to="exchange y")),
    ("queue deleted", lambda world: world.vhost.queues.delete("made", world.client)),
    ("exchange deleted that was bound", lambda world: world.vhost.exchanges.delete("y")),
    ("exchange deleted", lambda world: world.vhost.exchanges.delete("x")),
    ("user deleted", lambda world: world.broker.connections.delete_user("ann")),
    ("virtual host deleted", lambda world: world.broker.virtual_hosts.delete("v")),
]
#: They change nothing that the journal has to keep: what the configuration says is there again at each start.
OF_CONFIGURATION = {"virtual host of the configuration"}


def state(world: Harness) -> dict[str, Any]:
    """All that a restart restores."""
    broker = world.broker
    return {
        "queues": {
            (vhost.name, queue.name): (
                queue.arguments,
                queue.address,
                queue.is_auto_created,
                queue.may_make_queues,
                [(one.id, one.body, one.deliveries) for one in queue.messages()],
                [due_ns // MS for due_ns, _ in queue.scheduled.entries()],
            )
            for vhost in broker.virtual_hosts.values()
            for queue in vhost.queues.values()
        },
        "exchanges": {
            (vhost.name, one.name): (one.type, one.auto_delete, one.internal, one.arguments)
            for vhost in broker.virtual_hosts.values()
            for one in vhost.exchanges.values()
        },
        "bindings": {
            (vhost.name, one.name, binding.destination.name, binding.routing_key, str(binding.arguments))
            for vhost in broker.virtual_hosts.values()
            for one in vhost.exchanges.values()
            for binding in one.bindings.values()
        },
        "limits": {
            vhost.name: None if vhost.context.limits.is_configured else vhost.context.limits
            for vhost in broker.virtual_hosts.values()
        },
        "users": {
            user.name: (
                replace(user, permissions=None),
                None if user.permissions is None else {host: one.grant for host, one in user.permissions.items()},
            )
            for user in broker.users
        },
        "policies": list(broker.context.policies),
        "parameters": dict(broker.parameters),
    }


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_each_change_is_awaited_and_there_after_a_kill(has_checkpoint: bool) -> None:
    """With its record alone, and with a checkpoint that states it anew."""
    world = Harness(journal=SimulatedFiles())
    for name, act in CHANGES:
        before = world.broker.context.turn.records
        world.ends_turns = False
        act(world)
        if name not in OF_CONFIGURATION:
            assert world.broker.context.turn.records > before, name
        world.ends_turns = True
        world.end_turn()
        if has_checkpoint:
            world.checkpoint()
        found = state(world)
        world.kill()
        restored = state(world)
        if name in OF_CONFIGURATION:
            found["limits"]["v"] = VirtualHostLimits()
        for part, value in found.items():
            assert restored[part] == value, (name, part)


def test_each_change_of_an_object_is_awaited_while_the_disk_is_full() -> None:
    """It has no record: its answer waits until a checkpoint has stated it."""
    world = Harness(journal=SimulatedFiles())
    world.ends_turns = False
    world.recorder.fail(for_good=False)
    for name, act in CHANGES:
        if not name.startswith("message") and name not in {*OF_CONFIGURATION, "queue purged"}:
            before = world.broker.context.turn.records
            act(world)
            assert world.broker.context.turn.records > before, name


@pytest.mark.parametrize("first", range(30))
def test_changes_between_the_slices_of_a_checkpoint(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many objects it is long: what comes, changes and goes in the meantime is there, or not, after a kill."""
    monkeypatch.setattr(stating, "OBJECTS_SLICE", 1)
    world = Harness(journal=SimulatedFiles())
    for number in range(5):
        world.queue(f"q{number}")
        world.vhost.exchanges.declare(f"e{number}", "topic", durable=True)
        world.vhost.bindings.add("queue", f"q{number}", f"e{number}", "k", {})
        world.vhost.bindings.add("queue", f"q{number}", "amq.topic", f"k{number}", {})
    going: list[Act] = [
        lambda world: world.vhost.queues.delete("q4", world.client),
        lambda world: world.vhost.queues.delete("q3", world.client),
        lambda world: world.vhost.exchanges.delete("e4"),
        lambda world: world.vhost.bindings.remove("queue", "q2", "amq.topic", "k2", {}),
        lambda world: world.queue("q3", x_max_length=5),
    ]
    changes = [*(act for name, act in CHANGES if name not in OF_CONFIGURATION), *going]
    changes = changes[first:] if first % 2 else [*going, *changes]
    if first % 2:  # what later ones change is there before
        for act in [act for name, act in CHANGES if name not in OF_CONFIGURATION][:first]:
            act(world)
    world.end_turn()
    slices = 0
    for _ in stating.checkpoint(world.broker, world.journal, world.recorder):
        slices += 1
        world.end_turn()
        if slices > first // 2 and changes:
            changes.pop(0)(world)
            world.end_turn()
    world.end_turn()
    assert slices > 15
    found = state(world)
    world.kill()
    assert state(world) == found


def test_a_binding_stays_away_whose_arguments_were_given_in_another_order() -> None:
    """Such arguments are equal: what was bound with the ones and unbound with the others is not bound after a kill."""
    world = Harness(journal=SimulatedFiles())
    world.queue("q")
    forth, back = (arguments_of(dict(some)) for some in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)]))
    world.vhost.bindings.add("queue", "q", "amq.headers", "", forth)
    world.end_turn()
    world.vhost.bindings.remove("queue", "q", "amq.headers", "", back)
    world.end_turn()
    assert not world.vhost.exchanges["amq.headers"].bindings
    world.kill()
    assert not world.vhost.exchanges["amq.headers"].bindings


def test_a_binding_that_is_replaced_during_a_checkpoint_can_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two of its slices, by an equal one: only that is stated, and none is there when it was removed."""
    monkeypatch.setattr(stating, "OBJECTS_SLICE", 1)
    forth, back = (arguments_of(dict(some)) for some in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)]))
    slices = at = 0
    while at <= slices:
        world = Harness(journal=SimulatedFiles())
        world.queue("q")
        bindings = world.vhost.bindings
        for key in ("first", "second"):
            bindings.add("queue", "q", "amq.headers", key, forth)
        world.end_turn()
        for slices, _ in enumerate(stating.checkpoint(world.broker, world.journal, world.recorder)):
            world.end_turn()
            if slices == at:
                for key in ("first", "second"):
                    bindings.remove("queue", "q", "amq.headers", key, forth)
                    bindings.add("queue", "q", "amq.headers", key, back)
                world.end_turn()
        for key in ("first", "second"):
            bindings.remove("queue", "q", "amq.headers", key, back)
        world.end_turn()
        world.kill()
        assert not world.vhost.exchanges["amq.headers"].bindings, f"replaced behind slice {at}"
        at += 1
    assert slices > 5


def test_a_slice_of_a_checkpoint_states_few_of_many_objects() -> None:
    """Clients are served between two slices, whatever there is most of; empty queues cost time, too."""
    world = Harness(journal=SimulatedFiles())
    count = 3 * stating.OBJECTS_SLICE
    for number in range(count):
        world.queue(f"q{number}")
        world.vhost.exchanges.declare(f"e{number}", "fanout", durable=True)
        world.vhost.bindings.add("queue", f"q{number}", "amq.topic", "k", {})
    world.end_turn()
    before, most, slices = world.journal.turns.next_lsn, 0, 0
    for _ in stating.checkpoint(world.broker, world.journal, world.recorder):
        most, slices = max(most, world.journal.turns.next_lsn - before), slices + 1
        world.end_turn()
        before = world.journal.turns.next_lsn
    assert most <= stating.OBJECTS_SLICE + 10
    assert slices >= 5 * count / stating.OBJECTS_SLICE  # exchanges, queues, bindings; messages and contents of queues


def test_what_the_configuration_takes_over_is_forgotten() -> None:
    """A user and a policy that were set by hand before: without that configuration they are not back."""
    world = Harness(journal=SimulatedFiles())
    world.broker.connections.replace_user(ANN)
    world.broker.reloading.replace_policies(Policies([POLICY]))
    world.end_turn()
    world.broker.connections.replace_user(replace(ANN, is_configured=True, max_channels=6))
    configured = make_policy("p", "/", "^q$", {"max-length": 5}, origin=Origin("f", 1))
    world.broker.reloading.replace_policies(Policies([configured]))
    world.end_turn()
    world.kill()
    assert world.broker.users.find("ann") is None and not len(world.broker.context.policies)
