"""Whose messages they are: own site first, transfer, lost sites, backlogs and fairness by site.

Three sites with one queue; the rows are of cluster page 13. All in virtual time. Source: cluster page 12.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from owned_sites import SITES, OwnedSites, owned_queue

from leveret.engine.errors import InvalidArgument
from leveret.engine.leases import list_leases, list_owners
from leveret.engine.leases.owners import ALONE, OWNERS_MAX, TOGETHER, OwnerRuns, Owners, Waits
from leveret.engine.leases.state import leases_of
from leveret.engine.messages.field_table import Field
from leveret.engine.options import BrokerOptions
from leveret.operator.steps import finished
from leveret.testing.harness import Harness, arguments_of


@pytest.fixture
def sites() -> OwnedSites:
    return owned_queue()


def test_a_message_goes_where_a_consumer_is(sites: OwnedSites) -> None:
    """D01: published at n1, a consumer at n2 alone: at once."""
    sites.reader("n2")
    sites.publish("a", by=sites.at["n1"])
    assert sites.taken("n2") == "a"
    assert sites.transfers() == ["{'from': 'n1', 'to': 'n2'}"]


def test_the_own_site_comes_first(sites: OwnedSites) -> None:
    """D02: consumers at n1, with room, and n2: all at n1."""
    sites.reader("n2", prefetch=100)
    sites.reader("n1", prefetch=100)
    sites.publish(*"abcdef", by=sites.at["n1"])
    sites.advance(1000)
    assert (sites.taken("n1"), sites.taken("n2"), sites.transfers()) == ("abcdef", "", [])


def test_idle_consumers_get_a_message_once(sites: OwnedSites) -> None:
    """D03: idle ones at n2 and n3, one message of n1."""
    sites.reader("n2")
    sites.reader("n3")
    sites.publish("a", by=sites.at["n1"])
    sites.advance(1000)
    assert sites.taken() == "a" and len(sites.transfers()) == 1


def test_a_busy_site_keeps_its_messages_for_50_ms(sites: OwnedSites) -> None:
    """Its consumer has no room. Then the oldest goes to another site; the rest follows in order."""
    sites.reader("n1")
    sites.reader("n2", prefetch=2)
    sites.publish(*"abcd", by=sites.at["n1"])
    assert (sites.taken("n1"), sites.taken("n2")) == ("a", "")
    sites.advance(49)
    assert sites.taken("n2") == ""
    sites.advance(1)
    assert sites.taken("n2") == "bc"
    assert sites.transfers() == ["{'from': 'n1', 'to': 'n2'}"]


def test_a_reload_changes_how_long_messages_wait_for_their_site(sites: OwnedSites) -> None:
    """transfer-after: of messages that are there, too. With 0 they go at once."""

    def reload(transfer_after_ms: int) -> None:
        sites.broker.reloading.replace_settings(
            sites.broker.context.settings, BrokerOptions(transfer_after_ms=transfer_after_ms)
        )
        sites.end_turn()

    reload(5_000)
    sites.reader("n1")
    sites.reader("n2", prefetch=3)
    for _ in range(3):
        sites.publish("a", by=sites.at["n1"])
        sites.advance(100)
    assert sites.taken("n2") == ""
    reload(250)
    assert sites.taken("n2") == ""
    sites.advance(50)  # the second one came 250 ms ago
    assert sites.taken("n2") == "a"
    reload(0)
    assert sites.taken("n2") == "a"
    sites.publish("b", by=sites.at["n1"])
    assert sites.taken("n2") == "b"


def test_marks_of_a_long_wait_take_little_memory(sites: OwnedSites) -> None:
    """Of many messages those that come within 2 % of it wait until the same time; none goes before its own."""
    second = 1_000_000_000
    sites.broker.sites.transfer_after_ns = 3600 * second
    waits = Waits(sites.broker.sites)
    for number in range(1, 3600):
        waits.note(number, number * second)
    assert len(waits._marks) <= ALONE + TOGETHER and waits.waited_id == 0
    waits.forget_waited((3600 + ALONE) * second)
    assert waits.waited_id == ALONE - 1  # the next one is the first of many
    for waited in range(200):
        waits.forget_waited((3600 + ALONE + waited) * second)
        assert waited - 3600 // TOGETHER <= waits.waited_id - ALONE <= waited
    assert waits.next_ns() > (3600 + ALONE + 199) * second


def test_a_message_waits_for_its_site_since_it_came(sites: OwnedSites) -> None:
    """Not since the one before, which came just before it."""
    sites.reader("n1")
    sites.reader("n2", prefetch=10)
    sites.publish("a", "b", by=sites.at["n1"])
    sites.advance(0.6)
    sites.publish("c", by=sites.at["n1"])
    sites.advance(49.4)
    assert sites.taken("n2") == "b"
    sites.advance(0.5)
    assert sites.taken("n2") == ""
    sites.advance(0.1)
    assert sites.taken("n2") == "c"


def delayed(sites: OwnedSites, ms: int, *bodies: str, by: str) -> None:
    """Publish messages that are ready later."""
    sites.publish(*bodies, by=sites.at[by], headers={"_AMQ_SCHED_DELIVERY": sites.clock.wall_ms() + ms})


@pytest.mark.parametrize("arguments", [{}, {"x_priority_expr": "rank"}, {"x_target_depth": 1000}])
def test_a_delayed_message_waits_for_its_site_since_it_is_ready(arguments: dict[str, Any]) -> None:
    """Not since it was published; and younger messages that have waited longer go before it."""
    sites = owned_queue(**arguments)
    sites.reader("n1")
    sites.reader("n2", prefetch=10)
    sites.publish("x", by=sites.at["n1"])
    delayed(sites, 500, "late", by="n1")
    sites.advance(460)
    sites.publish("y", by=sites.at["n1"])
    sites.advance(50)
    assert sites.taken("n2") == "y"  # 10 ms after the delayed one is ready
    sites.advance(39)
    assert sites.taken("n2") == ""
    sites.advance(1)
    assert (sites.taken("n1"), sites.taken("n2")) == ("x", "late")


@pytest.mark.parametrize("asked", [{}, {"x_filter": "1 = 1"}])
def test_delayed_messages_are_their_publishers(sites: OwnedSites, asked: dict[str, Any]) -> None:
    """They stand behind younger ones of other sites."""
    delayed(sites, 500, "late", by="n1")
    sites.publish("b", "c", by=sites.at["n2"])
    sites.advance(500)
    sites.reader("n2", prefetch=10, **asked)
    assert sorted(sites.taken("n2")) == sorted("bclate")
    assert sites.transfers() == ["{'from': 'n1', 'to': 'n2'}"]


@pytest.mark.parametrize(
    "arguments", [{}, {"x_priority_expr": "rank"}, {"x_barrier_expr": "rank = 9"}, {"x_target_depth": 1000}]
)
def test_a_dispatch_with_little_time_goes_on(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]) -> None:
    """Many filters use up its time. Yet it looks at a message, so that the next one does not begin the same again."""
    for module in ("by_site", "dispatch"):
        monkeypatch.setattr(f"leveret.engine.leases.{module}.SEARCH_EFFORT", 2)
    sites = owned_queue(**arguments)
    sites.reader("n1", prefetch=5)
    sites.reader("n2", prefetch=5, x_filter="a = 1")
    sites.ends_turns = False
    for number in range(6):
        sites.publish(f"{number}", by=sites.at[SITES[number % 3]], headers={"a": number % 2, "rank": number})
    turns = sum(1 for _ in iter(sites.turn, False))
    assert turns < 100 and sorted(sites.taken()) == ["0", "1", "2", "3", "5"]
    sites.ends_turns = True
    sites.advance(50)
    assert sites.taken() == "4"


def test_a_site_takes_its_own_before_older_ones_of_others(sites: OwnedSites) -> None:
    """Though those may be transferred at once."""
    sites.publish("a", "b", by=sites.at["n1"])
    sites.publish("c", by=sites.at["n2"])
    sites.publish("d", by=sites.at["n3"])
    sites.reader("n2")
    sites.client_of("n2")
    order = ""
    for tag in range(1, 5):
        order += sites.taken("n2")
        sites.client_of("n2").ack(tag)
        sites.end_turn()
    assert order == "cabd"


def test_a_transferred_message_stays_where_it_went(sites: OwnedSites) -> None:
    """Given back, it is READY at n2: a free consumer of n1, who published it, does not get it before its time."""
    sites.reader("n2")
    sites.publish("a", by=sites.at["n1"])
    sites.reader("n1")
    sites.client_of("n2").reject(1, requeue=True)
    sites.end_turn()
    assert (sites.taken("n2"), sites.taken("n1")) == ("aa", "")


def test_a_site_that_hosts_the_queue_again_is_served(sites: OwnedSites) -> None:
    """Its files had another filter for a while: its consumer had nothing then, and its messages went at once."""
    filter_ = {"x_queue_filter": "1 = 1"}
    queue = {"x_replication": "distributed", "x_max_backlog_per_consumer": 5}

    def declare(site: str, **arguments: Any) -> None:
        table = {"x-queue-type": Field("S", b"amps"), **arguments_of({**queue, **arguments})}
        sites.vhost.queues.declare("other", client=None, durable=True, arguments=table, site=site)

    for site in SITES:
        declare(site)
    sites.consume("other", by=sites.connect(site="n3"), prefetch=5, tag="n3")
    sites.publish("a", by=sites.at["n3"], key="other")
    assert sites.taken("n3") == "a"
    with pytest.raises(InvalidArgument, match="E-MISMATCH"):
        declare("n3", **filter_)
    sites.publish("b", by=sites.at["n1"], key="other")
    sites.advance(100)
    (row, *_) = finished(list_owners(sites.vhost.queues["other"]))
    assert (sites.taken("n3"), row["ready"], row["waits_for"]) == ("", 1, "a consumer")
    declare("n3")
    sites.end_turn()
    assert sites.taken("n3") == "b"


@pytest.mark.parametrize("arguments", [{}, {"x_priority_expr": "1"}])
def test_more_sites_than_a_queue_tells_apart_get_all_messages(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Those beyond 30 have what belongs to the leader, also when one of them leads; a lost one's goes to others."""
    names = [f"n{number}" for number in range(1, 36)]
    sites = owned_queue(tmp_path, names, **arguments)

    def publish() -> None:
        for name in names:
            sites.publish(f"{name} ", by=sites.connect(site=name), delivery_mode=2)

    def take(*at: str) -> list[str]:
        for name in at:
            sites.reader(name, prefetch=10)
        got = ""
        for _ in range(8):
            sites.advance(60)
            got += sites.taken()
            for consumer in sites.named().consumers:
                for tag in list(consumer.session.unacked):
                    consumer.session.ack(tag)
            sites.end_turn()
        return sorted(got.split())

    publish()
    assert len(sites.owners.names) == OWNERS_MAX + 1
    assert take("n2", "n34", "n35") == sorted(names)
    publish()
    sites._options["site"] = "n35"
    sites.restart()
    assert take("n1", "n33") == sorted(names)
    publish()
    for name in ("n1", "n34"):
        sites.broker.sites.went(name)
    sites.advance(3000)
    assert sorted([*take("n34"), *sites.taken().split()]) == sorted(names)


