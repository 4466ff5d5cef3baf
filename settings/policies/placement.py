"""Arguments and policy keys of RabbitMQ that ask where a queue is, and on how many nodes: accepted without effect.

Source: docs/cluster.md.
"""

_EVERYWHERE = "a durable queue is on every node of a cluster, whatever is asked for"
_LED = "the node that leads the cluster leads all queues, whatever is asked for"
_CONFIRMED = "a durable queue is on every node of a cluster, and confirms wait for min-in-sync of them"

#: Name -> its effect here, in one sentence.
PLACEMENT: dict[str, str] = {
    "x-quorum-initial-group-size": _EVERYWHERE,
    "x-initial-cluster-size": _EVERYWHERE,
    "x-queue-leader-locator": _LED,
    "x-queue-master-locator": _LED,
    "x-ha-policy": _EVERYWHERE,
    "initial-cluster-size": _EVERYWHERE,
    "target-group-size": _EVERYWHERE,
    "member-placement-tag": _EVERYWHERE,
    "queue-leader-locator": _LED,
    "queue-master-locator": _LED,
    "ha-mode": _CONFIRMED,
    "ha-params": _CONFIRMED,
    "ha-sync-mode": "a node that joins copies the journal by itself",
    "ha-sync-batch-size": "a node that joins copies the journal by itself, at [cluster] copy-rate",
    "ha-promote-on-shutdown": "only a node that has everything that was confirmed can lead",
    "ha-promote-on-failure": "only a node that has everything that was confirmed can lead",
}
