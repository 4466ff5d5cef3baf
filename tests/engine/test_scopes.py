"""Queues that only some sites see: in publishing, capture, consume, get, purge, delete, control, browse and replay.

Three sites: n1 and n2 of group east, n3 of group west. Source: cluster page 12, 13 (D09, D10, D13).
"""

from collections.abc import Callable
from typing import Any

import pytest

from leveret.engine import Client, Queue
from leveret.engine.errors import InequivalentArgument, InvalidArgument, QueueNotFound, QueueNotHosted
from leveret.engine.messages.field_table import Field
from leveret.engine.publishing.dry_run import DryRun
from leveret.testing.harness import Harness, arguments_of, messages

GROUPS = {"n1": "east", "n2": "east", "n3": "west"}


class Sites(Harness):
    """A broker at n1, with a client at each site."""

    checks = True

    def begin(self) -> None:
        super().begin()
        self.at = {site: self.connect(f"client at {site}", site=site) for site in GROUPS}

    def declared(self, site: str, name: str = "q", **arguments: Any) -> Queue:
        """A client at this site declares a leased queue."""
        return self.queue(name, client=self.at[site].client, **arguments)

    def of_files(self, site: str, name: str = "q", **arguments: Any) -> Queue:
        """The files of a site declare a leased queue."""
        table = {"x-queue-type": Field("S", b"amps"), **arguments_of(arguments)}
        return self.vhost.queues.declare(name, client=None, durable=True, arguments=table, site=site)

    def bodies_of(self, full_name: str) -> str:
        """The bodies in the queue of this full name."""
        return b"".join(self.bodies(full_name)).decode()


@pytest.fixture
def sites() -> Sites:
    return Sites(kind="amps", site="n1", groups=GROUPS)


def local_queues(sites: Sites) -> None:
    for site in GROUPS:
        sites.declared(site, x_replication="local")


def test_each_site_has_its_local_queue(sites: Sites) -> None:
    """D13: a publish at one site is in its queue alone."""
    local_queues(sites)
    assert sorted(sites.vhost.queues) == ["q@n1", "q@n2", "q@n3"]
    sites.publish("a", by=sites.at["n2"])
    sites.publish("b", "c", by=sites.at["n3"])
    assert [sites.bodies_of(f"q@{site}") for site in GROUPS] == ["", "a", "bc"]
    assert sites.get(by=sites.at["n1"]) is None
    got = sites.get(by=sites.at["n2"])
    assert got is not None and got[1].body == b"a"


def test_a_site_without_the_queue_does_not_see_it(sites: Sites) -> None:
    """Neither by its name nor by its full name."""
    sites.declared("n1", x_replication="local")
    stranger, client = sites.at["n2"], sites.at["n2"].client
    for name in ("q", "q@n1"):
        assert sites.publish("lost", key=name, by=stranger, mandatory=True) == [b"lost"]
        for act in (
            lambda: sites.vhost.queues.for_consumer(name, client),  # noqa: B023
            lambda: sites.vhost.queues.purge(name, client),  # noqa: B023
            lambda: sites.vhost.queues.declare_passive(name, client),  # noqa: B023
            lambda: sites.vhost.bindings.add("queue", name, "amq.topic", "", {}, client),  # noqa: B023
        ):
            with pytest.raises(QueueNotFound):
                act()
        assert sites.vhost.queues.delete(name, client) == 0
    assert sites.vhost.queues.for_consumer("q@n1", sites.at["n1"].client) is sites.named("q@n1")
    assert sites.vhost.queues.delete("q", sites.at["n1"].client) == 0
    assert not sites.vhost.queues


@pytest.mark.parametrize("queue_type", ["classic", "amps"])
def test_a_full_name_of_another_site_is_taken(tmp_path: Any, queue_type: str) -> None:
    """A client that declares a queue of that name is refused; the queue keeps its messages, also over a restart."""
    sites = Sites(kind="amps", site="n1", groups=GROUPS, journal=tmp_path)
    queue = sites.declared("n1", x_replication="local")
    sites.publish("a", by=sites.at["n1"], delivery_mode=2)
    with pytest.raises(QueueNotHosted, match="full name of a queue of other sites"):
        sites.declared("n2", "q@n1", x_queue_type=queue_type)
    assert sites.vhost.queues["q@n1"] is queue
    sites.restart()
    assert sites.bodies_of("q@n1") == "a"