def test_a_lost_site_has_its_messages_taken(sites: OwnedSites) -> None:
    """D05, D06: n1 owns 10 and goes; another gets each once, without an operator; n1 is back and delivers none."""
    reader = sites.at["n2"]
    sites.reader("n2", "r", prefetch=4)
    sites.publish(*"0123456789", by=sites.at["n3"])
    assert sites.taken("r") == "0123"
    sites.broker.sites.went("n3")
    for tag in range(1, 11):
        sites.client_of("r").ack(tag)
        sites.end_turn()
    sites.broker.sites.came("n3")
    sites.reader("n3")
    assert (sites.taken("r"), sites.taken("n3")) == ("456789", "")
    assert reader.client.site == "n2"


def test_the_leases_of_a_lost_site_end_at_once(sites: OwnedSites) -> None:
    """Why: site_lost. Its consumers get nothing meanwhile; what nobody took is its own again when it is back."""
    sites.reader("n3", prefetch=5)
    sites.publish("a", "b", by=sites.at["n3"])
    assert sites.taken() == "ab"
    sites.broker.sites.went("n3")
    sites.end_turn()
    assert sites.events == [("lease_ended", "{'why': 'site_lost'}", [1, 2])] and sites.taken() == ""
    sites.broker.sites.came("n3")
    sites.end_turn()
    assert sites.taken("n3") == "ab" and sites.transfers() == []


