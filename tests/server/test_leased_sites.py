"""Leased queues of the files of a node of a cluster: hosted for that node, under their full names.

Source: cluster page 12; queues page A.3.
"""

from typing import Any

import pytest

from leveret.configured.configured import ConfiguredObjects
from leveret.engine import Field
from leveret.operator.running import explain_running
from leveret.settings import load_configuration
from leveret.testing.harness import Harness

LOCAL = '[[queue]]\nname = "jobs"\ntype = "amps"\nreplication = "local"\nlease-period = "5s"\n'
SHARED = '[[queue]]\nname = "jobs"\ntype = "amps"\nreplication = "distributed"\nqueue-filter = "a = 1"\n'
GROUP = (
    '[[queue]]\nname = "jobs"\ntype = "amps"\nreplication = "group"\ninitial-owner = "n1"\n'
    'underlying-topic = "orders"\nqueue-domain = "X"\n'
)
XML = """<AMPSConfig><SOW>
<LocalQueue><Name>a</Name><MessageType>json</MessageType></LocalQueue>
<Queue><Name>b</Name><MessageType>json</MessageType></Queue>
</SOW></AMPSConfig>"""
CLUSTER = """[cluster]
node = "n1"
nodes = ["n1=127.0.0.1:7001", "n2=127.0.0.1:7002", "n3=127.0.0.1:7003"]
etcd = ["http://127.0.0.1:2379"]
"""


def node(text: str, name: str = "n1", **more: Any) -> Harness:
    """A broker that leads as this node."""
    return Harness(text, site=name, groups=dict.fromkeys(("n1", "n2", "n3"), ""), **more)


@pytest.mark.parametrize(
    ("text", "full_name"), [(LOCAL, "jobs@n1"), (SHARED, "jobs"), (GROUP, "jobs@X")], ids=["local", "shared", "group"]
)
def test_a_queue_of_the_files_is_hosted_by_its_node(text: str, full_name: str, tmp_path: Any) -> None:
    """Its client finds it; a reload changes it; a restart finds it as it was, without remarks."""
    harness = node(text, journal=tmp_path)
    assert list(harness.vhost.queues) == [full_name]
    assert harness.vhost.queues.seen("jobs", harness.client) is harness.named(full_name)
    reports = [harness.objects.apply(harness.objects.configuration)]
    harness.restart()
    reports.append(harness.objects.apply(harness.objects.configuration))
    assert [(report.faults, report.done, report.warnings) for report in reports] == [((), (), ())] * 2
    assert list(harness.vhost.queues) == [full_name]
    harness.reload(text + "max-deliveries = 3\n")
    assert harness.named(full_name).arguments["x-max-deliveries"].value == 3


@pytest.mark.parametrize("text", [LOCAL, SHARED, GROUP], ids=["local", "shared", "group"])
def test_a_queue_of_the_files_is_explained_by_their_lines(text: str) -> None:
    """By its full name, and by the one that clients say; one of another node's files says that it may be of those."""
    harness = node(text)
    (full_name,) = harness.vhost.queues
    for name in dict.fromkeys((full_name, "jobs")):
        (explained,) = explain_running(harness.objects, name)
        rules = {row.name: row.rule for row in explained.rows}
        assert (explained.name, explained.declared_at) == (full_name, "harness.toml:1")
        assert rules["replication"] == "harness.toml:4: queue 'jobs' (x-replication)"
        assert rules["durable"] == "harness.toml:1: queue 'jobs'"
    arguments = {"x-queue-type": Field("S", b"amps"), "x-replication": Field("S", b"local")}
    harness.vhost.queues.declare("other", client=None, durable=True, arguments=arguments, site="n2")
    (explained,) = explain_running(harness.objects, "other@n2")
    assert "declared by a client or by the files of another node" in {row.rule for row in explained.rows}


