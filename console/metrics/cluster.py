"""Families about the cluster, on each node. Families about followers have samples on the leader only."""

from ..cluster import ClusterFacts, NodeFacts
from .exposition import COUNTER, GAUGE, Family, Sample, labelled, rendered

PREFIX = "leveret_cluster_"


def cluster_page(facts: ClusterFacts) -> str:
    leads = facts.leader == facts.own
    states = [Sample(state == facts.state, labelled({"node": facts.own, "state": state})) for state in facts.states]
    plain = (
        ("term", GAUGE, "Number of the leadership, as this node knows it", facts.term),
        ("leads", GAUGE, "1 on the node that leads and serves clients", leads),
        ("journal_end", GAUGE, "Number of the journal's next record", facts.end),
        ("agreed", GAUGE, "LSN after the last record that all nodes in sync have on disk", facts.agreed),
        ("nodes", GAUGE, "Nodes in [cluster] nodes", len(facts.nodes)),
        ("nodes_running", GAUGE, "Nodes that this one reaches, and itself", len(facts.running)),
        ("nodes_in_sync", GAUGE, "Nodes of the in-sync set", sum(node.is_in_sync for node in facts.nodes)),
        ("min_in_sync", GAUGE, "Nodes that confirms need", facts.min_in_sync),
        ("takeovers_total", COUNTER, "Times that this process began to lead", facts.takeovers),
        ("held_seconds_total", COUNTER, "Seconds for which too few nodes in sync blocked publishers", facts.held_s),
        ("link_received_bytes_total", COUNTER, "Octets of the journal that came over the link", facts.received),
    )
    followers = [node for node in facts.nodes if leads and node.is_running and node.name != facts.own]
    parts = [rendered(PREFIX, Family("state", GAUGE, "1 for the state that the node is in"), states)]
    parts += [rendered(PREFIX, Family(name, kind, text), [Sample(value)]) for name, kind, text, value in plain]
    parts += [
        rendered(PREFIX, Family(name, kind, text), [Sample(value, _label_of(node)) for node, value in values])
        for name, kind, text, values in (
            (
                "follower_lag_records",
                GAUGE,
                "Records that a follower does not have on disk yet",
                [(node, node.lag) for node in followers],
            ),
            (
                "follower_lag_bytes",
                GAUGE,
                "Octets that are not sent to a follower yet; no sample if they are in several segments",
                [(node, node.lag_octets) for node in followers if node.lag_octets is not None],
            ),
            (
                "follower_lag_seconds",
                GAUGE,
                "Age of the last record that a follower has, to half a second",
                [(node, node.lag_s) for node in followers],
            ),
            (
                "link_sent_bytes_total",
                COUNTER,
                "Octets that were sent to a follower over its link",
                [(node, node.sent) for node in followers],
            ),
        )
    ]
    return "".join(parts)


def _label_of(node: NodeFacts) -> str:
    return labelled({"follower": node.name})