def test_a_site_that_is_gone_for_3_s_is_given_up(sites: OwnedSites) -> None:
    """Its consumers would have had 50 ms; its messages are stranded, and go at once."""
    sites.broker.sites.went("n3")
    assert not sites.broker.sites.is_lost("n3")
    sites.advance(2999)
    assert not sites.broker.sites.is_lost("n3")
    sites.advance(1)
    assert sites.broker.sites.is_lost("n3")


def test_an_initial_owner_that_is_not_there() -> None:
    """Its messages are stranded and served."""
    sites = owned_queue(x_replication="group", x_initial_owner="n9", x_queue_domain="X")
    sites.consume("q@X", "r", by=sites.at["n1"])
    sites.publish("a", by=sites.at["n1"])
    assert sites.taken("r") == "a" and sites.transfers() == ["{'from': 'n9', 'to': 'n1'}"]


def test_messages_of_a_site_that_was_given_up_wait_for_nobody() -> None:
    """The initial owner is lost, and its connections linger. Until then they wait for it."""
    sites = owned_queue(x_replication="group", x_initial_owner="n2", x_queue_domain="X")
    sites.queue(client=sites.at["n2"].client, **sites.arguments)
    sites.consume("q", "r1", by=sites.at["n1"], prefetch=10)
    sites.consume("q", "r2", by=sites.at["n2"])
    sites.broker.sites.went("n2")
    sites.publish("a", by=sites.at["n1"])
    assert sites.taken() == ""
    sites.advance(3000)
    assert sites.taken() == "a"
    sites.publish("b", by=sites.at["n1"])
    assert sites.taken() == "b"


