"""Owners of messages beside all else that a leased queue does: limits, lifetimes, dead letters, purges, takeovers.

Three sites; virtual time. The rows say what the reference says of a case, in the manner of D01 to D15. Source: cluster
page 12, 13.
"""

from pathlib import Path
from typing import Any

import pytest
from owned_sites import SITES, OwnedSites, owned_queue

from leveret.engine import Client
from leveret.engine.errors import InvalidArgument, QueueNotHosted
from leveret.engine.leases.state import leases_of
from leveret.engine.options import BrokerOptions
from leveret.testing.harness import Harness

GROUPS = {"n1": "east", "n2": "east", "n3": "west"}


def test_filter_at_home_and_elsewhere() -> None:
    """What no filter at home takes goes after 50 ms. What only home takes waits for it, and what nobody takes, too."""
    sites = owned_queue()
    sites.reader("n1", "home", prefetch=1, x_filter="a = 1")
    sites.reader("n2", "away", prefetch=10, x_filter="a = 2")
    for body, a in (("1", 1), ("2", 2), ("3", 1), ("4", 2), ("5", 3)):
        sites.publish(body, by=sites.at["n1"], headers={"a": a})
    sites.advance(49)
    assert (sites.taken("home"), sites.taken("away")) == ("1", "")
    sites.advance(1)
    assert sites.taken("away") == "24"
    sites.client_of("home").ack(1)
    sites.end_turn()
    assert sites.taken("home") == "3"
    sites.advance(5000)
    assert sites.taken() == "" and sites.named().ready_count == 1


def test_backlog_of_a_consumer_that_moves() -> None:
    """A client of n1 goes and comes again at n2: what it held at n1 counts there no more."""
    sites = owned_queue(x_max_backlog_total=2)
    sites.reader("n1", "mover", prefetch=10)
    sites.publish(*"abcdef", by=sites.at["n1"])
    assert sites.taken() == "ab"
    sites.client_of("mover").client.close(failed=True)
    sites.end_turn()
    sites.reader("n2", "mover", prefetch=10)
    assert sites.taken() == "ab"
    sites.reader("n1", "new", prefetch=10)
    assert sites.taken() == "cd"
    sites.advance(1000)
    assert sites.taken() == ""


def test_at_most_once_and_a_lost_site() -> None:
    """What was out is gone; what was ready is delivered elsewhere, once."""
    sites = owned_queue(x_semantics="at-most-once")
    sites.reader("n2", "r2", prefetch=2)
    sites.publish(*"abcd", by=sites.at["n2"])
    assert sites.taken() == "ab"
    sites.broker.sites.went("n2")
    sites.reader("n3", "r3", prefetch=10)
    sites.advance(3100)
    assert sites.taken() == "cd"
    sites.broker.sites.came("n2")
    sites.advance(1000)
    assert sites.taken() == "" and sites.named().ready_count == 0


def test_an_initial_owner_goes_and_returns_with_leases() -> None:
    """Its leases end at once. What nobody took is its own again when it is back, and so is what comes later."""
    sites = owned_queue(x_replication="group", x_initial_owner="n2", x_queue_domain="X")
    for site in SITES:
        sites.queue(client=sites.at[site].client, **sites.arguments)
    readers = {site: sites.connect(site=site) for site in ("n1", "n2")}
    sites.consume("q", "r2", by=readers["n2"], prefetch=3)
    sites.publish(*"abcde", by=sites.at["n1"])
    assert sites.taken() == "abc"
    sites.broker.sites.went("n2")
    sites.consume("q", "r1", by=readers["n1"], prefetch=1)
    sites.advance(3000)
    assert sites.taken() == "a"
    sites.broker.sites.came("n2")
    sites.end_turn()
    assert sites.taken() == "bcd"
    sites.publish("f", by=sites.at["n1"])
    readers["n2"].ack(max(readers["n2"].unacked))
    sites.end_turn()
    assert sites.taken() == "e"
    readers["n1"].ack(1)
    sites.end_turn()
    sites.advance(48)
    assert sites.taken() == ""
    sites.advance(2)
    assert sites.taken("r1") == "f"


def bodies_by_owner(sites: OwnedSites, queue: str) -> dict[str, str]:
    """Body -> the site that owns the message."""
    owners = leases_of(sites.named(queue)).owners
    assert owners is not None
    return {message.body.decode(): owners.site_of(message.id) for message in sites.named(queue).messages()}