def test_a_refused_site_does_not_make_another_queue(sites: Sites) -> None:
    """A client there that declares the queue as the others do is told why its site has none."""
    sites.of_files("n1", x_replication="distributed")
    with pytest.raises(InvalidArgument, match="E-MISMATCH"):
        sites.of_files("n3", x_replication="distributed", x_queue_filter="a = 2")
    with pytest.raises(QueueNotHosted, match="E-MISMATCH"):
        sites.declared("n3", x_replication="distributed")
    sites.publish("a", by=sites.at["n1"])
    assert sites.bodies_of("q") == "a"


def test_a_name_of_another_site_is_not_created() -> None:
    """Where missing queues are, a consumer at another site does not get that queue instead."""
    setting = '[[address-setting]]\nmatch = "#"\nauto-create-queues = true\n'
    sites = Sites(setting, kind="amps", site="n1", groups=GROUPS)
    sites.declared("n1", x_replication="local")
    with pytest.raises(QueueNotFound):
        sites.vhost.queues.for_consumer("q@n1", sites.at["n2"].client)
    assert sites.publish("lost", key="q@n1", by=sites.at["n2"], mandatory=True) == [b"lost"]
    assert list(sites.vhost.queues) == ["q@n1"]
    assert sites.vhost.queues.for_consumer("q", sites.at["n2"].client) is sites.vhost.queues["q"]


def test_copies_stay_at_their_site(sites: Sites) -> None:
    """The header CC names queues as the publisher's site does, also if the routing key is a plain queue."""
    local_queues(sites)
    for site in GROUPS:
        sites.queue("plain", client=sites.at[site].client, x_queue_type="classic")
        sites.publish(site, key="plain", by=sites.at[site], headers={"CC": ["q"]})
    assert [sites.bodies_of(f"q@{site}") for site in GROUPS] == ["n1", "n2", "n3"]
    assert sites.bodies_of("plain") == "n1n2n3"


@pytest.mark.parametrize("order", [("group", "distributed"), ("distributed", "group")])
def test_a_nearer_queue_is_seen_in_any_order(tmp_path: Any, order: tuple[str, ...]) -> None:
    """One of the group comes before one of all sites, whichever was declared, or hosted, first."""
    sites = Sites(kind="amps", site="n1", groups=GROUPS, journal=tmp_path)
    for replication in order:
        if replication == "group":
            sites.declared("n1", x_replication="group", x_initial_owner="n1")
        else:
            sites.declared("n3", x_replication="distributed")
    sites.publish("a", by=sites.at["n1"], delivery_mode=2)
    sites.restart()
    sites.publish("b", by=sites.at["n2"])
    sites.publish("c", by=sites.at["n3"])
    assert (sites.bodies_of("q@east"), sites.bodies_of("q")) == ("ab", "c")


def test_a_binding_is_for_the_publishers_that_see_its_queue(sites: Sites) -> None:
    """Of a message of another site neither the bound queue has anything, nor one of its name there."""
    local_queues(sites)
    sites.vhost.exchanges.declare("orders", "fanout")
    sites.vhost.bindings.add("queue", "q", "orders", "", {}, sites.at["n2"].client)
    assert sites.publish("a", exchange="orders", by=sites.at["n1"], mandatory=True) == [b"a"]
    sites.publish("b", exchange="orders", by=sites.at["n2"])
    assert [sites.bodies_of(f"q@{site}") for site in GROUPS] == ["", "b", ""]


def test_a_message_that_a_site_does_not_reach_goes_to_the_alternate_exchange(sites: Sites) -> None:
    """A binding to the queue of another site is none for its publishers. Explanations say so."""
    sites.declared("n1", x_replication="local")
    rest = sites.queue("rest", x_queue_type="classic")
    sites.vhost.exchanges.declare("others", "fanout")
    sites.vhost.exchanges.declare("x", "fanout", arguments=arguments_of({"alternate_exchange": "others"}))
    sites.vhost.bindings.add("queue", "rest", "others", "", {}, sites.at["n1"].client)
    sites.vhost.bindings.add("queue", "q", "x", "", {}, sites.at["n1"].client)
    for site in ("n1", "n2"):
        assert sites.publish(site, exchange="x", by=sites.at[site], mandatory=True) == []
    assert (sites.bodies_of("q@n1"), sites.bodies_of("rest")) == ("n1", "n2")
    summary, (content,) = messages(["a"], {})
    with sites.broker.sites.at("n2"):
        dry = DryRun(sites.vhost.context, sites.envelope("x", "", summary), content, sites.user)
    assert list(dry.steps()) and list(dry.route.queues) == [rest]
    assert [why for _, why in dry.route.hops[0].missed] == ["the node of the publisher does not have the queue"]