def test_the_initial_owner_comes_first() -> None:
    """Whoever published."""
    sites = owned_queue(x_replication="group", x_initial_owner="n2", x_queue_domain="X")
    for site in ("n2", "n3"):
        sites.queue(client=sites.at[site].client, **sites.arguments)
    sites.consume("q", "r1", by=sites.at["n1"])
    sites.consume("q", "r2", by=sites.at["n2"])
    sites.publish("a", by=sites.at["n1"])
    sites.publish("b", by=sites.at["n3"])
    assert (sites.taken("r1"), sites.taken("r2")) == ("", "a")
    sites.advance(50)
    assert (sites.taken("r1"), sites.taken("r2")) == ("b", "")


def test_the_backlog_is_by_site() -> None:
    """D15: MaxBacklog 2, consumers at three sites: 2 at each."""
    sites = owned_queue(x_max_backlog_total=2)
    for site in SITES:
        sites.reader(site, prefetch=100)
        sites.reader(site, f"{site} too", prefetch=100)
    sites.publish(*"0123456789", by=sites.at["n1"])
    sites.advance(1000)
    held = {site: sites.taken(site) + sites.taken(f"{site} too") for site in SITES}
    assert held == {"n1": "01", "n2": "24", "n3": "35"} or sorted(map(len, held.values())) == [2, 2, 2]
    assert sites.named().unacked == 6


def test_fairness_is_by_site() -> None:
    """Round robin at each site by itself."""
    sites = owned_queue(x_fairness="round-robin")
    for tag, site in (("a1", "n1"), ("b1", "n2"), ("a2", "n1"), ("b2", "n2")):
        sites.reader(site, tag, prefetch=100)
    for site in ("n1", "n2") * 4:
        sites.publish("x", by=sites.at[site])
    assert [len(sites.taken(tag)) for tag in ("a1", "a2", "b1", "b2")] == [2, 2, 2, 2]


def test_filters_at_sites(sites: OwnedSites) -> None:
    """The best match of the own site; then the oldest match elsewhere, whose own consumers do not take it."""
    sites.reader("n1", "r1", prefetch=100, x_filter="a = 1")
    sites.reader("n2", "r2", prefetch=100, x_filter="a = 2")
    for number, a in enumerate((2, 1, 2)):
        sites.publish(str(number), by=sites.at["n1"], headers={"a": a})
    sites.publish("3", by=sites.at["n2"], headers={"a": 2})
    assert (sites.taken("r1"), sites.taken("r2")) == ("1", "3")
    sites.advance(50)
    assert (sites.taken("r1"), sites.taken("r2")) == ("", "02")


def test_priorities_at_sites() -> None:
    """By rank within a site."""
    sites = owned_queue(x_priority_expr="rank")
    for number, (site, rank) in enumerate((("n1", 1), ("n2", 9), ("n1", 5))):
        sites.publish(str(number), by=sites.at[site], headers={"rank": rank})
    sites.reader("n1", prefetch=1)
    order = ""
    for tag in range(1, 4):
        order += sites.taken()
        sites.client_of("n1").ack(tag)
        sites.end_turn()
    assert order == "201"


def test_a_barrier_waits_for_all_sites() -> None:
    """D14: an earlier message is out at n3; the barrier of n1 is released when that is settled."""
    sites = owned_queue(x_barrier_expr="sync = 1")
    sites.reader("n3")
    sites.publish("a", by=sites.at["n1"])
    sites.reader("n1", prefetch=10)
    sites.publish("S", by=sites.at["n1"], headers={"sync": 1})
    sites.publish("b", by=sites.at["n1"])
    assert (sites.taken("n3"), sites.taken("n1")) == ("a", "")
    sites.client_of("n3").ack(1)
    sites.end_turn()
    assert (sites.taken("n3"), sites.taken("n1")) == ("S", "Sb")


