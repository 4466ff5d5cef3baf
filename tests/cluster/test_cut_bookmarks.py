"""CL15: a bookmark of a record that was cut, acknowledged later by control, means no other message."""

import pytest
from simulated_files import SimulatedFiles

from leveret.engine.leases.control import Discarded, discarding
from leveret.testing.harness import Harness


def discard(node: Harness, bookmark: str) -> Discarded:
    """A request of the control exchange about the queue `q`."""
    queue = node.vhost.queues.named("q", None)
    steps = discarding(queue, bookmark, None, "")
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result = done.value
    assert isinstance(result, Discarded)
    return result


@pytest.mark.parametrize("lost", [1, 3])
def test_a_bookmark_of_a_cut_record_acknowledges_nothing(lost: int) -> None:
    """The next leader's ids are far above: the acknowledgement waits for a message that never comes, and is dropped."""
    node = Harness(kind="amps", journal=SimulatedFiles())
    node.properties = {"delivery_mode": 2}
    node.queue(x_max_backlog_per_consumer=100)
    node.publish(*"AB")
    node.settle()
    agreed = node.files.power_cut()
    node.publish(*["X"] * lost)
    cut = [node.broker.context.next_id - 1 - number for number in range(lost)]
    node.files, node.took_over = agreed, True
    node.begin()
    done = discard(node, ",".join(f"1|{id_}|" for id_ in cut))
    assert (done.matches, done.deleted) == (0, 0)
    node.publish(*"CDEF")
    node.settle()
    assert node.all() == "ABCDEF"
