"""What exchanges keep to when objects around them come and go: bindings, alternates, limits, retained messages."""

import pytest

from leveret.configured.options import broker_options
from leveret.engine.errors import BindingsMaxReached
from leveret.engine.messages.field_table import Field
from leveret.engine.options import BrokerOptions
from leveret.engine.queues import reconfigure
from leveret.settings import Policies, SettingsRepository, entry, make_policy
from leveret.testing.harness import Harness, load


def world_of(*exchanges: tuple[str, str], **broker: object) -> Harness:
    """A broker with these exchanges, by name and type, and the queues q and r."""
    world = Harness(**broker)  # type: ignore[arg-type]
    for name, kind in exchanges:
        world.vhost.exchanges.declare(name, kind)
    world.queue("q")
    world.queue("r")
    return world


def alternate(name: str) -> dict[str, Field]:
    """The argument that names an alternate exchange."""
    return {"alternate-exchange": Field("S", name.encode())}


def test_a_declared_alternate_exchange_comes_before_that_of_a_policy() -> None:
    """As all that a declaration says (behaviour page 3.12)."""
    world = world_of(("own", "fanout"), ("of policy", "fanout"))
    world.bind("q", "own")
    world.bind("r", "of policy")
    world.vhost.exchanges.declare("x", "direct", arguments=alternate("own"))
    policy = make_policy("p", "/", "^x$", {"alternate-exchange": "of policy"}, apply_to="exchanges")
    world.broker.reloading.replace_policies(Policies([policy]))
    world.end_turn()
    world.publish("a", exchange="x", key="nowhere")
    assert (world.all("q"), world.all("r")) == ("a", "")
    world.bind("r", "x", "known")
    world.publish("b", exchange="x", key="known")
    assert (world.all("q"), world.all("r")) == ("", "b")


def test_an_alternate_exchange_of_a_cleared_policy_is_forgotten() -> None:
    """Neither its declaration nor its deletion concerns the exchange any more (behaviour page 3.12)."""
    world = world_of(("x", "direct"), ("late", "fanout"))
    policies = Policies([make_policy("p", "/", "^x$", {"alternate-exchange": "late"}, apply_to="exchanges")])
    world.broker.reloading.replace_policies(policies)
    world.end_turn()
    world.broker.reloading.replace_policies(Policies())
    world.end_turn()
    world.vhost.exchanges.delete("late")
    route = world.route("nowhere", "x")
    world.vhost.exchanges.declare("late", "fanout")
    assert not route.is_stale
    world.vhost.exchanges.delete("x")
    assert "x" not in world.vhost.exchanges


def test_an_alternate_exchange_that_comes_late_gets_what_is_published_by_known_routes() -> None:
    """And one that is deleted and declared again (behaviour page 2.3)."""
    world = world_of()
    world.vhost.exchanges.declare("x", "direct", arguments=alternate("late"))
    for body in "ab":
        assert world.publish(body, exchange="x", key="nowhere", mandatory=True) == [body.encode()]
        route = world.route("nowhere", "x")
        world.vhost.exchanges.declare("late", "fanout")
        world.bind("q", "late")
        assert route.is_stale
        world.publish(body, exchange="x", key="nowhere")
        assert world.all() == body
        world.vhost.exchanges.delete("late")


def test_nothing_is_left_of_a_deleted_exchange() -> None:
    """Its bindings in both directions, and the routes through it (behaviour page 2.5)."""
    world = world_of(("before", "fanout"), ("x", "fanout"))
    world.vhost.bindings.add("exchange", "x", "before", "", {})
    world.bind("q", "x")
    routes = [world.route("k", name) for name in ("before", "x")]
    world.vhost.exchanges.delete("x")
    assert [route.is_stale for route in routes] == [True, True]
    assert not world.named("q").incoming and world.vhost.bindings.count == 0
    assert world.publish("a", exchange="before", mandatory=True) == [b"a"]
    assert not world.vhost.exchanges["before"].destinations


def test_auto_delete_exchanges_in_a_row_go_together() -> None:
    """The last binding of each is that to the next one (behaviour page 2.5)."""
    world = world_of()
    for name in "xyz":
        world.vhost.exchanges.declare(name, "fanout", auto_delete=True)
    for source, destination in ("xy", "yz"):
        world.vhost.bindings.add("exchange", destination, source, "", {})
    world.bind("q", "z")
    world.vhost.bindings.remove("queue", "q", "z", "", {})
    assert not {"x", "y", "z"} & world.vhost.exchanges.keys()