def test_a_dead_letter_keeps_its_owner() -> None:
    """Rejected, expired, after its cancels: the dead letter is the site's that owned the message then."""
    sites = owned_queue(x_dead_letter_exchange="", x_dead_letter_routing_key="dead", x_cancel_limit=1)
    sites.queue("dead", client=sites.at["n1"].client, x_replication="distributed")
    sites.publish("ttl3", by=sites.at["n3"], expiration="100")
    sites.publish(
        "late2", by=sites.at["n2"], headers={"_AMQ_SCHED_DELIVERY": sites.clock.wall_ms() + 50}, expiration="100"
    )
    sites.advance(200)
    sites.reader("n2", prefetch=1)
    sites.publish("moved", by=sites.at["n1"])
    assert sites.taken() == "moved"
    sites.client_of("n2").reject(1, requeue=True)
    sites.end_turn()
    assert bodies_by_owner(sites, "dead") == {"ttl3": "n3", "late2": "n2", "moved": "n2"}


def of_groups(**how: Any) -> OwnedSites:
    """n1 and n2 are of the group east, n3 is of west. Only n1 has declared `dead` of east."""
    sites = OwnedSites(kind="amps", site="n1", groups=how.pop("groups", GROUPS), **how)
    client = sites.at["n1"].client
    sites.queue("t", client=client, x_replication="distributed", x_dead_letter_exchange="",
                x_dead_letter_routing_key="dead")  # fmt: skip
    sites.queue("dead", client=client, x_replication="group", x_initial_owner="n1")
    return sites


def test_a_dead_letter_of_a_lost_site_reaches_the_queue_of_its_group() -> None:
    """It is not dropped: the site belongs to its group, though it is absent."""
    sites = of_groups()
    sites.publish("a", by=sites.at["n2"], key="t", expiration="5000")
    sites.broker.sites.went("n2")
    sites.advance(5000)
    assert sites.bodies("dead@east") == [b"a"]


@pytest.mark.parametrize("is_absent", [False, True])
def test_a_dead_letter_of_a_site_that_is_not_known_yet(tmp_path: Path, is_absent: bool) -> None:
    """A node begins to lead, and the owner has not announced its group: it goes where the leader's would."""
    sites = of_groups(journal=tmp_path)
    sites.publish("a", by=sites.at["n2"], key="t", expiration="5000", delivery_mode=2)
    sites._options["groups"] = {"n1": "east", "n2": "", "n3": ""}  # as a node begins to lead
    sites.restart()
    if is_absent:
        sites.broker.sites.went("n2")
    sites.advance(6000)
    assert sites.bodies("dead@east") == [b"a"]


def test_a_client_of_an_absent_site_is_of_its_group() -> None:
    """Its connection lingers: what it publishes is captured, and it declares the queue that the group has."""
    sites = of_groups()
    sites.broker.sites.went("n2")
    assert sites.publish("a", by=sites.at["n2"], key="dead", mandatory=True) == []
    sites.queue("dead", client=sites.at["n2"].client, x_replication="group", x_initial_owner="n1")
    assert sites.bodies("dead@east") == [b"a"] and "dead@n2" not in sites.vhost.queues


def test_a_divert_keeps_the_owner() -> None:
    settings = '[[divert]]\nname = "d"\naddress = "source"\nforwarding-address = "q"\n'
    sites = OwnedSites(settings, kind="amps", site="n1", groups=dict.fromkeys(SITES, ""))
    sites.queue("source", client=sites.at["n1"].client, x_queue_type="classic")
    sites.publish("a", by=sites.at["n3"], key="source")
    assert [sites.owner_of(one.id) for one in sites.named().messages()] == ["n3"]


@pytest.mark.parametrize("asked", [{}, {"x_filter": "a = 1"}])
@pytest.mark.parametrize("arguments", [{}, {"x_priority_expr": "rank"}])
def test_local_rank_before_rank_elsewhere(arguments: dict[str, Any], asked: dict[str, Any]) -> None:
    """A site gets the best of its own, though another site has a better one that may go; then the better one."""
    sites = owned_queue(**arguments)
    for body, site, rank in (("A", "n3", 9), ("b", "n1", 1), ("c", "n1", 2)):
        sites.publish(body, by=sites.at[site], headers={"rank": rank, "a": 1})
    sites.reader("n1", prefetch=1, **asked)
    order = ""
    for tag in (1, 2, 3):
        order += sites.taken()
        sites.client_of("n1").ack(tag)
        sites.end_turn()
    assert order == ("cbA" if arguments else "bcA")


