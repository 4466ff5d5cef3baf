"""Why the queues of a running broker have the settings that they have. Pure: a broker in virtual time."""

from configured_broker import configured_queue, make, reload, session_of

from leveret.configured.typed_arguments import fields_of
from leveret.control.running import explain_running


def test_explain_shows_the_queue_that_is_there() -> None:
    """Own arguments on top, with file and line where the configuration says them; a client's stand for themselves."""
    objects = make(configured_queue("redelivery-delay = 5000"))
    session = session_of(objects)
    table = fields_of({"x-redelivery-delay": 7, "x-max-priority": 3})
    session.client.vhost.declare_queue("mine", client=session.client, arguments=table)
    (one,) = explain_running(objects, "q")
    rows = {row.name: (row.value, row.rule) for row in one.rows}
    assert (one.kind, one.declared_at) == ("queue", "f.toml:3")
    assert rows["redelivery-delay"] == (5000, "f.toml:5: queue 'q' (x-redelivery-delay)")
    assert rows["default-ring-size"] == (8, "f.toml:9: match '#'")
    (one,) = explain_running(objects, "mine", "/")
    rows = {row.name: (row.value, row.rule) for row in one.rows}
    assert one.declared_at == ""
    assert rows["redelivery-delay"] == (7, "queue argument (x-redelivery-delay)")
    assert rows["x-max-priority"] == (3, "queue argument")
    assert rows["durable"] == (False, "declared by a client")


def test_explain_shows_the_ring_as_it_is() -> None:
    """A queue keeps the ring that it was made with; the row says what a new one would have."""
    objects = make(configured_queue(""))
    reload(objects, configured_queue("").replace("default-ring-size = 8", "default-ring-size = 4"))
    (one,) = explain_running(objects, "q")
    (row,) = [row for row in one.rows if row.name == "default-ring-size"]
    assert row.value == 8
    assert row.rule == "as the queue was made, or resized since; made now it would be 4 (f.toml:9: match '#')"


def test_explain_an_address_where_there_is_no_queue() -> None:
    """In "/", and where a virtual host has entries of its own; a virtual host that is asked for alone."""
    objects = make(
        '[[vhost]]\nname = "v"\n[[vhost]]\nname = "w"\n[[address-setting]]\nmatch = "a"\nvhost = "v"\n'
        'dead-letter-address = "D"\n'
    )
    assert [(one.kind, one.vhost) for one in explain_running(objects, "a")] == [("address", "/"), ("address", "v")]
    assert [one.vhost for one in explain_running(objects, "a", "w")] == ["w"]


def test_explain_says_whether_flow_control_applies() -> None:
    """By the settings that the broker has; a queue's destination policy is that of its name."""
    objects = make(configured_queue(""))
    (one,) = explain_running(objects, "q")
    assert one.flow.startswith("none: ")
    reload(objects, configured_queue("") + '\n[[address-setting]]\nmatch = "q"\nmemory-limit = 5\n')
    (one,) = explain_running(objects, "q")
    assert one.flow == "by memory-limit (f.toml:13: match 'q')"