def test_the_limit_of_bindings_is_one_for_all_virtual_hosts() -> None:
    """A client that binds again is not concerned, nor is the broker itself (docs/limits)."""
    world = world_of(("x", "direct"), options=BrokerOptions(bindings_max=2))
    other = world.broker.virtual_hosts.create("other")
    other.exchanges.declare("x", "direct")
    other.queues.declare("q", client=None)
    other.bindings.add("queue", "q", "x", "a", {})
    bind = world.vhost.bindings.add
    bind("queue", "q", "x", "a", {}, world.client)
    bind("queue", "q", "x", "a", {}, world.client)
    with pytest.raises(BindingsMaxReached):
        bind("queue", "q", "x", "b", {}, world.client)
    bind("queue", "q", "x", "b", {})
    world.vhost.exchanges.delete("x")
    assert world.vhost.bindings.count == 0


def test_retained_messages_come_once_to_a_queue() -> None:
    """With its first binding; none of before a reload that switched it off (address-settings page 3.6)."""
    world = world_of(("news", "direct"), settings=SettingsRepository([entry("news", retroactive_message_count=3)]))
    world.publish("a", exchange="news", key="k")
    world.bind("q", "news", "k")
    world.bind("q", "news", "other")
    world.end_turn()
    assert world.all("q") == "a"
    world.reload(SettingsRepository())
    world.reload(SettingsRepository([entry("news", retroactive_message_count=3)]))  # for those that come from now on
    world.bind("r", "news", "k")
    world.end_turn()
    assert world.all("r") == ""


def test_the_first_binding_of_a_destination_is_its_weight() -> None:
    """And a destination without bindings gets nothing (behaviour page 3.9)."""
    world = world_of(("hash", "x-consistent-hash"), ("random", "x-random"))
    for queue, weight in (("q", "1"), ("r", "1"), ("r", "100")):
        world.bind(queue, "hash", weight)
    for number in range(200):
        world.publish("a", exchange="hash", key=str(number))
    assert 60 < world.named("q").ready_count < 140
    for weight in ("1", "100"):
        world.vhost.bindings.remove("queue", "r", "hash", weight, {})
    before = world.named("r").ready_count
    for number in range(20):
        world.publish("a", exchange="hash", key=str(number))
    for queue in "qr":
        world.bind(queue, "random")
    world.vhost.bindings.remove("queue", "r", "random", "", {})
    for _ in range(20):
        world.publish("a", exchange="random")
    assert world.named("r").ready_count == before


def test_a_ring_of_a_policy_goes_with_it_and_that_of_an_operator_stays() -> None:
    """Whatever other policies change (address-settings page 4.3)."""
    world = world_of()
    queue = world.named("q")
    ring = make_policy("ring", "/", "^q$", {"ring-size": 3})
    for policies in ([ring], []):
        world.broker.reloading.replace_policies(Policies(policies))
        world.end_turn()
    assert queue.rules.ring_size is None
    reconfigure.set_ring_size(queue, 5)
    world.broker.reloading.replace_policies(Policies([make_policy("other", "/", "^q$", {"expires": 1_000_000})]))
    world.end_turn()
    assert queue.rules.ring_size == 5


def test_each_limit_of_the_configuration_is_its_own() -> None:
    """0 of those for a channel and a queue is no limit."""
    options = broker_options(load("[limits]\nheaders-conditions = 5\ntopic-states = 9\nunacked-per-channel = 0\n"))
    assert (options.headers_conditions_max, options.topic_states_max) == (5, 9)
    assert options.unacked_per_session_max > 1_000_000


def test_consumers_go_on_when_a_reload_raises_the_limit_of_a_channel() -> None:
    """Without an acknowledgement (docs/configuration.md, unacked-per-channel)."""
    world = Harness("[limits]\nunacked-per-channel = 1\n")
    world.queue()
    world.consume()
    world.publish(*"abc")
    assert world.taken() == "a"
    world.reload("[limits]\nunacked-per-channel = 2\n")
    assert world.taken() == "b"
