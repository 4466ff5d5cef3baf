"""Configured objects follow reloads, and go only by order. Pure: a broker in virtual time."""

import json
from pathlib import Path
from typing import Any

import pytest
from configured_broker import (
    FORCE,
    RING,
    bodies,
    configured_queue,
    load,
    make,
    publish,
    queue_of,
    reload,
    session_of,
)

from leveret.configured.configured import ConfiguredObjects, Report
from leveret.configured.typed_arguments import fields_of
from leveret.engine import Broker, ConsumerCancelled, Delivered, ManualClock, SessionFailed, plain_arguments
from leveret.engine.messages.field_table import Field
from leveret.engine.queues import reconfigure
from leveret.settings.difference import differences
from leveret.settings.lifetime import AT_CREATION, LIVE, WITHOUT_MEANING
from leveret.settings.rows.address_settings import BY_ATTRIBUTE, SETTINGS, Setting
from leveret.settings.rows.queue_attributes import ATTRIBUTES, QueueAttribute
from leveret.settings.values import text_or_unset
from leveret.testing.harness import Harness


def test_new_objects_come_and_old_ones_stay_as_they_are() -> None:
    """A second application of the same changes nothing and says nothing."""
    objects = make(RING)
    queue = queue_of(objects, "ring")
    assert objects.apply(load(RING)) == Report()
    assert queue_of(objects, "ring") is queue
    more = RING + RING.replace('"ring"', '"other"')
    assert reload(objects, more).done == ("created 1 queue of the configuration",)
    assert queue_of(objects, "ring") is queue and queue_of(objects, "other").rules.ring_size == 3


def test_what_a_client_deleted_comes_back_with_the_next_reload() -> None:
    """The configuration says that it exists; until then the client has had its will."""
    objects = make(RING)
    session = session_of(objects)
    session.client.vhost.queues.delete("ring", session.client)
    assert "ring" not in session.client.vhost.queues
    reload(objects, RING)
    assert objects.is_managed(queue_of(objects, "ring"))


def test_a_clients_own_queue_of_that_name_is_kept_and_that_is_said_once() -> None:
    """With its messages, its arguments, and out of the configuration's reach."""
    objects = make("")
    session = session_of(objects)
    queue = session.client.vhost.queues.declare("ring", client=session.client, arguments={"x-ring-size": Field("I", 9)})
    (warning,) = reload(objects, RING).warnings
    assert warning.startswith(
        "f.toml:4: queue 'ring' exists with other arguments and is not changed: inequivalent arg 'durable'"
    )
    assert reload(objects, RING).warnings == ()
    assert queue_of(objects, "ring") is queue and not objects.is_managed(queue)
    assert reload(objects, FORCE).warnings == ()
    assert queue_of(objects, "ring") is queue
    assert len(reload(objects, RING).warnings) == 1  # it was right in between


def test_a_queue_that_is_not_declared_for_another_reason() -> None:
    """The warning says only what is so: the exclusive queue of a client may have the same arguments."""
    objects = make("")
    session = session_of(objects)
    table = fields_of({"x-ring-size": 3})
    vhost = session.client.vhost
    vhost.queues.declare("ring", client=session.client, durable=True, exclusive=True, arguments=table)
    (warning,) = reload(objects, RING).warnings
    assert warning.startswith("f.toml:4: queue 'ring' is not declared: cannot obtain exclusive access to locked queue")


def test_a_clients_queue_as_declared_is_adopted() -> None:
    """From then on the configuration rules it."""
    objects = make("")
    session = session_of(objects)
    table = fields_of({"x-ring-size": 3})
    queue = session.client.vhost.queues.declare("ring", client=session.client, durable=True, arguments=table)
    assert reload(objects, RING) == Report()
    assert objects.is_managed(queue)
    reload(objects, FORCE)
    assert queue.deleted


def test_an_auto_created_queue_is_adopted_for_good() -> None:
    """Declared, it is no longer looked at as unused (3.5: `auto-delete-queues` is for auto-created ones)."""
    objects = make("")
    queue = objects.broker.virtual_hosts["/"].queues.create("q", is_auto_created=True)
    reload(objects, '[[address]]\nname = "q"\n[[address.queue]]\nname = "q"\n')
    assert queue_of(objects, "q") is queue and objects.is_managed(queue)
    assert not queue.is_auto_created