def test_another_node_declared_it_otherwise() -> None:
    """The files of n2 came first: this node does not host the queue, says why, and leaves it as it is."""
    harness = node("")
    arguments = {
        "x-queue-type": Field("S", b"amps"),
        "x-replication": Field("S", b"distributed"),
        "x-queue-filter": Field("S", b"a = 2"),
    }
    harness.vhost.queues.declare("jobs", client=None, durable=True, arguments=arguments, site="n2")
    configuration, faults = load_configuration([("f.toml", SHARED)])
    assert not faults
    report = harness.objects.apply(configuration)
    assert "E-MISMATCH" in report.warnings[0] and "not hosted by this node" in report.warnings[0]
    assert harness.named("jobs").arguments["x-queue-filter"].text == "a = 2"
    assert harness.vhost.queues.seen("jobs", harness.client) is None
    assert harness.vhost.queues.seen("jobs", harness.connect(site="n2").client) is harness.named("jobs")


def test_a_node_alone_changes_what_it_declared() -> None:
    """No other node has declared the queue."""
    harness = node(SHARED)
    harness.reload(SHARED.replace("a = 1", "a = 2"))
    assert harness.named("jobs").arguments["x-queue-filter"].text == "a = 2"


def test_messages_of_before_the_cluster_are_told(tmp_path: Any) -> None:
    """A broker alone had the LocalQueue without a scope: it stays beside the node's own, with a warning until it is
    empty, and seen by clients of nodes that have none. A Queue goes on as it was.
    """
    alone, _ = load_configuration([("amps.xml", XML)])
    on_node, _ = load_configuration([("amps.xml", XML), ("f.toml", CLUSTER)])
    harness = Harness(journal=tmp_path)
    ConfiguredObjects(harness.broker, alone).apply(alone)
    harness.publish("x", key="a", delivery_mode=2)
    harness.publish("y", key="b", delivery_mode=2)
    harness._options.update(site="n1", groups=dict.fromkeys(("n1", "n2"), ""))
    harness.restart()
    objects = ConfiguredObjects(harness.broker, on_node)
    (warning,) = objects.apply(on_node).warnings
    assert "'a@n1' hides the queue 'a'" in warning
    assert {name: queue.ready_count for name, queue in harness.vhost.queues.items()} == {"a": 1, "b": 1, "a@n1": 0}
    assert harness.vhost.queues.seen("a", harness.connect(site="n2").client) is harness.named("a")
    assert harness.vhost.queues.seen("b", harness.connect(site="n1").client) is harness.named("b")
    harness.vhost.queues["a"].purge()
    harness.restart()
    assert ConfiguredObjects(harness.broker, on_node).apply(on_node).warnings == ()


def test_files_of_amps_on_a_node() -> None:
    """A LocalQueue is the node's alone; nothing acts as a LocalQueue that is none (W-LOCAL). Not without a cluster."""
    on_node, faults = load_configuration([("amps.xml", XML), ("f.toml", CLUSTER)])
    alone, _ = load_configuration([("amps.xml", XML)])
    assert not faults
    assert [queue.arguments.get("x-replication") for queue in on_node.queues] == ["local", "distributed"]
    assert [queue.arguments.get("x-replication") for queue in alone.queues] == [None, "distributed"]
    assert [any("W-LOCAL" in one for one in found.warnings) for found in (on_node, alone)] == [False, True]


def test_looking_makes_no_virtual_host() -> None:
    """Neither the preview of a reload nor an explanation: only a reload creates the virtual host of a new queue."""
    harness = node(LOCAL)
    configuration, faults = load_configuration([("f.toml", LOCAL.replace("[[queue]]", '[[queue]]\nvhost = "new"'))])
    assert not faults
    assert harness.objects.arguments_after(configuration) == {}
    assert harness.objects.queues_deleted_by(configuration) == []
    assert "new" not in harness.broker.virtual_hosts
    harness.objects.apply(configuration)
    assert list(harness.broker.virtual_hosts["new"].queues) == ["jobs@n1"]


def test_a_preview_knows_the_queues_of_other_nodes() -> None:
    """A reload keeps a queue that another node declares, too, so the preview does not announce its end."""
    force = '[[address-setting]]\nmatch = "#"\nconfig-delete-queues = "FORCE"\n'
    configuration, faults = load_configuration([("f.toml", force)])
    assert not faults
    for sites in ((), ("n2",)):
        harness = node(SHARED)
        queue = harness.named("jobs")
        for site in sites:
            queue.kind.host(queue, site, queue.arguments)
        announced = harness.objects.queues_deleted_by(configuration)
        harness.objects.apply(configuration)
        assert (announced == [queue]) is queue.deleted is (not sites)
