"""Leased queues that a configuration declares: there from the start, changed by a reload, exported and imported.

Source: queues page A.2, A.3; address-settings page 3.8.
"""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import node_forge
import pytest
from configured_broker import make, queue_of, reload
from desk import Refused, VirtualDesk

from leveret.configured.configured import ConfiguredObjects
from leveret.configured.typed_arguments import fields_of
from leveret.engine import Broker, ManualClock, Users, plain_arguments
from leveret.engine.leases.rules import rules_in
from leveret.operator.definitions import export_steps, import_steps
from leveret.operator.steps import finished
from leveret.serving.file_watch import NOTHING, FileMark, FileWatch, Finding
from leveret.settings import load_configuration, make_policy
from leveret.settings.difference import differences
from leveret.settings.leases.leased_settings import ACTS, ELEMENTS, LIVE_LEASED, Element, leased_settings
from leveret.settings.lifetime import ARRIVAL, AT_CONSUMER, LIVE, RESTART
from leveret.settings.values import text_or_unset

QUEUE = '[[queue]]\nname = "q"\ntype = "amps"\n'
XML = """
<AMPSConfig><SOW>
  <LocalQueue><Name>q</Name><MessageType>json</MessageType><UnderlyingTopic>Orders</UnderlyingTopic>
    <LeasePeriod>30s</LeasePeriod></LocalQueue>
  <LocalQueue><Name>Dead</Name><MessageType>json</MessageType></LocalQueue></SOW>
  <Actions><Action>
    <On><Module>amps-action-on-sow-expire-message</Module><Options><Topic>q</Topic></Options></On>
    <Do><Module>amps-action-do-publish-message</Module>
      <Options><Topic>Dead</Topic><Data>{{AMPS_DATA}}</Data></Options></Do>
  </Action></Actions></AMPSConfig>
"""


def test_queues_of_amps_xml_work() -> None:
    """The topic is an exchange, and what is published to it is captured; what expires comes to the action's topic."""
    desk = VirtualDesk(XML)
    assert desk.vhost.exchanges["Orders"].type == "topic"
    assert desk.publish("a", exchange="Orders", key="eu.new", mandatory=True) == ["ack"]
    assert desk.publish("b") == ["ack"]
    first, second = desk.must_get(), desk.must_get()
    assert (first.body, second.body) == ("a", "b")
    assert desk.get() is None
    desk.ack(first)
    desk.reject(second, requeue=False)
    dead = desk.must_get("Dead")
    assert (dead.body, dead.headers["x-amps-reason"]) == ("b", "forced_expire")


def test_bodies_and_reasons_of_dead_letters() -> None:
    """As the action has them; a body that looks like a template is none."""
    said = "{{AMPS_TOPIC}} {{AMPS_REASON}} {{AMPS_DATA_LENGTH}} [{{AMPS_CORRELATION_ID}}] {{AMPS_DATA}}"
    text = XML.replace("{{AMPS_DATA}}", said).replace(
        "<Topic>q</Topic>", "<Topic>q</Topic><Reason>max_cancels</Reason>"
    )
    text = text.replace("<LeasePeriod>", "<MaxCancels>1</MaxCancels><LeasePeriod>")
    desk = VirtualDesk(text)
    desk.publish("{{AMPS_REASON}}", "é", correlation_id="c1", content_type="text/plain")
    desk.reject(desk.must_get(), requeue=False)
    assert desk.get("Dead") is None
    desk.nack(desk.must_get())
    dead = desk.must_get("Dead")
    assert dead.body == "q max_cancels 2 [c1] é"
    assert dead.headers["x-amps-reason"] == "max_cancels"
    desk.publish("{{AMPS_REASON}}")
    desk.ack(dead)
    desk.nack(desk.must_get())
    assert desk.must_get("Dead").body == "q max_cancels 15 [] {{AMPS_REASON}}"


def test_a_client_may_declare_a_configured_queue() -> None:
    """With the same arguments; with others it is refused."""
    desk = VirtualDesk(QUEUE + 'lease-period = "30s"\n')
    same = {"x_queue_type": "amps", "x_lease_period": 30_000}
    assert desk.declare(**same) == 0
    with pytest.raises(Refused) as refused:
        desk.declare(**{**same, "x_lease_period": 1})
    assert str(refused.value).startswith("406 ")


# -- reload -----------------------------------------------------------------------------------------------------------