@pytest.mark.parametrize(
    "was, is_followed",
    [
        ({"arguments": {"x-ring-size": 5}}, True),  # can be changed
        ({"arguments": {"x-ring-size": 5, "x-of-a-client": 1}}, True),  # means nothing
        ({"arguments": {"x-max-length": 5}}, False),
        ({"arguments": {}, "auto_delete": True}, False),
    ],
)
def test_a_queue_from_before_the_start(was: dict[str, Any], *, is_followed: bool) -> None:
    """It follows files that were changed while the broker was stopped; another queue of that name is the client's."""
    broker = Broker(ManualClock())
    given = {**was, "arguments": fields_of(was["arguments"])}
    queue = broker.virtual_hosts["/"].queues.declare("ring", client=None, durable=True, **given)
    configuration = load(RING)
    objects = ConfiguredObjects(broker, configuration)
    report = objects.apply(configuration)
    assert objects.is_managed(queue) is is_followed
    assert queue.is_configured is is_followed, "else it could be deleted as unused"
    assert (queue.rules.ring_size == 3) is is_followed
    assert any("exists with other arguments and is not changed" in line for line in report.warnings) is not is_followed
    reload(objects, FORCE)
    assert queue.deleted is is_followed


@pytest.mark.parametrize("kind", ["topic", "direct"])
def test_an_exchange_of_another_type_is_kept_and_nothing_is_bound_to_it(kind: str) -> None:
    """Said once, with the place in the file."""
    objects = make("")
    vhost = objects.broker.virtual_hosts["/"]
    vhost.exchanges.declare("news", kind, durable=True)
    text = '[[address]]\nname = "news"\nrouting-type = "multicast"\n[[address.queue]]\nname = "q"\n'
    (warning,) = reload(objects, text).warnings
    assert warning.startswith(
        "f.toml:1: exchange 'news' exists with other arguments and is not changed: inequivalent arg 'type'"
    )
    assert not vhost.exchanges["news"].bindings and not vhost.queues.named("q").incoming


def test_vanished_queues_stay_unless_deletion_is_forced() -> None:
    """3.5, config-delete-queues: OFF keeps it (said once), FORCE deletes it with its messages, also later."""
    objects = make(RING)
    session = session_of(objects)
    publish(objects, session, "", "ring", "A", "B")
    queue = queue_of(objects, "ring")
    (warning,) = reload(objects, "").warnings
    assert warning == "queue 'ring' is no longer declared; it stays, as config-delete-queues is OFF"
    assert reload(objects, "") == Report()
    assert queue_of(objects, "ring") is queue
    (lost,) = reload(objects, FORCE).warnings
    assert lost == "queue 'ring' is no longer declared: deleted, as config-delete-queues is FORCE; 2 messages lost"
    assert queue.deleted and "ring" not in session.client.vhost.queues
    assert objects.broker.context.counters.deleted == 2
    assert reload(objects, FORCE) == Report()


def test_forced_deletion_counts_what_is_out_and_tells_the_consumers() -> None:
    """Unacknowledged messages are lost too; the consumer gets its basic.cancel."""
    objects = make(RING)
    session = session_of(objects)
    session.prefetch = 1
    session.consume(queue_of(objects, "ring"), "tag", no_ack=False, exclusive=False, arguments={})
    publish(objects, session, "", "ring", "A", "B")
    (lost,) = reload(objects, FORCE).warnings
    assert lost.endswith("2 messages lost")
    assert [type(effect) for effect in session.client.take_outbox()] == [Delivered, ConsumerCancelled]


def test_an_empty_queue_goes_quietly_and_others_are_not_touched() -> None:
    """Only what the configuration manages; a deletion without loss is no warning."""
    objects = make(RING)
    session = session_of(objects)
    session.client.vhost.queues.declare("mine", client=session.client)
    report = reload(objects, FORCE)
    assert report.warnings == ()
    assert report.done == ("queue 'ring' is no longer declared: deleted, as config-delete-queues is FORCE",)
    assert set(session.client.vhost.queues) == {"mine"}