def test_a_barrier_does_not_go_to_a_site_that_is_gone() -> None:
    """Though its consumer is still subscribed; it has it when the site is back."""
    sites = owned_queue(x_barrier_expr="sync = 1")
    sites.reader("n3", prefetch=10)
    sites.broker.sites.went("n3")
    sites.publish("S", by=sites.at["n1"], headers={"sync": 1})
    sites.publish("b", by=sites.at["n1"])
    sites.advance(100)
    assert (sites.taken(), sites.named().ready_count) == ("", 2)
    sites.broker.sites.came("n3")
    sites.end_turn()
    assert sites.taken() == "Sb"


def test_a_delayed_barrier_is_one() -> None:
    """What came while it was delayed is not behind it; what comes later is."""
    sites = owned_queue(x_barrier_expr="sync = 1")
    due_ms = sites.clock.wall_ms() + 500
    sites.publish("S", by=sites.at["n1"], headers={"sync": 1, "_AMQ_SCHED_DELIVERY": due_ms})
    sites.reader("n1", prefetch=10)
    sites.advance(500)
    assert sites.taken() == "S"
    sites.publish("S", by=sites.at["n1"], headers={"sync": 1, "_AMQ_SCHED_DELIVERY": due_ms + 500})
    sites.publish("a", by=sites.at["n1"])
    sites.advance(500)
    assert sites.taken() == "a"
    sites.publish("b", by=sites.at["n1"])
    assert sites.taken() == ""
    sites.client_of("n1").ack(2)
    sites.end_turn()
    assert sites.taken() == "Sb"


def test_a_get_does_not_pass_a_barrier() -> None:
    """Nor has it the barrier, as long as a message of another site is before it."""
    sites = owned_queue(x_barrier_expr="sync = 1")
    sites.reader("n1")
    sites.publish("x", "a", by=sites.at["n1"])
    sites.publish("S", by=sites.at["n2"], headers={"sync": 1})
    sites.publish("b", by=sites.at["n2"])
    assert sites.get(by=sites.at["n2"]) is None
    sites.advance(50)
    got = sites.get(by=sites.at["n2"], no_ack=False)
    assert got is not None and got[1].body == b"a"
    assert sites.get(by=sites.at["n2"]) is None
    sites.at["n2"].ack(got[0])
    sites.client_of("n1").ack(1)
    sites.end_turn()
    assert sites.taken("n1") == "xSb"


def test_a_younger_message_of_a_higher_rank_does_not_hold_an_older_one_back() -> None:
    """The consumer at n2 has room: at 50 ms the first one goes there, though another one has to wait."""
    sites = owned_queue(x_priority_expr="rank")
    sites.reader("n1")
    sites.reader("n2")
    sites.publish("x", "low", by=sites.at["n1"], headers={"rank": 1})
    sites.advance(40)
    sites.publish("high", by=sites.at["n1"], headers={"rank": 5})
    sites.advance(10)
    assert (sites.taken("n1"), sites.taken("n2")) == ("x", "low")
    sites.client_of("n2").ack(1)
    sites.end_turn()
    sites.advance(39)
    assert sites.taken("n2") == ""
    sites.advance(1)
    assert sites.taken("n2") == "high"


def test_a_get_at_a_site_that_is_gone(sites: OwnedSites) -> None:
    """Has nothing: its lease would not end with the site."""
    sites.publish("a", by=sites.at["n3"])
    sites.broker.sites.went("n3")
    assert sites.get(by=sites.at["n3"]) is None
    sites.broker.sites.came("n3")
    got = sites.get(by=sites.at["n3"])
    assert got is not None and got[1].body == b"a"


def test_gets_at_sites(sites: OwnedSites) -> None:
    """The own first, then what may be transferred; before its time it is not there."""
    sites.reader("n1")
    sites.publish(*"abc", by=sites.at["n1"])
    sites.publish("d", by=sites.at["n2"])
    bodies = [got[1].body for _ in range(2) if (got := sites.get(by=sites.at["n2"])) is not None]
    assert bodies == [b"d"]
    sites.advance(50)
    got = sites.get(by=sites.at["n2"])
    assert got is not None and got[1].body == b"b" and len(sites.transfers()) == 1