@pytest.mark.parametrize("arguments", [{}, {"x_replication": "local"}, {"x_replication": "distributed"}])
def test_consumers_of_a_site_that_is_gone_get_nothing(sites: Sites, arguments: dict[str, Any]) -> None:
    """Its connections linger. Neither what they had, nor new messages; nor later consumers, nor gets."""
    sites.declared("n2", x_max_backlog_per_consumer=5, **arguments)
    sites.consume(by=sites.connect(site="n2"), tag="watcher", prefetch=5, x_max_backlog=0)
    sites.consume(by=sites.connect(site="n2"), tag="one", prefetch=2)
    sites.publish("a", "b", by=sites.at["n2"])
    assert sites.taken() == "ab"
    sites.broker.sites.went("n2")
    sites.publish("c", by=sites.at["n2"])
    sites.consume(by=sites.connect(site="n2"), tag="other", prefetch=5)
    sites.consume(by=sites.connect(site="n2"), tag="browser", x_browse=True)
    sites.advance(100)
    assert (sites.taken("one"), sites.taken("other"), sites.taken("browser")) == ("", "", "abc")
    assert sites.get(by=sites.at["n2"]) is None
    sites.broker.sites.came("n2", "east")
    sites.end_turn()
    assert sorted(sites.taken("one") + sites.taken("other")) == ["a", "b", "c"] and sites.taken() == ""


def test_an_operator_sees_all_by_their_full_names(sites: Sites) -> None:
    """Such a client has no site."""
    local_queues(sites)
    operator = Client(sites.vhost, sites.user, "operator", lambda: None, {})
    sites.publish("a", by=sites.at["n3"])
    assert sites.vhost.queues.seen("q", operator) is None
    assert sites.vhost.queues.purge("q@n3", operator) == 1


def test_the_own_queue_comes_before_one_of_all_sites(sites: Sites) -> None:
    """Also if it came later: publishers that had a route have another one."""
    sites.declared("n2")
    sites.publish("a", by=sites.at["n1"])
    sites.declared("n1", x_replication="local")
    sites.publish("b", by=sites.at["n1"])
    sites.publish("c", by=sites.at["n2"])
    assert (sites.bodies_of("q"), sites.bodies_of("q@n1")) == ("ac", "b")


@pytest.mark.parametrize("declares", [Sites.declared, Sites.of_files])
def test_domains_are_apart(sites: Sites, declares: Callable[..., Queue]) -> None:
    """D09: two domains, one name. A site sees the queue of the domain that it declared, and of its group."""
    where = {"x_replication": "group", "x_initial_owner": "n1", "x_underlying_topic": "orders"}
    declares(sites, "n1", **where, x_queue_domain="X")
    declares(sites, "n3", **where, x_queue_domain="Y")
    sites.vhost.exchanges.declare("orders", "topic")
    sites.publish("a", exchange="orders", by=sites.at["n1"])
    sites.publish("b", exchange="orders", by=sites.at["n3"])
    assert sites.publish("c", exchange="orders", by=sites.at["n2"], mandatory=True) == [b"c"]
    assert (sites.bodies_of("q@X"), sites.bodies_of("q@Y")) == ("a", "b")
    declares(sites, "n2", **where, x_queue_domain="Y")
    sites.publish("d", exchange="orders", by=sites.at["n2"])
    assert sites.bodies_of("q@Y") == "bd"


def test_routes_follow_a_site_that_joins_a_domain(sites: Sites) -> None:
    """Publishers at that site that had a route have another one."""
    where = {"x_replication": "group", "x_initial_owner": "n1", "x_queue_domain": "X", "x_underlying_topic": "orders"}
    sites.vhost.exchanges.declare("orders", "topic")
    sites.declared("n1", **where)
    routes = [sites.route(key, exchange, sites.at["n2"].client) for exchange, key in (("orders", "k"), ("", "q"))]
    assert [route.is_stale for route in routes] == [False, False]
    sites.declared("n2", **where)
    assert [route.is_stale for route in routes] == [True, True]


def test_routes_follow_the_group_of_a_site(sites: Sites) -> None:
    """A site that comes with another group sees the queues of that group."""
    sites.declared("n1", x_replication="group", x_initial_owner="n1")
    route = sites.route("q", client=sites.at["n3"].client)
    sites.broker.sites.came("n3", "east")
    assert route.is_stale
    sites.publish("a", by=sites.at["n3"])
    assert sites.bodies_of("q@east") == "a"