def test_vanished_addresses_and_virtual_hosts() -> None:
    """An exchange goes by config-delete-addresses; a virtual host stays; amq.fanout is nobody's to delete."""
    text = "".join(
        f'[[address]]\nname = "{name}"\nvhost = "{vhost}"\nrouting-type = "multicast"\n'
        for name, vhost in (("news", "/"), ("amq.fanout", "/"), ("kept", "v"))
    )
    objects = make(text)
    forced = FORCE.replace('match = "#"', 'match = "#"\nvhost = "/"')
    report = reload(objects, forced)
    assert report.done == ("exchange 'news' is no longer declared: deleted, as config-delete-addresses is FORCE",)
    assert report.warnings == (
        "exchange 'kept' in vhost 'v' is no longer declared; it stays, as config-delete-addresses is OFF",
        "virtual host 'v' is no longer declared; it stays, `leveret ctl delete_vhost` deletes it",
    )
    hosts = objects.broker.virtual_hosts
    assert "news" not in hosts["/"].exchanges
    assert "amq.fanout" in hosts["/"].exchanges and "kept" in hosts["v"].exchanges


def test_a_reload_after_an_operator_has_deleted_a_virtual_host() -> None:
    """What was declared in it is gone, and nothing is said of it; declared again, it is made again."""
    text = (
        '[[vhost]]\nname = "v"\n[[address]]\nname = "a"\nvhost = "v"\nrouting-type = "multicast"\n'
        '[[address.queue]]\nname = "q"\n'
        '[[divert]]\nname = "d"\nvhost = "v"\naddress = "a"\nforwarding-address = "b"\n'
    )
    objects = make(text)
    objects.broker.virtual_hosts.delete("v")
    objects.broker.end_turn()
    assert reload(objects, RING) == Report(done=("created 1 queue of the configuration",))
    assert "v" not in objects.broker.virtual_hosts
    assert reload(objects, text).done == ("created 1 virtual host, 1 exchange, 1 queue of the configuration",)


def test_a_queue_goes_by_the_rule_of_its_address() -> None:
    """And not by one for its name; the preview of a reload says the same."""
    objects = make('[[address]]\nname = "a"\n[[address.queue]]\nname = "q"\n')
    queue = queue_of(objects, "q")
    for match, goes in (("q", False), ("a", True)):
        rule = f'[[address-setting]]\nmatch = "{match}"\nconfig-delete-queues = "FORCE"\n'
        assert objects.queues_deleted_by(load(rule)) == ([queue] if goes else [])
        reload(objects, rule)
        assert queue.deleted is goes


def test_a_preview_asks_the_rule_of_the_virtual_host() -> None:
    """A queue that a reload keeps is not announced as deleted, nor the other way round."""
    objects = make('[[address]]\nname = "a"\nvhost = "v"\n[[address.queue]]\nname = "q"\n')
    for vhost, goes in (("/", False), ("v", True)):
        rule = f'[[address-setting]]\nmatch = "a"\nvhost = "{vhost}"\nconfig-delete-queues = "FORCE"\n'
        assert bool(objects.queues_deleted_by(load(rule))) is goes


def test_an_exchange_that_a_client_has_made_anew_is_not_deleted() -> None:
    """It is the client's: with another type, and the bindings of others."""
    objects = make('[[address]]\nname = "news"\nrouting-type = "multicast"\n')
    exchanges = objects.broker.virtual_hosts["/"].exchanges
    exchanges.delete("news")
    exchanges.declare("news", "topic", durable=True)
    reload(objects, FORCE)
    assert exchanges["news"].type == "topic"


def test_a_reload_after_a_client_has_deleted_a_queue_changes_nothing_of_it() -> None:
    """The preview does not speak of it."""
    objects = make(configured_queue("ring-size = 3"))
    session = session_of(objects)
    session.client.vhost.queues.delete("q", session.client)
    assert objects.arguments_after(load(configured_queue("ring-size = 2"))) == {}
    assert objects.queues_deleted_by(load(FORCE)) == []


