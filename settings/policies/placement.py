"""Arguments and policy keys of RabbitMQ that choose a queue's nodes and their number: accepted without effect.

Source: docs/cluster.md.
"""

_ON_EVERY_NODE = "a durable queue is on every node of a cluster, whatever is asked for"
_ONE_LEADER = "the node that leads the cluster leads all queues, whatever is asked for"
_CONFIRMED = "a durable queue is on every node of a cluster, and confirms wait for min-in-sync of them"

#: Name -> its effect here, in one sentence.
PLACEMENT: dict[str, str] = {
    "x-quorum-initial-group-size": _ON_EVERY_NODE,
    "x-initial-cluster-size": _ON_EVERY_NODE,
    "x-queue-leader-locator": _ONE_LEADER,
    "x-queue-master-locator": _ONE_LEADER,
    "x-ha-policy": _ON_EVERY_NODE,
    "initial-cluster-size": _ON_EVERY_NODE,
    "target-group-size": _ON_EVERY_NODE,
    "member-placement-tag": _ON_EVERY_NODE,
    "queue-leader-locator": _ONE_LEADER,
    "queue-master-locator": _ONE_LEADER,
    "ha-mode": _CONFIRMED,
    "ha-params": _CONFIRMED,
    "ha-sync-mode": "a node that joins copies the journal by itself",
    "ha-sync-batch-size": "a node that joins copies the journal by itself, at [cluster] copy-rate",
    "ha-promote-on-shutdown": "only a node that has everything that was confirmed can lead",
    "ha-promote-on-failure": "only a node that has everything that was confirmed can lead",
}