@pytest.mark.parametrize("key", ["q", "plain"])
def test_publishers_of_a_site_share_a_route_until_it_is_stale(sites: Sites, key: str) -> None:
    """Publishers at another site have another one, which freed routes do not keep in memory."""
    local_queues(sites)
    sites.queue("plain", x_queue_type="classic")
    others = {site: sites.connect(site=site).client for site in GROUPS}
    routes = {site: sites.route(key, client=sites.at[site].client) for site in GROUPS}
    assert all(sites.route(key, client=others[site]) is routes[site] for site in GROUPS)
    assert len(set(map(id, routes.values()))) == 3
    sites.vhost.queues.delete(key, others["n2"])
    again = sites.route(key, client=others["n2"])
    assert routes["n2"].is_stale and again.queues == [] and not again.is_stale
    assert sites.route(key, client=sites.at["n2"].client) is again
    scopes = sites.vhost.context.scopes
    routes.clear()
    del again
    assert scopes is not None and not scopes.routes


def test_a_group_is_the_domain_of_its_sites(sites: Sites) -> None:
    """Without a domain: n2 is in the group of n1, n3 is not."""
    sites.declared("n1", x_replication="group", x_initial_owner="n1")
    assert list(sites.vhost.queues) == ["q@east"]
    sites.publish("a", by=sites.at["n2"])
    assert sites.publish("b", by=sites.at["n3"], mandatory=True) == [b"b"]
    assert sites.bodies_of("q@east") == "a"


def test_a_site_that_declares_it_otherwise_does_not_host_it(sites: Sites) -> None:
    """D10: the files of n3 have another filter; the others are untouched. Later files take it in."""
    where = {"x_replication": "distributed"}
    for site in ("n1", "n2"):
        sites.of_files(site, **where, x_queue_filter="a = 1")
    with pytest.raises(InvalidArgument, match="E-MISMATCH") as refused:
        sites.of_files("n3", **where, x_queue_filter="a = 2")
    assert "x-queue-filter" in str(refused.value)
    with pytest.raises(QueueNotHosted, match="E-MISMATCH"):
        sites.vhost.queues.for_consumer("q", sites.at["n3"].client)
    assert sites.publish("a", by=sites.at["n3"], headers={"a": 1}, mandatory=True) == [b"a"]
    sites.publish("b", by=sites.at["n2"], headers={"a": 1})
    assert sites.bodies_of("q") == "b"
    sites.of_files("n3", **where, x_queue_filter="a = 1")
    sites.publish("c", by=sites.at["n3"], headers={"a": 1})
    assert sites.bodies_of("q") == "bc"


@pytest.mark.parametrize(
    ("replication", "other"),
    [
        ("distributed", {"x_queue_filter": "a = 2"}),
        ("distributed", {"x_semantics": "at-most-once"}),
        ("distributed", {"x_underlying_topic": "orders"}),
        ("group", {"x_initial_owner": "n2"}),
    ],
)
def test_what_sites_have_to_agree_in(tmp_path: Any, replication: str, other: dict[str, Any]) -> None:
    """D10: also one that declared it as the others did before; it does not host the queue after a restart, either."""
    where = {"x_replication": replication}
    if replication == "group":
        where |= {"x_initial_owner": "n1", "x_queue_domain": "X"}
    sites = Sites(kind="amps", site="n1", groups=GROUPS, journal=tmp_path)
    for site in ("n1", "n3"):
        sites.of_files(site, **where)
    for is_again in (False, True):
        with pytest.raises(InvalidArgument, match="E-MISMATCH") as refused:
            sites.of_files("n3", **{**where, **other})
        assert vars(refused.value)["key"] == next(iter(other)).replace("_", "-")
        client = sites.at["n3"].client
        assert sites.vhost.queues.seen("q", client) is None
        if not is_again:
            sites.restart()
            if replication == "group":
                assert sites.vhost.queues.seen("q", sites.at["n3"].client) is None


@pytest.mark.parametrize("order", [("local", "group"), ("group", "local")])
def test_the_queue_of_a_site_comes_before_that_of_its_group(sites: Sites, order: tuple[str, ...]) -> None:
    for replication in order:
        owner = {"x_initial_owner": "n1"} if replication == "group" else {}
        sites.declared("n1", x_replication=replication, **owner)
    for site in ("n1", "n2"):
        sites.publish(site, by=sites.at[site])
    assert (sites.bodies_of("q@n1"), sites.bodies_of("q@east")) == ("n1", "n2")