def test_redelivery_of_a_configured_queue_changes_at_once() -> None:
    """And back to the address-setting when the attribute is gone (3.8)."""
    objects = make(configured_queue("redelivery-delay = 5000"))
    queue = queue_of(objects, "q")
    assert queue.rules.redelivery_delay_ms == 5000
    report = reload(objects, configured_queue("redelivery-delay = 6000"))
    assert report == Report(done=("f.toml:5: queue 'q': x-redelivery-delay: 5000 -> 6000",))
    assert queue.rules.redelivery_delay_ms == 6000
    session = session_of(objects)
    again = {"x-redelivery-delay": Field("I", 6000)}
    assert session.client.vhost.queues.declare("q", client=session.client, durable=True, arguments=again) is queue
    reload(objects, configured_queue(""))
    assert queue.rules.redelivery_delay_ms == 100


def test_a_ring_is_resized_and_returns_to_the_default() -> None:
    """3.7, 4.3: larger and smaller at runtime, nothing is deleted now; without the attribute: default-ring-size."""
    objects = make(configured_queue("ring-size = 3"))
    session = session_of(objects)
    queue = queue_of(objects, "q")
    publish(objects, session, "", "q", *"ABCD")
    assert reload(objects, configured_queue("ring-size = 2")).warnings == ()
    assert (queue.rules.ring_size, queue.ready_count) == (2, 3)
    reload(objects, configured_queue("ring-size = 5"))
    publish(objects, session, "", "q", *"EFG")
    assert bodies(session, "q") == "CDEFG"
    reload(objects, configured_queue(""))
    assert queue.rules.ring_size == 8
    reload(objects, configured_queue("ring-size = -1"))
    assert queue.rules.ring_size is None


def test_a_changed_default_leaves_the_ring_of_a_queue_alone() -> None:
    """`default-*` acts on new queues only; an untouched attribute is not applied again over a resize by hand."""
    objects = make(configured_queue(""))
    queue = queue_of(objects, "q")
    reload(objects, configured_queue("").replace("default-ring-size = 8", "default-ring-size = 4"))
    assert queue.rules.ring_size == 8


def test_what_needs_a_new_queue_is_said_and_left() -> None:
    """Once for each; the queue keeps its arguments, so that clients see what is."""
    objects = make(configured_queue("max-consumers = 2"))
    later = configured_queue("durable = false\nmax-consumers = 3\narguments = { x-max-length = 5 }")
    assert reload(objects, later).warnings == (
        "f.toml:3: queue 'q': durable: True -> False takes effect when the queue is created anew",
        "f.toml:6: queue 'q': x-max-consumers: 2 -> 3 takes effect when the queue is created anew",
        "f.toml:7: queue 'q': x-max-length: unset -> 5 takes effect when the queue is created anew",
    )
    assert reload(objects, later) == Report()
    assert plain_arguments(queue_of(objects, "q").arguments) == {"x-max-consumers": 2}


def test_a_queue_of_another_type_is_changed_in_nothing() -> None:
    """It is made anew in any case: until then it is what it was, also in what could change at once."""
    objects = make(configured_queue("redelivery-delay = 5000"))
    other = configured_queue('redelivery-delay = 6000\narguments = { x-queue-type = "quorum" }')
    report = reload(objects, other)
    assert report.done == () and len(report.warnings) == 2
    queue = queue_of(objects, "q")
    assert (queue.type, queue.rules.redelivery_delay_ms) == ("classic", 5000)


def test_a_change_that_contradicts_what_stays_is_not_made() -> None:
    """x-max-length can't go from a queue that exists, so it can't become a ring."""
    objects = make(configured_queue("arguments = { x-max-length = 5 }"))
    report = reload(objects, configured_queue("ring-size = 3"))
    assert report.done == ()
    assert any("x-ring-size takes effect when the queue is created anew" in line for line in report.warnings)
    assert plain_arguments(queue_of(objects, "q").arguments) == {"x-max-length": 5}


