"""The other nodes as sites of the broker that leads: their declarations, and whether they are there."""

from collections.abc import Iterator
from typing import Any

import pytest

from leveret.serving.cluster_sites import REFUSALS_MAX, RETURN_MS, ClusterSites, site_of
from leveret.settings import Configuration
from leveret.settings.declared.declarations import QueueDeclaration
from leveret.testing.harness import Harness

GROUPS = {"n1": "east", "n2": "", "n3": ""}
OWNED = {"x-queue-type": "amps", "x-replication": "distributed"}


class Leader(Harness):
    """A broker at n1, and the nodes n2 and n3 beside it."""

    checks = True

    def begin(self) -> None:
        super().begin()
        self.turns = 0
        self.nodes = ClusterSites(self.broker, ("n2", "n3"), self._end_turn)

    def _end_turn(self) -> None:
        self.turns += 1

    def joins(self, node: str, *queues: Any, group: str = "") -> None:
        """A node opens a link, with these queues in its files."""
        self.nodes.link_opened(node, {"group": group, "queues": list(queues)})


@pytest.fixture
def leader() -> Iterator[Leader]:
    yield Leader(kind="amps", site="n1", groups=GROUPS)


def test_a_node_says_its_group_and_its_queues_with_replication() -> None:
    """Other leased queues are the leader's own: all nodes' files are to declare them alike."""
    leased = QueueDeclaration("q", "q", arguments={**OWNED, "x-lease-period": "30s"})
    plain = QueueDeclaration("p", "p", arguments={"x-queue-type": "amps"})
    configuration = Configuration(queues=(leased, plain), explicit={("cluster", "group"): "west"})
    assert site_of(configuration) == {
        "group": "west",
        "queues": [["/", "q", {**OWNED, "x-lease-period": "30s"}]],
    }


def test_more_queues_than_a_link_tells_are_told_as_none(caplog: pytest.LogCaptureFixture) -> None:
    """A Hello that is too large would keep the node out of the cluster."""
    many = tuple(QueueDeclaration(f"q{i}", f"q{i}", arguments={**OWNED, "x-filter": "f" * 900}) for i in range(600))
    assert "queues" not in site_of(Configuration(queues=many))
    assert "600 queues" in caplog.text


def test_queues_of_a_nodes_files_are_hosted_for_it(leader: Leader) -> None:
    """Each node's LocalQueue is its own."""
    local = {"x-queue-type": "amps", "x-replication": "local"}
    leader.joins("n2", ["/", "q", local])
    leader.joins("n3", ["/", "q", local], ["/", "orders", OWNED])
    assert sorted(leader.vhost.queues) == ["orders", "q@n2", "q@n3"]
    assert leader.nodes.refused == {} and leader.turns == 2


def test_what_differs_is_refused_with_its_reason_until_it_is_alike(
    leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    """D10: other queues and nodes are not touched."""
    leader.joins("n2", ["/", "orders", OWNED])
    leader.joins("n3", ["/", "orders", {**OWNED, "x-queue-filter": "/a = 1"}], ["/", "more", OWNED])
    assert sorted(leader.vhost.queues) == ["more", "orders"]
    (line,) = leader.nodes.refused["n3"]
    assert "'orders'" in line and "E-MISMATCH" in line and "n3" in line
    assert line in caplog.text
    leader.joins("n3", ["/", "orders", OWNED])
    assert leader.nodes.refused == {}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["/elsewhere", "q", OWNED], "no virtual host '/elsewhere'"),
        (["/", "q", {**OWNED, "x-lease-period": "soon"}], "x-lease-period"),
        (["/", "q", {**OWNED, "x-replication": "everywhere"}], "x-replication"),
        (["/", "q", {**OWNED, "x-max-backlog": [1]}], "does not understand"),
        (["/", "q"], "does not understand"),
        ("q", "does not understand"),
        (["/", "q", {"x-queue-type": "amps"}], "does not understand"),
        (["/", "q" * 300, OWNED], "q"),
        (["/", "q", {**OWNED, "x-of-later": 2**63}], "does not understand"),
        (["/", "q", {**OWNED, "x-of-later": "\ud800"}], "surrogates"),
    ],
)
def test_a_declaration_that_cannot_be_hosted_is_told(leader: Leader, said: Any, why: str) -> None:
    """Also one that no configuration of this release makes: nodes of two releases follow each other."""
    leader.joins("n2", said)
    assert list(leader.vhost.queues) == [] and why in leader.nodes.refused["n2"][0]


@pytest.mark.parametrize("site", [{}, {"queues": 3, "group": None}, {"queues": [[]], "group": ["east"]}])
def test_a_node_may_say_anything_of_its_site(leader: Leader, site: dict[str, object]) -> None:
    """Its link stays."""
    leader.nodes.link_opened("n2", site)
    assert leader.broker.sites.groups["n2"] == ""


FORCE = '[[address-setting]]\nmatch = "#"\nconfig-delete-queues = "FORCE"\n'
LOCAL = ["/", "q", {"x-queue-type": "amps", "x-replication": "local"}]
SHARED = ["/", "orders", OWNED]


