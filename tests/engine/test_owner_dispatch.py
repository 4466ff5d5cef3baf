"""How messages are dealt to the consumers of several sites: runs, turns, limits of a run. Source: cluster page 12."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from owned_sites import SITES, OwnedSites, owned_queue

from leveret.engine.leases import by_site
from leveret.engine.leases.owners import OwnerRuns, Owners
from leveret.engine.leases.state import leases_of
from leveret.settings.leases.element_values import integer
from leveret.settings.leases.leased_settings import BY_ARGUMENT

#: Arguments of a consumer by which messages are searched for, and nothing else is different.
SEARCHES = {"x_filter": "1 = 1"}
both_ways = pytest.mark.parametrize("asked", [{}, SEARCHES])


@pytest.fixture
def sites() -> OwnedSites:
    return owned_queue()


@pytest.fixture
def small_depth(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Arguments of a queue of which four messages are active."""
    depth = BY_ARGUMENT["x-target-depth"]
    monkeypatch.setitem(BY_ARGUMENT, depth.argument, replace(depth, kind=replace(depth.kind, read=integer(1))))
    yield {"x_target_depth": 4}


@both_ways
def test_sites_share_what_nobody_takes_at_home(sites: OwnedSites, asked: dict[str, Any]) -> None:
    """A run in parts, single messages in turns."""
    for site in ("n2", "n3"):
        sites.reader(site, prefetch=20, **asked)
    if not asked:
        sites.publish(*"abcdef", by=sites.at["n1"])
        assert (sites.taken("n2"), sites.taken("n3")) == ("abc", "def")
    for body in "ghij":
        sites.publish(body, by=sites.at["n1"])
    assert sorted((sites.taken("n2"), sites.taken("n3"))) == ["gi", "hj"]


@both_ways
def test_all_messages_of_a_run_are_transferred(sites: OwnedSites, asked: dict[str, Any]) -> None:
    """Also those behind the first one are the other site's then."""
    sites.reader("n2", prefetch=3, **asked)
    sites.publish(*"abc", by=sites.at["n1"])
    assert sites.taken() == "abc"
    assert [ids for kind, _, ids in sites.events if kind == "transferred"] == [[1, 2, 3]]
    sites.client_of("n2").cancel("n2")
    sites.end_turn()
    assert [sites.owner_of(message.id) for message in sites.named().messages()] == ["n2"] * 3