def test_a_preview_of_a_change_that_contradicts_what_stays() -> None:
    """It is not made, so nothing of it is shown."""
    objects = make(configured_queue("arguments = { x-max-length = 5 }"))
    assert objects.arguments_after(load(configured_queue("ring-size = 3"))) == {}
    (arguments,) = objects.arguments_after(load(configured_queue("ring-size = 3\nredelivery-delay = 7"))).values()
    assert plain_arguments(arguments) == {"x-max-length": 5, "x-redelivery-delay": 7}


#: Attributes of a queue that exclude each other, take the place of each other, or can change beside one that cannot.
ATTRIBUTE_SETS = (
    "",
    "ring-size = 3",
    "ring-size = 5\nredelivery-delay = 7",
    "arguments = { x-max-length = 5 }",
    "redelivery-delay = 9\narguments = { x-max-length = 6 }",
    'dead-letter-address = "d"',
    'arguments = { x-dead-letter-exchange = "x" }',
    "max-delivery-attempts = 3",
    "max-deliveries = 4",
    "max-consumers = 2\nexpiry-address = 'd'",
    'ring-size = 4\narguments = { x-queue-type = "classic" }',
)


@pytest.mark.parametrize("after", ATTRIBUTE_SETS)
@pytest.mark.parametrize("before", ATTRIBUTE_SETS)
def test_diff_tells_which_settings_of_a_queue_a_reload_changes(before: str, after: str) -> None:
    """Each that changes at once, with the value that it gets."""
    objects = make(configured_queue(before))
    queue = queue_of(objects, "q")
    old, new = (load(configured_queue(said)) for said in (before, after))
    was = reconfigure.resolved(queue)
    reload(objects, configured_queue(after))
    now = reconfigure.resolved(queue)
    values = [(one.key, getattr(was, one.attribute), getattr(now, one.attribute)) for one in SETTINGS]
    changed = {f"{key}: {text_or_unset(one)} -> {text_or_unset(other)}" for key, one, other in values if one != other}
    assert {one.how for one in differences(old, new) if one.acts is LIVE} == changed


@pytest.mark.parametrize("row", ATTRIBUTES, ids=lambda row: row.key)
def test_an_attribute_changes_as_its_row_says(row: QueueAttribute) -> None:
    """Set where it was not, and taken away again: at once, or not on a queue that exists."""
    default = BY_ATTRIBUTE[row.attribute].default if row.attribute else ""
    value = {bool: "true", float: "0.25", str: '"a"'}.get(type(default), "2")
    type_ = "quorum" if row.key == "delivery-limit" else "classic"
    common = f'arguments = {{ x-queue-type = "{type_}" }}\n'
    texts = [configured_queue(common + said) for said in ("", f"{row.key} = {value}")]
    for before, after in (texts, texts[::-1]):
        objects = make(before)
        report = reload(objects, after)
        is_live = row.acts is LIVE
        assert any(f" {row.argument}: " in line for line in report.done) is is_live
        assert any(f" {row.argument}: " in line for line in report.warnings) is not is_live
        told = [one.acts for one in differences(load(before), load(after)) if one.what == "queue 'q'"]
        assert told and {*told} == {row.acts}


#: Values of settings that are words; other texts may be any.
WORDS = {
    "address-full-policy": "DROP",
    "page-full-policy": "DROP",
    "disk-full-policy": "DROP",
    "cursor": "vm",
    "message-eviction": "lowest-priority",
    "slow-consumer-threshold-measurement-unit": "MESSAGES_PER_MINUTE",
    "slow-consumer-policy": "KILL",
    "default-queue-routing-type": "ANYCAST",
    "default-address-routing-type": "ANYCAST",
} | dict.fromkeys(("config-delete-queues", "config-delete-addresses", "config-delete-diverts"), "FORCE")


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.key)
def test_a_setting_of_an_address_changes_as_its_row_says(row: Setting) -> None:
    """At once, a queue has the rules that a new one gets; a default for new queues changes only these."""
    values: dict[type, object] = {bool: not row.default, str: WORDS.get(row.key, "a"), float: 0.25, int: 7}
    before, after = '[[address-setting]]\nmatch = "q.#"\n', f"{row.key} = {json.dumps(values[type(row.default)])}\n"
    objects = make(before)
    queues = objects.broker.virtual_hosts.create("/").queues
    old = queues.declare("q.old", client=None, durable=True)
    first = old.rules
    reload(objects, before + after)
    new = queues.declare("q.new", client=None, durable=True)
    if row.acts is AT_CREATION:
        assert old.rules == first != new.rules
    else:
        assert old.rules == new.rules
    assert row.acts is not WITHOUT_MEANING or old.rules == first