def test_what_a_node_declares_no_longer_stays_unless_settings_say_otherwise(
    leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    """As queues of the leader's own files do; its log says so once."""
    leader.joins("n2", LOCAL)
    leader.joins("n2")
    leader.joins("n2")
    assert list(leader.vhost.queues) == ["q@n2"]
    assert caplog.text.count("is no longer declared; it stays, as config-delete-queues is OFF") == 1


@pytest.fixture
def strict() -> Leader:
    """Queues that no file declares are deleted."""
    return Leader(FORCE, kind="amps", site="n1", groups=GROUPS)


def test_what_no_node_declares_is_deleted_with_its_messages(strict: Leader, caplog: pytest.LogCaptureFixture) -> None:
    """One that others declare stays until they do not, also for the node that withdrew it."""
    strict.joins("n2", LOCAL, SHARED)
    strict.joins("n3", LOCAL, SHARED)
    strict.publish("a", by=strict.connect(site="n2"))
    strict.joins("n2")
    assert sorted(strict.vhost.queues) == ["orders", "q@n3"]
    assert "q@n2' is no longer declared: deleted, as config-delete-queues is FORCE; 1 message lost" in caplog.text
    assert "'orders' is no longer declared; it stays, as other nodes declare it" in caplog.text
    strict.joins("n3", LOCAL)
    assert list(strict.vhost.queues) == ["q@n3"]


def test_a_node_that_leaves_a_domain_sees_its_queue_no_more(strict: Leader) -> None:
    """The others go on."""
    group = {"x-queue-type": "amps", "x-replication": "group", "x-initial-owner": "n2", "x-queue-domain": "X"}
    strict.joins("n2", ["/", "g", group])
    strict.joins("n3", ["/", "g", group])
    clients = {site: strict.connect(site=site).client for site in ("n2", "n3")}
    strict.joins("n3")
    assert strict.vhost.queues.seen("g", clients["n3"]) is None
    assert strict.vhost.queues.seen("g", clients["n2"]) is strict.vhost.queues["g@X"]


@pytest.mark.parametrize("said", [{"group": ""}, {"queues": [["/", "q", {**LOCAL[2], "x-of-later": [1]}]]}])
def test_what_cannot_be_read_withdraws_nothing(strict: Leader, said: dict[str, object]) -> None:
    """A node of another release, or one that has too many queues to tell them."""
    strict.joins("n2", LOCAL)
    strict.nodes.link_opened("n2", said)
    assert list(strict.vhost.queues) == ["q@n2"]
    strict.joins("n2")
    assert not strict.vhost.queues


def test_the_leaders_own_files_do_not_delete_what_other_nodes_declare() -> None:
    """The files of all nodes are changed one after another."""
    shared = '[[queue]]\nname = "orders"\ntype = "amps"\nreplication = "distributed"\n'
    leader = Leader(FORCE + shared, kind="amps", site="n1", groups=GROUPS)
    leader.joins("n2", SHARED)
    leader.reload(FORCE)
    assert list(leader.vhost.queues) == ["orders"]
    leader.joins("n2")
    assert not leader.vhost.queues


def test_a_stranger_is_no_site(leader: Leader) -> None:
    """A link of a name that the configuration does not have declares nothing."""
    leader.joins("n9", ["/", "q", OWNED])
    leader.nodes.link_ended("n9")
    assert "n9" not in leader.broker.sites.groups and not leader.vhost.queues


def test_a_link_that_is_opened_again_at_once_is_not_noticed(leader: Leader) -> None:
    """Leases of the node's clients go on."""
    leader.joins("n2", group="west")
    leader.nodes.link_ended("n2")
    leader.advance(RETURN_MS - 1)
    leader.joins("n2", group="west")
    leader.advance(60_000)
    assert leader.broker.sites.groups["n2"] == "west"


def test_a_node_that_stays_away_is_gone_and_may_come_back(leader: Leader) -> None:
    """Gone after a moment, given up 3 s later."""
    leader.joins("n2", group="west")
    leader.nodes.link_ended("n2")
    leader.advance(RETURN_MS)
    assert "n2" not in leader.broker.sites.groups and not leader.broker.sites.is_lost("n2")
    leader.advance(3000)
    assert leader.broker.sites.is_lost("n2")
    leader.joins("n2", group="west")
    assert leader.broker.sites.groups["n2"] == "west"


def test_nodes_have_a_while_to_open_their_links_to_a_new_leader(leader: Leader) -> None:
    """A takeover does not make all messages those of lost nodes."""
    leader.nodes.begin({"n2": {"group": "west", "queues": []}})
    leader.advance(RETURN_MS)
    assert "n3" not in leader.broker.sites.groups and not leader.broker.sites.is_lost("n3")
    leader.advance(3000)
    assert leader.broker.sites.is_lost("n3") and not leader.broker.sites.is_lost("n2")


def test_a_client_gets_the_messages_of_its_node_before_the_nodes_link_is_back(leader: Leader) -> None:
    """After a takeover clients may be faster than their node. Its messages do not go to other nodes."""
    home = leader.connect(site="n2")
    leader.queue(replication="distributed")
    leader.publish("a", by=home)
    leader.advance(1000)
    leader.nodes.begin({"n3": {"queues": [SHARED]}})
    leader.consume(tag="home", by=home)
    leader.consume(tag="other", by=leader.connect(site="n3"))
    assert leader.taken("home") == "a" and leader.taken("other") == ""


def test_what_is_refused_is_logged_once_and_not_without_end(leader: Leader, caplog: pytest.LogCaptureFixture) -> None:
    """A node that opens its link again and again says the same each time."""
    bad = [["/elsewhere", f"q{number}", OWNED] for number in range(2 * REFUSALS_MAX)]
    for _ in range(3):
        leader.joins("n2", *bad)
    assert len(leader.nodes.refused["n2"]) == len(caplog.messages) == REFUSALS_MAX


def test_of_two_links_of_a_node_that_end_the_next_one_counts(leader: Leader) -> None:
    """The first may be half open, and end late."""
    leader.joins("n2", group="west")
    leader.nodes.link_ended("n2")
    leader.nodes.link_ended("n2")
    leader.joins("n2", group="west")
    leader.advance(60_000)
    assert leader.broker.sites.groups["n2"] == "west"