def test_a_site_without_a_group_is_its_own() -> None:
    """A GroupLocalQueue without a domain there is that of no other site."""
    sites = Sites(kind="amps", site="n1", groups={**GROUPS, "n1": "", "n2": ""})
    sites.declared("n2", x_replication="group", x_initial_owner="n2")
    assert list(sites.vhost.queues) == ["q@n2"]
    for site in ("n1", "n2"):
        sites.publish(site, by=sites.at[site])
    assert sites.bodies_of("q@n2") == "n2"


def test_queues_that_are_gone_follow_no_sites(sites: Sites) -> None:
    local_queues(sites)
    sites.declared("n1", "plain")
    sites.declared("n1", "all", x_replication="distributed")
    for name in list(sites.vhost.queues):
        sites.vhost.queues.remove(sites.vhost.queues[name])
    assert not sites.broker.sites.watchers


def test_a_client_that_declares_it_otherwise_is_refused_alone(sites: Sites) -> None:
    """Its site hosts the queue as before."""
    sites.declared("n1", x_replication="distributed")
    with pytest.raises(InequivalentArgument):
        sites.declared("n2", x_replication="distributed", x_queue_filter="a = 1")
    sites.publish("a", by=sites.at["n2"])
    assert sites.bodies_of("q") == "a"


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({}, "x-replication"),
        ({"x_replication": "distributed"}, "x-replication"),
        ({"x_replication": "group", "x_initial_owner": "n1", "x_queue_domain": "n1"}, "x-replication"),
        ({"x_replication": "local", "x_queue_scope": "n2"}, "x-queue-scope"),
    ],
)
def test_another_declaration_is_told_by_what_the_client_sent(sites: Sites, arguments: dict[str, Any], key: str) -> None:
    """Of a queue of its site: not by the scope that follows from it."""
    sites.declared("n1", x_replication="local")
    with pytest.raises(InequivalentArgument) as refused:
        sites.declared("n1", **arguments)
    assert vars(refused.value)["key"] == key


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"x_replication": "local", "x_queue_scope": "n2"}, "x-queue-scope"),
        ({"x_replication": "local", "x_queue_scope": 5}, "x-queue-scope"),
        ({"x_replication": "group", "x_initial_owner": "n1", "x_queue_domain": "x" * 300}, "x-queue-domain"),
        ({"x_replication": "group", "x_initial_owner": "n1", "x_queue_domain": ""}, "x-queue-domain"),
    ],
)
def test_a_wrong_scope_is_told_by_what_the_client_sent(sites: Sites, arguments: dict[str, Any], key: str) -> None:
    """A scope that is not the client's own is no queue of another one."""
    with pytest.raises(InvalidArgument) as refused:
        sites.declared("n1", **arguments)
    assert vars(refused.value)["key"] == key and not sites.vhost.queues


def test_a_domain_may_be_the_group_of_a_site(sites: Sites) -> None:
    """One site names it, the other one is in it: it is one queue, whichever declares first."""
    of_group = {"x_replication": "group", "x_initial_owner": "n1"}
    for name, first, second in (("q", {}, {"x_queue_domain": "east"}), ("r", {"x_queue_domain": "east"}, {})):
        queue = sites.declared("n1", name, **of_group, **first)
        assert sites.declared("n2", name, **of_group, **second) is queue
        assert sites.of_files("n3", name, **of_group, x_queue_domain="east") is queue


def test_a_client_may_declare_its_queue_by_the_full_name(sites: Sites) -> None:
    """As lists of queues show it."""
    queue = sites.declared("n1", x_replication="local")
    assert sites.declared("n1", "q@n1", x_replication="local") is queue


def test_control_browse_and_replay_have_the_own_queue(sites: Sites) -> None:
    """The exchange `amps.control` removes from the queue of the sender's site; a replay has no message of another."""
    local_queues(sites)
    for site in GROUPS:
        sites.publish(*[f"{site} "] * 2, by=sites.at[site])
    by = sites.at["n2"]
    sites.publish("", exchange="amps.control", key="sow_delete", by=by, headers={"queue": "q", "filter": "1 = 1"})
    assert [sites.bodies_of(f"q@{site}") for site in GROUPS] == ["n1 n1 ", "", "n3 n3 "]
    sites.consume(by=sites.at["n3"], tag="browser", x_browse=True)
    assert sites.taken() == "n3 n3 "
    sites.consume(by=by, tag="replay", prefetch=10, x_bookmark="0")
    assert sites.taken() == "n2 n2 "