@pytest.mark.parametrize("arguments", [{}, {"x_priority_expr": "rank"}, {"x_target_depth": 1000}])
def test_expired_messages_of_sites(arguments: dict[str, Any]) -> None:
    """A message that expires before its transfer is gone; those behind it go in their time."""
    sites = owned_queue(**arguments)
    sites.reader("n1", prefetch=1)
    sites.reader("n2", prefetch=10)
    sites.publish("x", by=sites.at["n1"])
    sites.publish("short", by=sites.at["n1"], expiration="40", headers={"rank": 5})
    sites.advance(20)
    sites.publish("long", by=sites.at["n1"], expiration="60000")
    sites.advance(49)
    assert sites.taken() == "x"
    sites.advance(1)
    assert sites.taken("n2") == "long" and sites.named().ready_count == 0


def test_a_barrier_between_leases_of_two_sites() -> None:
    """Both have to be settled, in any way; a lost site settles its own, whose message goes first then."""
    sites = owned_queue(x_barrier_expr="sync = 1")
    for site in ("n2", "n3"):
        sites.reader(site, prefetch=1)
        sites.publish(site, by=sites.at[site])
    sites.reader("n1", prefetch=10)
    sites.publish("S", by=sites.at["n1"], headers={"sync": 1})
    sites.publish("z", by=sites.at["n1"])
    assert sites.taken() == "n2n3"
    sites.client_of("n2").ack(1)
    sites.end_turn()
    assert sites.taken() == ""
    sites.broker.sites.went("n3")
    sites.advance(100)
    assert sites.taken("n1") + sites.taken("n2") == "n3"
    holder = "n1" if sites.client_of("n1").unacked else "n2"
    session = sites.client_of(holder)
    session.ack(max(session.unacked))
    sites.end_turn()
    assert sites.taken("n1") == "Sz" and sites.taken("n2") == "S" and sites.taken("n3") == ""


def test_max_cancels_and_deliveries_over_sites() -> None:
    """They are of the queue: cancels at two sites count together."""
    sites = owned_queue(x_cancel_limit=3)
    sites.publish("a", by=sites.at["n1"])
    for site in ("n2", "n3", "n1"):
        sites.reader(site)
        assert sites.taken(site) == "a"
        session = sites.client_of(site)
        session.reject(1, requeue=True)
        session.client.close(failed=True)
        sites.end_turn()
        sites.taken()
    assert sites.named().ready_count == 0 and sites.named().unacked == 0


def test_a_refused_site_hosts_the_queue_again_with_its_messages(tmp_path: Path) -> None:
    """Its files differ, also at the next leader; then a reload agrees. Its messages are its own as before."""
    sites = owned_queue(tmp_path)
    for site in SITES:
        sites.of_files(site)
    sites.publish("a", by=sites.at["n3"], delivery_mode=2)
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="E-MISMATCH"):
            sites.of_files("n3", x_semantics="at-most-once")
        assert sites.publish("lost", by=sites.at["n3"], mandatory=True) == [b"lost"]
        sites.restart()
    sites.of_files("n3")
    sites.publish("b", by=sites.at["n3"], delivery_mode=2)
    sites.reader("n3", prefetch=10)
    assert sites.taken() == "ab" and sites.transfers() == []


@pytest.mark.parametrize("is_kill", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"x_priority_expr": "rank"}, {"x_barrier_expr": "rank = 9"}])
def test_a_takeover_in_the_middle_of_a_transfer(tmp_path: Path, arguments: dict[str, Any], is_kill: bool) -> None:
    """Transferred, leased and not acknowledged: another node leads; the message is ready once, its owner is the new."""
    sites = owned_queue(tmp_path, **arguments)
    sites.reader("n2", prefetch=2)
    sites.publish(*"abc", by=sites.at["n1"], delivery_mode=2, headers={"rank": 1})
    assert sites.taken() == "ab"
    sites.client_of("n2").ack(1)
    sites.end_turn()
    assert sites.taken() == "c"
    sites._options["site"] = "n3"
    sites.kill() if is_kill else sites.restart()
    assert {one.body: sites.owner_of(one.id) for one in sites.named().messages()} == {b"b": "n2", b"c": "n2"}
    sites.reader("n1", prefetch=10)
    assert sites.taken() == "bc"


def test_a_name_that_is_scoped_and_not() -> None:
    """A site with its own queue of a name never gets, purges or deletes the one of all."""
    sites = owned_queue()
    sites.queue(client=sites.at["n2"].client, x_replication="local")
    for site in SITES:
        sites.publish(site, by=sites.at[site])
    assert [one.body for one in sites.named().messages()] == [b"n1", b"n3"]
    got = sites.get("q", by=sites.at["n2"])
    assert got is not None and got[1].body == b"n2"
    assert sites.get("q", by=sites.at["n2"]) is None
    sites.vhost.queues.delete("q", sites.at["n2"].client)
    assert list(sites.vhost.queues) == ["q"]
    got = sites.get("q", by=sites.at["n2"])  # now it sees the one of all
    assert got is not None and got[1].body == b"n1"