def test_a_transfer_reads_forward_to_an_inactive_message() -> None:
    """TargetQueueDepth: to the message that another site asks for, and no further."""
    sites = owned_queue(x_target_depth=1000)
    for number in range(1500):
        sites.publish("x", by=sites.at["n1"], headers={"n": number})
    sites.reader("n2", prefetch=10, x_filter="n = 1200")
    assert sites.taken("n2") == "x"
    active = leases_of(sites.named()).active
    assert active is not None and active.end == 1201
    sites.reader("n3", prefetch=10, x_filter="n = 5000")
    assert active.end == 1201


def test_a_transfer_gives_nothing_that_was_acknowledged_before_it_was_active() -> None:
    """TargetQueueDepth: a message is gone as soon as it becomes active, also because another site asks for it."""
    sites = owned_queue(x_target_depth=1000)
    first = sites.broker.context.next_id
    for number in range(1500):
        sites.publish(f"{number}", by=sites.at["n1"], headers={"n": number})
    steps = sites.named().kind.discarding(sites.named(), f"1|{first + 1100}|", None, "")
    assert finished(steps).deferred == 1
    sites.reader("n2", prefetch=10, x_filter="n = 1100 OR n = 1200")
    sites.advance(100)
    assert sites.taken("n2") == "1200"


def test_operators_see_whose_messages_they_are(sites: OwnedSites) -> None:
    """By node; of a node that is lost they are stranded. Explanations name the hosts."""
    sites.reader("n2", prefetch=1)
    for site in ("n1", "n2", "n2", "n3"):
        sites.publish("x", by=sites.at[site])
    sites.broker.sites.went("n3")
    sites.advance(3000)
    (row, *_), rows = list_leases(sites.named(), 10), finished(list_owners(sites.named()))
    assert (row["node"], row["owner"]) == ("n2", "n2")  # the first one came from n1, and is transferred
    assert [(one["node"], one["ready"], one["stranded"], one["leased"]) for one in rows] == [
        ("n1", 0, 0, 0),
        ("n2", 2, 0, 1),
        ("n3", 0, 1, 0),
    ]
    assert rows[1]["waits_for"] == "a consumer with room, at any node" and not rows[2]["is_there"]
    described = {name: value for name, value, _ in sites.named().kind.describe(sites.named())}
    assert described["hosted-by"] == "n1, n2" and described["owner"] == "by message"


def joined(path: Path, **arguments: Any) -> OwnedSites:
    """OwnedSites whose queue has the messages a to c from a time without a cluster."""
    arguments = {"x_replication": "distributed", "x_max_backlog_per_consumer": 100, **arguments}
    plain = Harness(kind="amps", journal=path)
    plain.queue(**arguments)
    plain.publish(*"abc", headers={"a": 1}, delivery_mode=2)
    plain.checkpoint()
    plain.close()
    return OwnedSites(kind="amps", site="n1", groups=dict.fromkeys(SITES, ""), journal=path)


@pytest.mark.parametrize("arguments", [{}, {"x_priority_expr": "rank"}, {"x_target_queue_depth": 5}])
@pytest.mark.parametrize("asked", [{}, {"x_filter": "a = 1"}])
@pytest.mark.parametrize("site", ["n1", "n2"])
def test_messages_of_no_known_owner_are_the_brokers_own(
    tmp_path: Path, arguments: dict[str, Any], asked: dict[str, Any], site: str
) -> None:
    """The queue is from before the cluster."""
    sites = joined(tmp_path, **arguments)
    sites.reader(site, prefetch=10, **asked)
    sites.publish("d", by=sites.at["n3"], headers={"a": 1})
    sites.advance(50)
    assert sites.taken() == "abcd"
    assert sites.transfers().count("{'from': 'n1', 'to': 'n2'}") == (site == "n2")


def test_messages_of_no_known_owner_count_in_the_backlog(tmp_path: Path) -> None:
    """Beside others of the same site."""
    sites = joined(tmp_path, x_max_backlog_total=2)
    sites.publish(*"def", by=sites.at["n1"])
    sites.reader("n1", prefetch=2)
    assert sites.taken() == "ab"