#: Argument -> a value that is not the default and goes with the others' defaults.
VALUES: dict[str, object] = {
    "x-replication": "distributed",
    "x-message-type": "fix",
    "x-underlying-topic": "T",
    "x-default-publish-target": "a",
    "x-lease-period": 1000,
    "x-semantics": "at-most-once",
    "x-max-backlog-total": 3,
    "x-max-backlog-per-consumer": 3,
    "x-message-ttl": 1000,
    "x-expiration-model": "latest",
    "x-expire-leased": "at-lease-end",
    "x-dead-letter-reasons": "max_cancels",
    "x-dead-letter-data": "{{AMPS_REASON}}",
    "x-queue-filter": "/a = 1",
    "x-recovery-point": "now",
    "x-fairness": "fast",
    "x-leasing": "strict",
    "x-max-deliveries": 2,
    "x-cancel-limit": 2,
    "x-priority-expr": "/p",
    "x-barrier-expr": "/b = 1",
    "x-file-backed": True,
    "x-target-depth": 1000,
    "x-deferred-ack-ttl": 1000,
    "x-initial-owner": "n",
    "x-queue-domain": "D",
}
#: What an argument needs beside it.
BESIDE = {
    "x-default-publish-target": 'underlying-topic = "^[aq]$"\ndefault-publish-target = "q"\n',
    "x-initial-owner": 'replication = "group"\ninitial-owner = "other"\n',
    "x-queue-domain": 'replication = "group"\ninitial-owner = "n"\n',
}


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda element: element.argument)
def test_a_reload_does_what_diff_says(element: Element) -> None:
    """Each argument, set where it was not: at once, or not on a queue that exists; and taken away again."""
    argument = element.argument
    key = argument.removeprefix("x-")
    before = QUEUE + BESIDE.get(argument, "")
    after = before.replace('"other"', '"n"').replace('target = "q"', 'target = "a"')
    if after == before:
        after += f"{key} = {json.dumps(VALUES[argument])}\n"
    old, new = (load_configuration([("f.toml", text)])[0] for text in (before, after))
    (acts,) = (one.acts for one in differences(old, new) if one.how.startswith(f"{key}: "))
    assert acts is ACTS[argument]
    objects = make(before)
    report = reload(objects, after)
    is_live = argument in LIVE_LEASED
    assert any(f"{argument}: " in line for line in report.done) == is_live
    later = "starts anew" if acts is RESTART else "created anew"
    assert any(f"{argument}: " in line and later in line for line in report.warnings) == (not is_live)
    queue = queue_of(objects, "q")
    assert (plain_arguments(queue.arguments).get(argument) == VALUES[argument]) == is_live
    for text in (after, before):
        reload(objects, text)
        assert rules_in(queue.rules).settings == leased_settings("q", plain_arguments(queue.arguments))
    assert not is_live or (argument in queue.arguments) == (argument in BESIDE)


def test_a_queue_of_another_type_keeps_all_it_has() -> None:
    """Nothing of the new one is mixed into it."""
    desk = VirtualDesk(QUEUE.replace("amps", "classic"))
    desk.reload(QUEUE + "lease-period = 5\n")
    assert plain_arguments(desk.vhost.queues["q"].arguments) == {"x-queue-type": "classic"}
    desk = VirtualDesk(QUEUE + "lease-period = 5\n")
    desk.reload(QUEUE.replace("amps", "classic"))
    assert plain_arguments(desk.vhost.queues["q"].arguments) == {"x-queue-type": "amps", "x-lease-period": 5}


def test_what_can_change_does_beside_what_cannot() -> None:
    """Another fairness and lease period, beside other semantics, which wait."""
    objects = make(QUEUE + 'fairness = "proportional"\n')
    report = reload(objects, QUEUE + 'semantics = "at-most-once"\nfairness = "fast"\nlease-period = 7\n')
    assert [line for line in report.warnings if "x-semantics" in line and "at-most-once" in line]
    queue = queue_of(objects, "q")
    settings = rules_in(queue.rules).settings
    assert (settings.semantics, settings.fairness, settings.lease_period_ms) == ("at-least-once", "fast", 7)


LEASED_SETS = (
    "",
    'semantics = "at-most-once"',
    'semantics = "at-most-once"\nfairness = "fast"',
    'fairness = "round-robin"\nlease-period = 7',
    'semantics = "at-most-once"\nmessage-type = "fix"\nlease-period = 8',
    'barrier-expr = "/b = 1"\nmax-deliveries = 3',
    "target-depth = 1000",
    'underlying-topic = "T"\ndead-letter-address = "d"',
)