def test_a_site_finds_its_own_behind_many_of_others(sites: OwnedSites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further away than one run, whose messages need not wait."""
    monkeypatch.setattr(by_site, "RUN_MAX", 3)
    sites.publish(*"abcdef", by=sites.at["n1"])
    sites.publish("g", by=sites.at["n2"])
    sites.reader("n2")
    assert sites.taken() == "g"


def test_a_site_looks_for_its_own_in_several_dispatches(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ranks it has to look at all that are before them."""
    monkeypatch.setattr(by_site, "SEARCH_EFFORT", 10)
    sites = owned_queue(x_priority_expr="rank")
    for number in range(40):
        sites.publish("x", by=sites.at["n1"], headers={"rank": 50 - number})
    sites.publish("own", by=sites.at["n2"], headers={"rank": 1})
    sites.reader("n2")
    assert sites.taken() == "own"


def test_messages_of_a_site_that_does_not_host_the_queue_wait_for_nobody() -> None:
    """Its consumers are still subscribed."""
    sites = owned_queue(x_queue_filter="1 = 1")
    for site in ("n1", "n2", "n3"):
        sites.of_files(site)
    sites.reader("n3")
    sites.reader("n1", prefetch=5)
    sites.publish("a", "b", by=sites.at["n3"])
    assert (sites.taken("n3"), sites.taken("n1")) == ("a", "")
    with pytest.raises(Exception, match="E-MISMATCH"):
        sites.of_files("n3", x_queue_filter="1 = 2")
    sites.end_turn()
    assert sites.taken("n1") == "b"


@both_ways
def test_a_client_that_does_not_read_gets_no_more_than_it_has_room_for(
    sites: OwnedSites, asked: dict[str, Any]
) -> None:
    """Beyond one message; the others may go elsewhere."""
    sites.reader("n1", prefetch=100, **asked)
    sites.reader("n1", "too", prefetch=100, **asked)
    for tag in ("n1", "too"):
        sites.stalled.add(sites.client_of(tag).client)
    room = sites.client_of("n1").client.outbox_room()
    sites.publish(*[b"x" * (room // 3)] * 20, by=sites.at["n1"])
    assert sites.named().unacked < 12


@both_ways
def test_a_backlog_of_a_site_limits_a_run(asked: dict[str, Any]) -> None:
    sites = owned_queue(x_max_backlog_total=2)
    sites.publish(*"abcde", by=sites.at["n1"])
    sites.reader("n1", prefetch=100, **asked)
    assert sites.taken() == "ab"


@pytest.mark.parametrize("site", ["n1", "n2"])
@both_ways
def test_a_run_ends_at_a_barrier(site: str, asked: dict[str, Any]) -> None:
    """Of the own messages, and of those of others."""
    sites = owned_queue(x_barrier_expr="sync = 1")
    for body in "aSb":
        sites.publish(body, by=sites.at["n1"], headers={"sync": int(body == "S")})
    sites.reader(site, prefetch=10, **asked)
    assert sites.taken() == "a"
    sites.client_of(site).ack(1)
    sites.end_turn()
    assert sites.taken() == "Sb"


def test_a_run_ends_where_another_consumer_takes_messages_too(sites: OwnedSites) -> None:
    """The third one goes to the consumer that has a smaller part of its backlog."""
    sites.reader("n1", "all", prefetch=10)
    sites.reader("n1", "some", prefetch=10, x_filter="a = 1")
    sites.publish("x", by=sites.at["n1"], headers={"a": 1})
    assert sites.taken("all") == "x"
    sites.client_of("all").ack(1)
    sites.ends_turns = False
    for number, a in enumerate((1, 2, 1)):
        sites.publish(f"{number}", by=sites.at["n1"], headers={"a": a})
    sites.ends_turns = True
    sites.end_turn()
    assert (sites.taken("all"), sites.taken("some")) == ("01", "2")


def test_a_site_gets_no_inactive_messages_of_its_own(small_depth: dict[str, Any]) -> None:
    """TargetQueueDepth: neither in a run, nor as a transfer."""
    sites = owned_queue(**small_depth)
    sites.ends_turns = False
    for number in range(8):
        sites.publish(f"{number}", by=sites.at["n1"], headers={"a": int(number > 1)})
    sites.ends_turns = True
    sites.end_turn()
    sites.reader("n1", prefetch=10, x_filter="a = 1")
    sites.advance(100)
    active = leases_of(sites.named()).active
    assert sites.taken() == "23" and active is not None and active.end == 4


def test_a_site_waits_for_older_messages_of_others_to_leave_the_depth(small_depth: dict[str, Any]) -> None:
    """TargetQueueDepth, without filters: its own are not active before."""
    sites = owned_queue(**small_depth)
    sites.reader("n2")
    sites.publish(*"0123", by=sites.at["n2"])
    sites.publish(*"4567", by=sites.at["n1"])
    sites.reader("n1", prefetch=10)
    assert (sites.taken("n2"), sites.taken("n1")) == ("0", "")
    sites.client_of("n2").ack(1)
    sites.end_turn()
    assert (sites.taken("n2"), sites.taken("n1")) == ("1", "4")


def test_messages_of_several_lost_sites_keep_their_order(sites: OwnedSites) -> None:
    """A site that takes them over gets the oldest first, whoever owned it."""
    for body, owner in zip("abcd", ("n1", "n2", "n1", "n2")):
        sites.publish(body, by=sites.at[owner])
    sites.reader("n3", prefetch=4)
    assert sites.taken("n3") == "abcd"


def test_a_get_of_a_site_without_messages_reads_on(sites: OwnedSites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own message is behind many; with ranks it is searched for in steps."""
    monkeypatch.setattr(by_site, "RUN_MAX", 3)
    for arguments in ({}, {"x_priority_expr": "rank"}):
        sites = owned_queue(**arguments)
        sites.publish(*"abcdefg", by=sites.at["n1"])
        sites.publish("own", by=sites.at["n2"])
        got = sites.get(by=sites.at["n2"])
        assert got is not None and got[1].body == b"own"


def test_a_get_is_held_by_the_backlog_of_its_site() -> None:
    sites = owned_queue(x_max_backlog_total=1)
    sites.publish(*"abc", by=sites.at["n1"])
    assert sites.get(by=sites.at["n1"], no_ack=False) is not None
    assert sites.get(by=sites.at["n1"], no_ack=False) is None
    assert sites.get(by=sites.at["n2"], no_ack=False) is not None


def test_a_get_transfers_a_message(sites: OwnedSites) -> None:
    """Given back, it is the other site's."""
    sites.publish("a", "b", by=sites.at["n1"])
    got = sites.get(by=sites.at["n2"], no_ack=False)
    assert got is not None
    sites.at["n2"].reject(got[0], requeue=True)
    sites.end_turn()
    assert [sites.owner_of(message.id) for message in sites.named().messages()] == ["n2", "n1"]
    assert sites.transfers() == ["{'from': 'n1', 'to': 'n2'}"]


def test_a_site_waits_for_its_own_that_is_paged_out() -> None:
    """It gets nothing of others meanwhile, though that is in memory."""

    class Paged(OwnedSites):
        arguments: ClassVar[dict[str, Any]] = {"x_replication": "distributed", "x_max_backlog_per_consumer": 100}

    sites = Paged(kind="amps", site="n1", groups=dict.fromkeys(SITES, ""), memory=1 << 14)
    for number in range(300):
        sites.publish("own" if number == 200 else "x" * 200, by=sites.at["n2" if number == 200 else "n1"])
    assert sites.named().paged_count > 200
    sites.reader("n2", **SEARCHES)
    assert sites.taken() == "own"


def test_the_priorities_of_consumers_count_at_their_site(sites: OwnedSites) -> None:
    """The one of the highest gets all that it has room for; elsewhere there is none before it."""
    sites.reader("n1", "low", prefetch=100, x_priority=1)
    sites.reader("n1", "high", prefetch=2, x_priority=5)
    sites.reader("n2", "highest", prefetch=100, x_priority=9)
    for body in "abcd":
        sites.publish(body, by=sites.at["n1"])
    assert (sites.taken("high"), sites.taken("low"), sites.taken("highest")) == ("ab", "cd", "")


def test_consumers_with_one_filter_leave_one_by_one(sites: OwnedSites) -> None:
    """The others go on; what is noted of a filter is forgotten with the last."""
    for tag in ("one", "two"):
        sites.reader("n1", tag, prefetch=10, **SEARCHES)
    sites.reader("n2", "other", x_filter="a = 5")
    sites.client_of("one").cancel("one")
    sites.publish("a", by=sites.at["n1"])
    assert sites.taken("two") == "a"
    sites.client_of("other").cancel("other")
    selection = sites.named().selection
    assert selection is not None and {group.expression.filter.key for group in selection.groups} == {  # type: ignore[union-attr]
        sites.named().consumers[0].filter.key  # type: ignore[union-attr]
    }


def test_a_lost_site_has_its_backlog_back(sites: OwnedSites) -> None:
    """What it had at most once is gone, and counts no more."""
    sites = owned_queue(x_semantics="at-most-once", x_max_backlog_total=1)
    sites.reader("n2", prefetch=5)
    sites.publish("a", "b", by=sites.at["n2"])
    assert sites.taken() == "a"
    sites.broker.sites.went("n2")
    sites.advance(4000)
    assert sites.taken() == ""
    sites.broker.sites.came("n2")
    sites.end_turn()
    assert sites.taken() == "b"


def test_a_site_that_came_back_is_not_given_up_later(sites: OwnedSites) -> None:
    sites.broker.sites.went("n2")
    sites.advance(1000)
    sites.broker.sites.came("n2")
    sites.advance(5000)
    assert not sites.broker.sites.is_lost("n2") and "n2" in sites.broker.sites.groups


def test_the_brokers_own_site_does_not_go(sites: OwnedSites) -> None:
    sites.broker.sites.went("n1")
    sites.advance(5000)
    assert "n1" in sites.broker.sites.groups and not sites.broker.sites.is_lost("n1")


def test_a_purge_leaves_nothing_of_transferred_messages(sites: OwnedSites) -> None:
    """But of those that are leased."""
    sites.reader("n2", prefetch=3)
    sites.publish(*"abc", by=sites.at["n1"])
    session = sites.client_of("n2")
    sites.consume(by=session, tag="n2", prefetch=3, x_replace=True, x_max_backlog=0)
    session.reject(2, requeue=True)
    sites.end_turn()
    assert sites.named().purge() == 1 and sites.owners.moved.keys() == {1, 3}
    session.reject(3, requeue=True)
    sites.end_turn()
    assert (sites.owner_of(1), sites.owner_of(3)) == ("n2", "n2")


# -- what is noted of owners ------------------------------------------------------------------------------------------


def test_runs_of_one_owner() -> None:
    """Messages 3 to 5, 6 to 8, 9 and later; of those before nothing is known."""
    runs = OwnerRuns()
    for first, last, number in ((3, 5, 1), (6, 8, 2), (9, 20, 1)):
        runs.append(first, last, number)
    places = ((3, 5), (3, 6), (4, 4), (5, 6), (6, 8), (8, 9), (9, 30), (1, 4))
    assert [place for place in places if runs.have_one_owner(*place)] == [(3, 5), (4, 4), (6, 8), (9, 30)]


def test_owners_of_a_checkpoint_come_before_those_of_records() -> None:
    """Records that the checkpoint has, too, say nothing new; a number without a name is the own site's."""
    known = Owners(owned_queue().broker.sites, None)
    for site in ("n2", "n3"):
        known.number_of_site(site)
    known.set_owner(1, 4, 1)
    known.set_owner(5, 9, 2)
    known.move((2,), 2)
    restored = Owners(owned_queue().broker.sites, None)
    restored.set_names(("n2", "n3"))
    octets = known.runs.to_octets(), known.moved_octets()
    restored.restore(octets, [(3, 2), (5, 2), (12, 1), (15, 7)], {13: 2}, 20)
    sites = [restored.site_of(id_) for id_ in (1, 2, 3, 5, 11, 12, 13, 15)]
    assert sites == ["n2", "n3", "n2", "n3", "n3", "n2", "n3", "n1"]
    assert restored.next_id_of(2, 12) == 13 and restored.waits.has_waited(20) and not restored.waits.has_waited(21)
    nameless = Owners(owned_queue().broker.sites, None)
    nameless.set_names(("n2",))
    nameless.restore(octets, (), {}, 20)
    assert [nameless.site_of(id_) for id_ in (1, 5)] == ["n1", "n1"]


def test_a_message_that_is_late_is_noted_for_its_owner() -> None:
    """Others with higher ids are known already."""
    owners = Owners(owned_queue().broker.sites, None)
    one, other = map(owners.number_of_site, ("n2", "n3"))
    owners.set_owner(20, 20, other)
    owners.set_owner(10, 11, one)
    assert [owners.site_of(id_) for id_ in (10, 11, 20)] == ["n2", "n2", "n3"]
    assert (owners.next_id_of(one, 5), owners.next_id_of(one, 11)) == (10, None)


def test_messages_of_a_restart_need_not_wait(tmp_path: Path) -> None:
    """They have waited; their owner comes first nevertheless."""
    sites = owned_queue(tmp_path)
    sites.publish(*"abc", by=sites.at["n2"], delivery_mode=2)
    sites.restart()
    sites.reader("n2")
    sites.reader("n3", prefetch=10)
    assert (sites.taken("n2"), sites.taken("n3")) == ("a", "bc")