def test_operators_get_leaves_owner_and_order() -> None:
    sites = owned_queue()
    operator = Client(sites.vhost, sites.user, "operator", lambda: None, {})
    session = operator.open_session()
    sites.publish(*"ab", by=sites.at["n2"])
    got = session.get(sites.named(), no_ack=False)
    assert got is not None and got[1].body == b"a"
    session.reject(got[0], requeue=True)
    sites.end_turn()
    assert [(one.body, sites.owner_of(one.id)) for one in sites.named().messages()] == [(b"a", "n2"), (b"b", "n2")]
    assert sites.transfers() == []


def test_strict_leasing_and_a_site_that_returns() -> None:
    """A late acknowledgement of a client of the site that was gone: counts if nobody has the message."""
    sites = owned_queue()
    sites.reader("n2", prefetch=1)
    sites.publish("a", by=sites.at["n2"])
    assert sites.taken() == "a"
    sites.broker.sites.went("n2")
    sites.end_turn()
    sites.client_of("n2").ack(1)
    sites.end_turn()
    assert sites.named().ready_count == 0
    sites.broker.sites.came("n2")
    sites.advance(100)
    assert sites.taken() == ""


def test_replay_takes_nothing_and_keeps_owners() -> None:
    sites = owned_queue()
    sites.publish(*"abc", by=sites.at["n2"])
    sites.consume(by=sites.connect(site="n3"), tag="replay", prefetch=10, x_bookmark="0")
    sites.advance(200)
    assert sites.taken() == "abc"
    assert [sites.owner_of(one.id) for one in sites.named().messages()] == ["n2"] * 3 and sites.transfers() == []


@pytest.mark.parametrize("arguments", [{}, {"x_priority_expr": "rank"}, {"x_target_depth": 5000}])
@pytest.mark.parametrize("is_get", [False, True])
def test_a_free_message_behind_many_that_wait(arguments: dict[str, Any], is_get: bool) -> None:
    """n1 is busy, and its messages wait for it for an hour. That of n3, without consumers, need not."""
    sites = owned_queue(**arguments)
    options = BrokerOptions(transfer_after_ms=3_600_000)
    sites.broker.reloading.replace_settings(sites.broker.context.settings, options)
    sites.reader("n1")
    for _ in range(30):
        sites.publish(*["x"] * 100, by=sites.at["n1"])
    sites.publish("free", by=sites.at["n3"])
    if is_get:
        got = sites.get(by=sites.at["n2"])
        assert got is not None and got[1].body == b"free"
        assert sites.get(by=sites.at["n2"]) is None
    else:
        sites.reader("n2")
        assert sites.taken("n2") == "free"


def test_gets_at_two_sites_by_turns_read_each_message_about_once() -> None:
    """The messages of one site are far behind those of the other."""
    sites = owned_queue(memory=400_000)
    for site in ("n1", "n2"):
        for _ in range(30):
            sites.publish(*["x" * 200] * 100, by=sites.at[site])
        sites.end_turn()
    pager: Any = sites.broker.context.storage.pager
    load, read = pager.load, []
    pager.load = lambda ids: read.extend(ids) or load(ids)
    got = [sites.get(by=sites.at[site]) for _ in range(20) for site in ("n1", "n2")]
    assert None not in got and 0 < len(read) <= 2 * len(got)


def test_a_free_message_behind_many_and_a_barrier() -> None:
    """A get does not pass the barrier."""
    sites = owned_queue(x_barrier_expr="sync = 1")
    sites.reader("n1")
    for _ in range(30):
        sites.publish(*["x"] * 100, by=sites.at["n1"])
    sites.publish("S", by=sites.at["n1"], headers={"sync": 1})
    sites.publish("free", by=sites.at["n3"])
    assert sites.get(by=sites.at["n2"]) is None


class Leaders(Harness):
    """A broker whose files have the queue q, with a client at each site."""

    checks = True
    FILE = '[[queue]]\nname = "q"\ntype = "amps"\nreplication = "distributed"\n'

    def begin(self) -> None:
        super().begin()
        self.at = {site: self.connect(f"client at {site}", site=site) for site in SITES}