@pytest.mark.parametrize("after", LEASED_SETS)
@pytest.mark.parametrize("before", LEASED_SETS)
def test_diff_tells_what_a_reload_changes_and_what_a_restart(before: str, after: str) -> None:
    """Each setting with its value then, also one that follows from another."""
    old, new = (load_configuration([("f.toml", QUEUE + said)])[0] for said in (before, after))
    objects = make(QUEUE + before)
    queue = queue_of(objects, "q")
    states = [rules_in(queue.rules).settings]
    reload(objects, QUEUE + after)
    states.append(rules_in(queue.rules).settings)
    broker = Broker(ManualClock(), Users([]), settings=new.repository)
    queues = broker.virtual_hosts.create("/").queues
    again = queues.declare("q", client=None, durable=True, arguments=queue.arguments)
    ConfiguredObjects(broker, new).apply(new)
    states.append(rules_in(again.rules).settings)
    queue_changes = [one for one in differences(old, new) if one.what == "queue 'q'"]
    told = [one for one in queue_changes if "dead-letter-address" not in one.how]
    for is_restart, (was, now) in enumerate(pairwise(states)):
        values = [(one.key, getattr(was, one.attribute), getattr(now, one.attribute)) for one in ELEMENTS]
        changed = {
            f"{key}: {text_or_unset(one)} -> {text_or_unset(other)}" for key, one, other in values if one != other
        }
        at_once, others = (LIVE, ARRIVAL, AT_CONSUMER), (RESTART,)
        assert {one.how for one in told if one.acts in (others if is_restart else at_once)} == changed


def test_what_follows_from_the_semantics_waits_with_them() -> None:
    """The fairness that nobody names is that of the semantics that are in force."""
    objects = make(QUEUE)
    reload(objects, QUEUE + 'semantics = "at-most-once"\n')
    leased = rules_in(queue_of(objects, "q").rules).settings
    assert (leased.semantics, leased.fairness) == ("at-least-once", "proportional")


def test_a_configuration_that_was_changed_while_the_broker_was_stopped() -> None:
    """What can change at once does so at the start, for a queue that is otherwise as declared; else it stays."""
    for said, kept in (("lease-period = 5", True), ('message-type = "fix"', False), ("enabled = false", True)):
        configuration, _ = load_configuration([("f.toml", QUEUE + said)])
        broker = Broker(ManualClock(), Users([]), settings=configuration.repository)
        queue = broker.virtual_hosts.create("/").queues.declare(
            "q", client=None, durable=True, arguments=fields_of({"x-queue-type": "amps", "x-lease-period": 60_000})
        )
        objects = ConfiguredObjects(broker, configuration)
        report = objects.apply(configuration)
        assert objects.is_managed(queue) is kept
        assert any("exists with other arguments" in line for line in report.warnings) is not kept
        period = {"lease-period = 5": 5, "enabled = false": None}.get(said, 60_000)
        assert plain_arguments(queue.arguments).get("x-lease-period") == period
        assert queue.enabled is (said != "enabled = false")


def test_a_queue_of_a_client_is_not_taken_over_by_a_reload() -> None:
    """It is a client's, though only what can change at once differs."""
    desk = VirtualDesk()
    desk.declare(x_queue_type="amps", x_lease_period=60_000)
    desk.reload(QUEUE + "lease-period = 5")
    assert plain_arguments(desk.vhost.queues["q"].arguments)["x-lease-period"] == 60_000


def many(said: str = "") -> str:
    """A queue whose consumers may have many."""
    return f"{QUEUE}max-backlog-per-consumer = 10\n{said}\n"


@pytest.mark.parametrize(
    ("before", "after", "at_ms"),
    [(5000, 2000, 2000), (2000, 5000, 5000), (None, 3000, 4000), (3000, None, None)],
)
def test_another_lease_period(before: int | None, after: int | None, at_ms: int | None) -> None:
    """For leases that run, too, counted from their beginning; where they had no end, from the reload."""
    texts = [many("" if period is None else f"lease-period = {period}") for period in (before, after)]
    desk = VirtualDesk(texts[0])
    desk.publish("a")
    desk.must_get()
    desk.advance_ms(1000)
    desk.reload(texts[1])
    desk.publish("b")
    desk.must_get()
    if at_ms is None:
        desk.advance_ms(1_000_000)
        assert desk.get() is None
        return
    assert after is not None
    desk.advance_ms(at_ms - 1001)
    assert desk.get() is None
    desk.advance_ms(51)
    assert desk.must_get().body == "a"
    desk.advance_ms(after)
    assert {desk.must_get().body, desk.must_get().body} == {"a", "b"}