def test_changes_of_owners_that_a_checkpoint_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those messages belong to the own site."""
    monkeypatch.setattr("leveret.engine.leases.owners.KEPT_OCTETS", 600)
    sites = owned_queue(tmp_path, x_max_backlog_per_consumer=1000)
    for number in range(600):
        sites.publish("x", by=sites.at[("n2", "n3")[number % 2]], headers={"a": 1}, delivery_mode=2)
    sites.restart()
    for site in ("n1", "n2"):
        sites.reader(site, prefetch=1000, x_filter="a = 1")
    sites.advance(1000)
    assert len(sites.taken()) == 600 and sites.named().ready_count == 0


def test_sites_beyond_those_that_a_queue_tells_apart() -> None:
    """Their messages are the own site's, and their consumers get those."""
    many = [f"m{number}" for number in range(40)]
    sites = owned_queue(groups=[*SITES, *many])
    publishers = {site: sites.connect(site=site) for site in many}
    for site in many:
        sites.publish(f"{site} ", by=publishers[site], headers={"a": 1})
    for site in ("m39", "n1"):
        sites.reader(site, prefetch=100, x_filter="a = 1")
    sites.advance(1000)
    assert sorted(sites.taken().split()) == sorted(many)
    sites.publish("m38", by=publishers["m38"], headers={"a": 1})
    assert sites.taken() == "m38"


def rebuilt(**arguments: Any) -> OwnedSites:
    """OwnedSites whose queue r was built from the log, with the messages a to c."""
    sites = owned_queue()
    sites.vhost.exchanges.declare("orders", "topic")
    client, topic = sites.at["n1"].client, {"x_replication": "distributed", "x_underlying_topic": "orders"}
    sites.queue("p", client=client, **topic)
    sites.publish(*"abc", key="k", exchange="orders", by=sites.at["n1"], headers={"a": 1})
    sites.queue("r", client=client, **topic, x_recovery_point="epoch", x_max_backlog_per_consumer=100, **arguments)
    for _ in range(3):
        sites.end_turn()
        sites.advance(100)
    assert sites.named("r").ready_count == 3
    return sites


@pytest.mark.parametrize("arguments", [{}, {"x_priority_expr": "rank"}, {"x_target_queue_depth": 5}])
@pytest.mark.parametrize("site", ["n1", "n2"])
def test_messages_from_the_log(arguments: dict[str, Any], site: str) -> None:
    """They belong to the own site, and any site gets them."""
    sites = rebuilt(**arguments)
    sites.consume("r", by=sites.connect(site=site), prefetch=10, x_filter="a = 1")
    assert sites.taken() == "abc"


def test_messages_from_the_log_need_not_wait() -> None:
    """The own site has a consumer without room."""
    sites = rebuilt()
    sites.consume("r", "n1", by=sites.connect(site="n1"), prefetch=1)
    sites.consume("r", "n2", by=sites.connect(site="n2"), prefetch=10)
    assert (sites.taken("n1"), sites.taken("n2")) == ("a", "bc")


def test_a_message_from_the_log_comes_between_others() -> None:
    """It has the owner of those before it, and is found."""
    owners = Owners(owned_queue().broker.sites, None)
    one, other = map(owners.number_of_site, ("n2", "n3"))
    owners.set_owner(10, 10, one)
    owners.set_owner(20, 20, other)
    for id_ in (5, 15, 25):
        owners.add_from_log(id_)
    assert [owners.site_of(id_) for id_ in (5, 15, 20, 25)] == ["n1", "n2", "n3", "n3"]
    assert [owners.next_id_of(number, 12) for number in (owners.own_number(), one, other)] == [None, 13, 20]
    assert owners.next_id_of(other, 24) == 25 and owners.next_id_of(owners.own_number(), 4) == 5


def test_a_dead_letter_of_a_transferred_message() -> None:
    """It goes to the queue of the site that had the message."""
    sites = owned_queue(x_dead_letter_exchange="", x_dead_letter_routing_key="dlq", x_max_cancels=1)
    dead = {site: sites.queue("dlq", client=sites.at[site].client, x_replication="local") for site in ("n1", "n2")}
    sites.reader("n2")
    sites.publish("a", by=sites.at["n1"])
    sites.client_of("n2").reject(1, requeue=False)
    sites.end_turn()
    assert (dead["n1"].ready_count, dead["n2"].ready_count) == (0, 1)


def test_the_owners_of_messages_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    """Behind messages that no consumer takes."""
    sites = owned_queue(tmp_path)
    for site in ("n1", "n2"):
        sites.reader(site, prefetch=50, x_filter="a = 1")
    sites.publish("stays", by=sites.at["n3"], headers={"a": 2}, delivery_mode=2)
    for number in range(1200):
        sites.publish("x", by=sites.at[("n1", "n2")[number % 2]], headers={"a": 1}, delivery_mode=2)
        for delivery in sites.deliveries:
            delivery.consumer.session.ack(delivery.tag)
        sites.deliveries.clear()
        sites.end_turn()
    sites.publish("stays too", by=sites.at["n2"], headers={"a": 2}, delivery_mode=2)
    sites.checkpoint()
    owners = leases_of(sites.named()).owners
    assert owners is not None and len(owners.runs) < 100
    sites.restart()
    owners = leases_of(sites.named()).owners
    assert owners is not None and [owners.site_of(one.id) for one in sites.named().messages()] == ["n3", "n2"]