def test_routing_type_is_a_binding_and_the_address_is_for_good() -> None:
    """Multicast and back by binding and unbinding; another address needs another queue."""
    text = '[[address]]\nname = "a"\nrouting-type = "multicast"\n[[address.queue]]\nname = "q"\n'
    objects = make(text)
    queue = queue_of(objects, "q")
    assert len(queue.incoming) == 1
    reload(objects, text + 'routing-type = "anycast"\n')
    assert not queue.incoming
    assert reload(objects, text + 'routing-type = "anycast"\n').done == ()
    reload(objects, text)
    assert [binding.source.name for binding in queue.incoming] == ["a"]
    (warning, *_) = reload(objects, text.replace('"a"', '"b"')).warnings
    assert warning == "f.toml:4: queue 'q': address: a -> b takes effect when the queue is created anew"
    assert [binding.source.name for binding in queue.incoming] == ["a"]


def test_a_routing_type_that_changed_while_the_broker_was_stopped(tmp_path: Path) -> None:
    """The start unbinds the queue, as a reload does, and binds it again."""
    text = '[[address]]\nname = "a"\nrouting-type = "multicast"\n[[address.queue]]\nname = "q"\n'
    world = Harness(text, journal=tmp_path)
    world.settings = text + 'routing-type = "anycast"\n'
    world.restart()
    world.publish("to all", exchange="a", delivery_mode=2)
    world.publish("to one", key="a", delivery_mode=2)
    assert world.all() == "to one"
    world.settings = text
    world.restart()
    world.publish("to all", exchange="a", delivery_mode=2)
    assert world.all() == "to all"


def test_a_client_s_binding_to_an_exchange_of_its_own_stays(tmp_path: Path) -> None:
    """Although it is a fanout exchange with the name of the address."""
    world = Harness('[[address]]\nname = "q"\n[[address.queue]]\nname = "q"\n', journal=tmp_path)
    world.vhost.exchanges.declare("q", "fanout", durable=True)
    world.bind("q", "q")
    world.restart()
    world.publish("a", exchange="q", delivery_mode=2)
    assert world.all() == "a"


def test_disabled_queues_take_nothing_new() -> None:
    """3.7, `enabled`: what is there can still be had; enabled again at the next reload."""
    objects = make(configured_queue(""))
    session = session_of(objects)
    publish(objects, session, "", "q", "A")
    report = reload(objects, configured_queue("enabled = false"))
    assert report == Report(done=("f.toml:3: queue 'q' takes no new messages (enabled = false)",))
    publish(objects, session, "", "q", "B")
    reload(objects, configured_queue("enabled = true"))
    publish(objects, session, "", "q", "C")
    assert bodies(session, "q") == "AC"


def test_diverts_follow_reloads() -> None:
    """New ones at once; a vanished one stays unless config-delete-diverts is FORCE for its address."""
    queue = '[[address]]\nname = "{0}"\n[[address.queue]]\nname = "{0}"\n'
    queues = queue.format("q") + queue.format("copy")
    divert = '[[divert]]\nname = "d"\naddress = "q"\nforwarding-address = "copy"\n'
    forced = '[[address-setting]]\nmatch = "q"\nconfig-delete-diverts = "FORCE"\n'
    objects = make(queues + divert)
    session = session_of(objects)
    publish(objects, session, "", "q", "A")
    (warning,) = reload(objects, queues).warnings
    assert warning == "divert 'd' is no longer declared; it stays, as config-delete-diverts is OFF"
    publish(objects, session, "", "q", "B")
    (done,) = reload(objects, queues + forced).done
    assert done == "divert 'd' is no longer declared: deleted, as config-delete-diverts is FORCE"
    publish(objects, session, "", "q", "C")
    assert (bodies(session, "q"), bodies(session, "copy")) == ("ABC", "AB")


