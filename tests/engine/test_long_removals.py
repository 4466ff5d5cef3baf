"""A purge and the end of a queue cost the same however much is ready: it is freed in slices, and copied by nobody."""

from __future__ import annotations

import pytest

from leveret.engine import PLAIN, Broker, Envelope, ManualClock, User, encode_header

COUNT = 30_000  # more than one slice


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_was_ready_is_freed_as_it_is(is_deleted: bool) -> None:
    """The very list that was in the store waits to be freed."""
    user = User("guest")
    broker = Broker(ManualClock())
    client = broker.connect("/", user, name="c", flush=lambda: None)
    vhost = broker.virtual_hosts["/"]
    queue = vhost.declare_queue("q", client=client)
    blob = PLAIN.join(encode_header(1), b"x")
    route = vhost.route("", "q", user)
    client.open_session().publish(route, Envelope("", "q"), [blob] * COUNT, mandatory=False)
    ready = queue.store.ready
    remove = vhost.delete_queue if is_deleted else vhost.purge_queue
    assert remove("q", client) == COUNT
    freeing = broker.free.__self__  # type: ignore[attr-defined]
    assert list(map(id, freeing._waiting)) == [id(ready)]
    while broker.end_turn():
        pass
    assert not ready and not freeing.pending