def test_a_lease_that_is_over_by_the_new_period_ends_at_once() -> None:
    """As one that was granted with it."""
    desk = VirtualDesk(many("lease-period = 60000"))
    desk.publish("a")
    desk.must_get()
    desk.advance_ms(10_000)
    desk.reload(many("lease-period = 5000"))
    desk.advance_ms(50)
    assert desk.must_get().body == "a"


def test_other_backlogs() -> None:
    """Of the queue at once; of a consumer for those that come."""
    desk = VirtualDesk(QUEUE + "max-backlog-per-consumer = 2\nmax-backlog-total = 1\n")
    desk.publish(*"abcdefgh")
    desk.consume(prefetch=100)
    assert [got.body for got in desk.taken()] == ["a"]
    desk.reload(QUEUE + "max-backlog-per-consumer = 5\n")
    desk.pair.end_turn()
    assert [got.body for got in desk.taken()] == ["b"]
    other = desk.other()
    other.consume(prefetch=100, tag="new")
    assert [got.body for got in other.taken()] == ["c", "d", "e", "f", "g"]


def test_other_limits_for_returns_and_cancels() -> None:
    """At the next end of a lease."""
    desk = VirtualDesk(many())
    desk.publish("a", "b")
    one, other = desk.must_get(), desk.must_get()
    desk.reload(many("cancel-limit = 1"))
    desk.nack(one)
    assert desk.get() is None
    desk.reload(many("max-deliveries = 1"))
    desk.nack(other)
    assert desk.get() is None and desk.counts() == (0, 0, 0)


def test_other_lifetimes() -> None:
    """For messages that arrive later."""
    desk = VirtualDesk(many())
    desk.publish("a")
    desk.reload(many("message-ttl = 1000"))
    desk.publish("b")
    desk.publish("c", expiration="5000")
    desk.advance_ms(1001)
    assert desk.counts()[0] == 2
    desk.reload(many('message-ttl = 1000\nexpiration-model = "queue"'))
    desk.publish("d", expiration="5000")
    desk.advance_ms(1001)
    assert desk.all() == "ac"


def test_whose_lease_may_be_acknowledged_by_whom() -> None:
    """Leasing: strict from now on; a late acknowledgement of what another has means nothing then."""
    for leasing, left in (("sublet", 0), ("strict", 1)):
        desk = VirtualDesk(many("lease-period = 1000"))
        desk.publish("a")
        late = desk.must_get()
        desk.reload(many(f'lease-period = 1000\nleasing = "{leasing}"'))
        desk.advance_ms(1050)
        other = desk.other()
        other.must_get()
        desk.ack(late)
        assert desk.counts()[1] == left


@pytest.mark.parametrize(
    ("said", "captured"),
    [
        ('queue-filter = "/n > 1"', ["q2"]),
        ('underlying-topic = "T"', ["q1", "q2", "T1", "T2"]),  # what is published to its name is of its target
        ('underlying-topic = "^[TU]$"\ndefault-publish-target = "T"\nqueue-filter = "/n = 1"', ["q1", "T1", "U1"]),
    ],
)
def test_what_is_captured(said: str, captured: list[str]) -> None:
    """By another topic, target or filter, for messages that come from then on; and back (queues page C.5)."""
    desk = VirtualDesk(many())

    def publish() -> list[str]:
        sent = {f"{key}{n}": desk.publish(f'{{"n": {n}}}', key=key, mandatory=True)[0] for key in "qTU" for n in (1, 2)}
        return [one for one in sent if sent[one] == "ack"]

    assert publish() == ["q1", "q2"]
    desk.reload(many(said))
    assert publish() == captured
    assert desk.counts()[0] == 2 + len(captured)
    held = desk.must_get()
    desk.reload(many())
    assert publish() == ["q1", "q2"]
    desk.ack(held)
    assert desk.counts() == (3 + len(captured), 0, 0)
    desk.delete()
    assert publish() == []