def test_a_delayed_message_is_its_publishers_after_a_kill(tmp_path: Path) -> None:
    """Not the broker's own, which would take it for consumers at its site."""
    sites = owned_queue(tmp_path)
    due_ms = sites.clock.wall_ms() + 100
    for body, site in (("x", "n2"), ("y", "n1")):
        sites.publish(body, by=sites.at[site])
    sites.publish("a", by=sites.at["n2"], headers={"_AMQ_SCHED_DELIVERY": due_ms})
    sites.settle()
    sites.kill()
    for site in ("n1", "n2"):
        sites.reader(site, prefetch=10)
    sites.advance(100)
    assert (sites.taken("n1"), sites.taken("n2")) == ("yx", "a")  # n1 has taken those that were ready before n2 came


def test_a_leader_whose_own_file_differs(tmp_path: Path) -> None:
    """It leads, and does not host the queue; the others go on. A reload of its file heals it."""
    sites = Leaders(Leaders.FILE, kind="amps", site="n1", groups=dict.fromkeys(SITES, ""), journal=tmp_path)
    arguments = dict(sites.named().arguments)
    sites.vhost.queues.declare("q", client=None, durable=True, arguments=arguments, site="n2")
    sites.publish("a", by=sites.at["n2"], delivery_mode=2)
    sites._options["site"], sites.settings = "n3", Leaders.FILE + 'queue-filter = "a = 1"\n'
    sites.restart()
    client = sites.at["n3"].client
    with pytest.raises(QueueNotHosted, match="'a = 1' at n3, not set at the others"):
        sites.vhost.queues.for_consumer("q", client)
    assert sites.publish("lost", by=sites.at["n3"], headers={"a": 1}, mandatory=True) == [b"lost"]
    sites.publish("b", by=sites.at["n1"])
    sites.reload(Leaders.FILE)
    sites.publish("c", by=sites.at["n3"])
    assert sites.bodies() == [b"a", b"b", b"c"]


def test_a_get_at_a_lost_site() -> None:
    """What it got is ready again at once, counts no more in its backlog, and goes elsewhere."""
    sites = owned_queue(x_max_backlog_total=1)
    sites.publish("a", "b", by=sites.at["n2"])
    assert sites.get(by=sites.at["n2"], no_ack=False) is not None
    sites.broker.sites.went("n2")
    sites.reader("n3", prefetch=5)
    sites.advance(3000)
    assert sites.taken() == "a"
    sites.client_of("n3").ack(1)
    sites.end_turn()
    assert sites.taken() == "b"


def test_a_transaction_of_a_site_that_went() -> None:
    """It commits what its site published before: the owner is that site."""
    sites = owned_queue()
    session = sites.at["n2"]
    session.select_transactions()
    sites.publish("a", by=session)
    sites.broker.sites.went("n2")
    session.commit()
    sites.end_turn()
    assert bodies_by_owner(sites, "q") == {"a": "n2"}


def test_messages_beyond_the_depth_after_a_takeover(tmp_path: Path) -> None:
    """A transfer made them active; their leases are lost with the leader: the next one transfers them again, once."""
    sites = owned_queue(tmp_path, x_target_depth=1000)
    for number in range(1100):
        sites.publish(f"{number} ", by=sites.at["n1"], headers={"n": number}, delivery_mode=2)
    sites.reader("n2", prefetch=10, x_filter="n = 1010 OR n = 1050")
    assert sites.taken() == "1010 1050 "
    sites.client_of("n2").ack(1)
    sites.end_turn()
    sites._options["site"] = "n3"
    sites.kill()
    sites.reader("n3", prefetch=100, x_filter="n > 1000 AND n < 1060")
    sites.advance(50)
    assert sites.taken("n3").split() == [str(n) for n in range(1001, 1060) if n != 1010]


@pytest.mark.parametrize("is_anew", [False, True])
def test_an_operator_reaches_the_queue_of_a_domain_whose_sites_are_absent(tmp_path: Path, is_anew: bool) -> None:
    """A publish, or a retry of a dead letter, to its full name is that of a site that declared it."""
    sites = owned_queue(tmp_path)
    where = {"x_replication": "group", "x_initial_owner": "n3", "x_queue_domain": "Y"}
    sites.queue("rooms", client=sites.at["n3"].client, **where)
    if is_anew:
        sites.restart()
    sites.broker.sites.went("n3")
    sites.advance(3000)
    operator = Client(sites.vhost, sites.user, "operator", lambda: None, {})
    operator.site = sites.vhost.context.site_of("rooms@Y")  # as the command and HTTP do
    assert operator.site == "n3"
    assert sites.publish("a", key="rooms@Y", by=operator.open_session(), mandatory=True) == []
    assert bodies_by_owner(sites, "rooms@Y") == {"a": "n3"}