def test_switches_of_the_broker_table_follow_reloads() -> None:
    """`nack-counts` and its like are in force with the rest of the file."""
    objects = make("")
    assert objects.broker.context.options.nack_counts
    reload(objects, "[broker]\nnack-counts = false\n")
    assert not objects.broker.context.options.nack_counts


@pytest.mark.parametrize(
    "before, after, when",
    [
        ("ring-size = 3", "ring-size = 4", "(at once)"),
        ("redelivery-delay = 3", "redelivery-delay = 4", "(at once)"),
        ("max-consumers = 3", "max-consumers = 4", "(not on a queue that exists: delete it first)"),
    ],
)
def test_diff_foretells_what_a_reload_does(before: str, after: str, when: str) -> None:
    """`leveret diff` and the reload agree on what acts at once."""
    changes = differences(load(configured_queue(before)), load(configured_queue(after)))
    assert changes and all(str(change).endswith(when) for change in changes), changes


def test_queues_of_clients_go_as_unused_from_a_reload_on_and_configured_ones_never() -> None:
    """3.5, auto-delete-created-queues: those that were there are looked at as well."""
    rule = '[[address-setting]]\nmatch = "#"\nauto-delete-queues-skip-usage-check = true\n'
    broker = '[broker]\naddress-queue-scan-period = "1s"\n'
    objects = make(f"{RING}{rule}{broker}")
    client = session_of(objects).client
    mine = client.vhost.queues.declare("mine", client=client, durable=True)
    own = client.vhost.queues.declare("own", client=client, exclusive=True)
    pass_time(objects, seconds=5)
    assert not mine.deleted
    reload(objects, f"{RING}{rule}auto-delete-created-queues = true\n{broker}")
    pass_time(objects, seconds=2)
    assert mine.deleted and not own.deleted and not queue_of(objects, "ring").deleted
    again = client.vhost.queues.declare("mine", client=client, durable=True)
    pass_time(objects, seconds=2)
    assert again.deleted


@pytest.mark.parametrize("before", ["-1", '"1h"'])
def test_another_scan_period_holds_from_now_on(before: str) -> None:
    """Auto-created queues that were there are looked at by it, also when nothing was looked at so far."""
    unused = '[[address-setting]]\nmatch = "#"\nauto-delete-queues-skip-usage-check = true\n'
    objects = make(f"{unused}[broker]\naddress-queue-scan-period = {before}\n")
    queue = objects.broker.virtual_hosts["/"].queues.create("q", is_auto_created=True)
    reload(objects, f'{unused}[broker]\naddress-queue-scan-period = "1s"\n')
    assert not queue.deleted
    pass_time(objects, seconds=2)
    assert queue.deleted


@pytest.mark.parametrize("before", ["-1", '"1h"'])
def test_another_consumer_timeout_holds_for_what_is_out(before: str) -> None:
    """Counted from the first look that saw the delivery."""
    objects = make(RING + f"[broker]\nconsumer-timeout = {before}\n")
    session = session_of(objects)
    session.consume(queue_of(objects, "ring"), "tag", no_ack=False, exclusive=False, arguments={})
    publish(objects, session, "", "ring", "A")
    reload(objects, RING + '[broker]\nconsumer-timeout = "10s"\n')
    pass_time(objects, seconds=9)
    assert [type(effect) for effect in session.client.take_outbox()] == [Delivered]
    pass_time(objects, seconds=9)
    assert SessionFailed in [type(effect) for effect in session.client.take_outbox()]


def pass_time(objects: ConfiguredObjects, *, seconds: int) -> None:
    """A second at a time."""
    clock = objects.broker.context.clock
    assert isinstance(clock, ManualClock)
    for _ in range(seconds):
        clock.advance_ns(1_000_000_000)
        objects.broker.advance()
        objects.broker.end_turn()