def test_what_is_captured_stays_so_over_another_change() -> None:
    """A filter that a reload gave is asked also when something else has changed since."""
    desk = VirtualDesk(many())
    desk.reload(many('queue-filter = "/n > 1"'))
    desk.reload(many('queue-filter = "/n > 1"\nlease-period = 1000'))
    desk.publish('{"n": 1}', '{"n": 2}')
    assert desk.counts()[0] == 1


def test_deliveries_name_the_publish_target_of_now() -> None:
    """What is published to a queue's name is of its target, also after a reload (queues page A.2)."""
    said = many('underlying-topic = "^[TU]$"\ndefault-publish-target = "T"')
    desk = VirtualDesk(said)
    desk.publish("a")
    assert desk.must_get().headers["x-topic"] == "T"
    desk.reload(said.replace('"T"', '"U"'))
    desk.publish("b")
    assert desk.must_get().headers["x-topic"] == "U"


def test_another_fairness() -> None:
    """The next message goes by it."""
    desk = VirtualDesk(many('fairness = "round-robin"'))
    desk.consume(prefetch=10)
    other = desk.other()
    other.consume(prefetch=10, tag="o")
    desk.publish("a", "b")
    assert (len(desk.taken()), len(other.taken())) == (1, 1)
    desk.reload(many('fairness = "fast"'))
    desk.publish("c", "d")
    assert (len(desk.taken()), len(other.taken())) == (2, 0)


# -- explain, definitions, the command line ---------------------------------------------------------------------------


def test_a_running_broker_explains_a_leased_queue() -> None:
    """Declared by the configuration, or by a client."""
    desk = VirtualDesk(QUEUE + "lease-period = 5\n")
    desk.declare("r", x_queue_type="amps", x_max_deliveries=3)
    for name, setting, rule in (
        ("q", ("lease-period", 5), "harness.toml:4: queue 'q' (x-lease-period)"),
        ("r", ("max-deliveries", 3), "queue argument (x-max-deliveries)"),
    ):
        (answer,) = desk.command("explain", name=name)
        rows = {row["name"]: row for row in answer["rows"]}
        assert (rows[setting[0]]["value"], rows[setting[0]]["rule"]) == (setting[1], rule)
        assert "redelivery-delay" not in rows and rows["fairness"]["value"] == "proportional"


def test_definitions_carry_leased_queues() -> None:
    """Exported and imported into another broker: the same arguments, and it works."""
    document = finished(export_steps(VirtualDesk(XML).pair.broker))
    (queue,) = (one for one in document["queues"] if one["name"] == "q")
    assert queue["arguments"] == {
        "x-queue-type": "amps",
        "x-message-type": "json",
        "x-underlying-topic": "Orders",
        "x-lease-period": 30_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "Dead",
    }
    desk = VirtualDesk()
    assert finished(import_steps(desk.pair.broker, json.loads(json.dumps(document))))["remarks"] == []
    assert desk.publish("a", exchange="Orders") == ["ack"]
    desk.must_get()
    desk.advance_ms(30_050)
    assert desk.must_get().body == "a"


#: Between them every argument of a leased queue, each other than its default.
EVERY = (
    {
        "x-replication": "group",
        "x-initial-owner": "here",
        "x-queue-domain": "d",
        "x-message-type": "binary",
        "x-underlying-topic": "^T",
        "x-default-publish-target": "T",
        "x-lease-period": 5,
        "x-max-backlog-total": 9,
        "x-max-backlog-per-consumer": 3,
        "x-message-ttl": 60_000,
        "x-expiration-model": "earliest",
        "x-expire-leased": "at-lease-end",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-reasons": "time_limit,max_cancels",
        "x-dead-letter-data": "{{AMPS_REASON}}",
        "x-queue-filter": "/n > 1",
        "x-recovery-point": "now",
        "x-fairness": "fast",
        "x-leasing": "strict",
        "x-max-deliveries": 4,
        "x-cancel-limit": 2,
        "x-file-backed": True,
        "x-deferred-ack-ttl": 1000,
        "x-priority-expr": "/n",
    },
    {"x-semantics": "at-most-once", "x-target-depth": 1000},
    {"x-barrier-expr": "/sync IS NOT NULL"},
)