def test_a_dead_letter_stays_at_its_site(sites: Sites) -> None:
    """It goes where a publish of the site would go."""
    for site in ("n1", "n2"):
        sites.declared(site, "dead", x_replication="local")
    sites.declared("n2", x_replication="local", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    sites.publish("a", by=sites.at["n2"])
    got = sites.get(by=sites.at["n2"], no_ack=False)
    assert got is not None
    sites.at["n2"].reject(got[0], requeue=False)
    sites.end_turn()
    assert (sites.bodies_of("dead@n1"), sites.bodies_of("dead@n2")) == ("", "a")


def test_a_transaction_publishes_at_its_site(sites: Sites) -> None:
    """Its queues are chosen when it is published."""
    local_queues(sites)
    session = sites.at["n3"]
    session.select_transactions()
    sites.publish("a", by=session)
    session.commit()
    sites.end_turn()
    assert sites.bodies_of("q@n3") == "a"


@pytest.mark.parametrize("headers", [{}, {"CC": ["q@n2", "d"]}])
def test_a_transaction_does_not_reach_queues_of_other_sites(sites: Sites, headers: dict[str, Any]) -> None:
    """Neither by a full name, nor one that its site does not host, nor in copies."""
    local_queues(sites)
    sites.of_files("n2", "d", x_replication="distributed")
    with pytest.raises(InvalidArgument, match="E-MISMATCH"):
        sites.of_files("n3", "d", x_replication="distributed", x_queue_filter="a = 1")
    session = sites.at["n3"]
    session.select_transactions()
    for key in ("plain",) if headers else ("q@n2", "d"):
        sites.publish("a", by=session, key=key, headers=headers)
    session.commit()
    sites.end_turn()
    assert [sites.bodies_of(name) for name in ("q@n1", "q@n2", "q@n3", "d")] == [""] * 4


@pytest.mark.parametrize(
    "arguments",
    [
        {"x_queue_scope": "n1"},
        {"x_replication": "distributed", "x_queue_scope": "n1"},
        {"x_replication": "local", "x_queue_scope": "n9"},
    ],
)
def test_a_scope_belongs_to_the_name(arguments: dict[str, Any]) -> None:
    """An operator who declares a queue by its full name states the scope that it has."""
    harness = Harness(kind="amps", site="n1", groups=GROUPS)
    operator = Client(harness.vhost, harness.user, "operator", lambda: None, {})
    with pytest.raises(InvalidArgument, match="E-SCOPE"):
        harness.queue("q@n1", client=operator, **arguments)
    harness.queue("q@n1", client=operator, x_replication="local", x_queue_scope="n1")
    assert harness.vhost.queues.seen("q", harness.client) is harness.named("q@n1")


def test_without_sites_nothing_has_a_scope() -> None:
    """A broker that is no node of a cluster takes the arguments, as it always did."""
    harness = Harness(kind="amps")
    for name, replication in (("a", "local"), ("b", "distributed"), ("c", "group")):
        owner = {"x_initial_owner": "n1"} if replication == "group" else {}
        harness.queue(name, client=harness.client, x_replication=replication, **owner)
        harness.publish("x", key=name)
    assert list(harness.vhost.queues) == ["a", "b", "c"] and harness.vhost.context.scopes is None
    assert [harness.all(name) for name in "abc"] == ["x"] * 3


def test_scopes_and_hosts_survive_a_restart(tmp_path: Any) -> None:
    """The sites that declared a domain are in the notes of the queue."""
    sites = Sites(kind="amps", site="n1", groups=GROUPS, journal=tmp_path)
    for site in ("n1", "n3"):
        sites.declared(site, x_replication="group", x_initial_owner="n1", x_queue_domain="X")
    sites.declared("n2", x_replication="local")
    sites.publish("a", by=sites.at["n3"], delivery_mode=2)
    sites.restart()
    sites.publish("b", by=sites.at["n3"])
    sites.publish("c", by=sites.at["n2"])
    assert (sites.bodies_of("q@X"), sites.bodies_of("q@n2")) == ("ab", "c")


def test_another_kind_of_queue_has_no_scope(sites: Sites) -> None:
    """Its messages have one order, and its consumers one."""
    with pytest.raises(InvalidArgument, match="one order of messages, and of consumers"):
        sites.queue("plain", client=sites.at["n2"].client, x_queue_type="quorum", x_replication="local")