def test_what_an_owner_has_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, which does not know where the messages of an owner end."""
    runs, again = OwnerRuns(), OwnerRuns()
    for id_ in range(1, 2000):
        runs.append(id_, id_, 3 if id_ == 1 else 1 + id_ % 2)
    again.restore(runs.to_octets())
    assert again.next_of(3, 1) is None
    monkeypatch.setattr(OwnerRuns, "_read", None)
    assert again.next_of(3, 1) is None


def test_returned_messages_by_owner() -> None:
    """In many runs, and one by one."""
    owners = Owners(owned_queue().broker.sites, None)
    one, other = map(owners.number_of_site, ("n2", "n3"))
    owners.set_owner(1, 100, owners.number_of_site("n1"))
    owners.move(range(10, 90), one)
    owners.note_ready(range(0, 101))
    owners.move((40, 41), other)
    owners.note_ready((41, 40, 40))
    owners.note_taken((10, 12))
    owners.forget(range(60, 101))
    assert owners.moved_ready == {one: [11, *range(13, 40), *range(42, 60)], other: [40, 41]}
    assert (owners.next_id_of(one, 11), owners.next_id_of(other, 40), owners.next_id_of(one, 59)) == (13, 41, None)


@pytest.mark.parametrize("gap, octets", [(1, 1), (4, 1), (5, 2), (1027, 2), (1028, 3), (1155, 3), (1156, 4)])
def test_octets_of_a_change_of_owners(gap: int, octets: int) -> None:
    """Each message of another owner than the one before; between them are messages of other queues."""
    runs = OwnerRuns()
    owned = {at * gap: at % 31 for at in range(3, 10_000)}
    for id_, number in owned.items():
        runs.append(id_, id_, number)
    assert (octets - 0.1) * len(owned) <= len(runs) <= octets * len(owned)
    assert all(runs.number_of(id_) == number for id_, number in owned.items())
    again = OwnerRuns()
    again.restore(runs.to_octets())
    assert all(again.number_of(id_) == number for id_, number in owned.items())


@pytest.mark.parametrize("gap", [1, 2, 4, 5, 6, 1027, 1028, 1029, 1155, 1156, 5000, 1 << 21, 1 << 40])
def test_ids_may_be_far_apart(gap: int) -> None:
    """Messages of other queues are between them."""
    runs = OwnerRuns()
    for at in range(500):
        runs.append(1 + at * gap, 1 + at * gap, at % 3)
    assert [runs.number_of(1 + at * gap) for at in range(500)] == [at % 3 for at in range(500)]
    assert runs.next_of(2, 1 + 400 * gap) == 1 + 401 * gap
    assert runs.next_of(2, 1 + 499 * gap) is None
    runs.trim(1 + 300 * gap)
    assert runs.number_of(1 + 300 * gap) == 0 and runs.number_of(1 + 301 * gap) == 1


@pytest.mark.parametrize("end", [OwnedSites.restart, OwnedSites.kill], ids=["restart", "kill"])
def test_owners_survive_a_restart(tmp_path: Any, end: Callable[[OwnedSites], None]) -> None:
    """Those of a checkpoint, and after a kill those of records. A transfer, too."""

    class Kept(OwnedSites):
        arguments: dict[str, Any] = {"x_replication": "distributed", "x_max_backlog_per_consumer": 100}

    sites = Kept(kind="amps", site="n1", groups=dict.fromkeys(SITES, ""), journal=tmp_path)
    for site in ("n1", "n2", "n3"):
        sites.publish(f"{site} ", by=sites.at[site], delivery_mode=2)
    sites.checkpoint()
    for site in ("n3", "n2", "n1"):
        sites.publish(f"{site} again ", by=sites.at[site], delivery_mode=2)
    sites.reader("n2", "r", prefetch=1)
    sites.client_of("r").ack(1)
    sites.end_turn()
    sites.client_of("r").ack(2)
    sites.end_turn()
    assert sites.taken("r") == "n2 n2 again n1 "
    end(sites)
    owners = leases_of(sites.named()).owners
    assert owners is not None
    assert [(message.body, owners.site_of(message.id)) for message in sites.named().messages()] == [
        (b"n1 ", "n2"),
        (b"n3 ", "n3"),
        (b"n3 again ", "n3"),
        (b"n1 again ", "n1"),
    ]