def test_definitions_carry_every_setting_and_policies_of_leases() -> None:
    """There and back in JSON: declared by clients, and policies with keys of leased queues."""
    assert {key for arguments in EVERY for key in arguments} >= {element.argument for element in ELEMENTS}
    desk = VirtualDesk()
    broker = desk.pair.broker
    for number, arguments in enumerate(EVERY):
        desk.declare(f"q{number}", **{"x-queue-type": "amps", **arguments})
    policy = make_policy("p", "/", "^q1$", {"lease-period": 700, "leasing": "strict"})
    broker.reloading.replace_policies(broker.context.policies.with_these([policy]))
    document = finished(export_steps(broker))
    assert "amps.control" not in {one["name"] for one in document["exchanges"]}
    other = VirtualDesk()
    taken = finished(import_steps(other.pair.broker, json.loads(json.dumps(document))))
    assert taken["remarks"] == [] and taken["imported"]["queues"] == len(EVERY)
    for number in range(len(EVERY)):
        one, two = (each.vhost.queues[f"q{number}"] for each in (desk, other))
        assert two.durable and rules_in(two.rules).settings == rules_in(one.rules).settings
        assert replace(two.rules, extra=None) == replace(one.rules, extra=None)
    rules = rules_in(other.vhost.queues["q1"].rules).settings
    assert (rules.lease_period_ms, rules.leasing) == (700, "strict")
    again = finished(export_steps(other.pair.broker))
    assert [again[key] for key in ("queues", "policies", "exchanges")] == [
        document[key] for key in ("queues", "policies", "exchanges")
    ]


def leveret(*arguments: str | Path, **environment: str) -> tuple[int, str]:
    """Run it: exit code and what it prints."""
    done = node_forge.leveret(*map(str, arguments), environment=environment)
    return done.returncode, done.stdout + done.stderr


def test_check_explain_and_diff(tmp_path: Path) -> None:
    """On a file of AMPS, with a variable of the environment; faults have code and path."""
    one, other = tmp_path / "one.xml", tmp_path / "other.xml"
    one.write_text(XML.replace("30s", "${LEVERET_LEASE}"))
    other.write_text(XML.replace("30s", "1h30m"))
    code, text = leveret("check", one, LEVERET_LEASE="7s")
    assert (code, text.splitlines()[-1]) == (0, "ok") and "W-TXLOG" in text
    code, text = leveret("check", "--strict", one, LEVERET_LEASE="7s")
    assert code == 2 and "W-TXLOG" in text and "ok" not in text.splitlines()
    code, text = leveret("check", one)
    assert code == 2 and "LocalQueue/LeasePeriod: the environment has no variable LEVERET_LEASE" in text
    code, text = leveret("check", other)
    assert code == 2 and "AMPSConfig/SOW/LocalQueue/LeasePeriod: E-DUR: bad duration: '1h30m'" in text
    assert "lease-period = 7000" in leveret("explain", one, "q", LEVERET_LEASE="7s")[1]
    other.write_text(XML)
    code, text = leveret("diff", one, other, LEVERET_LEASE="7s")
    assert (code, text) == (1, "queue 'q': lease-period: 7000 -> 30000 (at once)\n")


def test_included_files_are_read_and_watched(tmp_path: Path) -> None:
    """Beside the file that includes them; one that is no longer included, and gone, is not missed."""
    queues = tmp_path / "parts" / "queues.xml"
    queues.parent.mkdir()
    queues.write_text("<SOW><LocalQueue><Name>q</Name><MessageType>json</MessageType></LocalQueue></SOW>")
    whole = tmp_path / "amps.xml"
    whole.write_text("<AMPSConfig><Include>parts/queues.xml</Include></AMPSConfig>")
    assert leveret("check", whole)[0] == 0
    assert "declared at " + str(queues) in leveret("explain", whole, "q")[1]
    queues.write_bytes(b"<SOW>\xff</SOW>")
    assert leveret("check", whole) == (2, f"{whole}:1: AMPSConfig/Include: 'parts/queues.xml' is not UTF-8 text\n")
    whole.write_text("<AMPSConfig><Include>parts</Include></AMPSConfig>")
    assert leveret("check", whole) == (2, f"{whole}:1: AMPSConfig/Include: 'parts' is not a file\n")


def test_which_files_are_watched() -> None:
    """The given ones and those that they include now."""
    one, two = FileMark(1, 1, 1), FileMark(2, 2, 2)
    watch = FileWatch({"a": one})
    watch.follow({"b": one, "c": one})
    assert watch.files == ("a", "b", "c")
    for finding in (Finding(is_settling=True), Finding(changed=("b",))):
        assert watch.look({"a": one, "b": two, "c": one}) == finding
    watch.follow({"c": one})
    assert watch.files == ("a", "c")
    assert watch.look({"a": one, "c": one}) == NOTHING
