"""Why the queues of a running broker have the settings that they have. Pure: a broker in virtual time."""

from configured_broker import configured_queue, make, reload, session_of

from leveret.configured.typed_arguments import fields_of
from leveret.operator.running import explain_running


def test_explain_shows_the_queue_that_is_there() -> None:
    """Own arguments on top, with file and line where the configuration says them; a client's stand for themselves."""
    objects = make(configured_queue("redelivery-delay = 5000"))
    session = session_of(objects)
    table = fields_of({"x-redelivery-delay": 7, "x-max-priority": 3})
    session.client.vhost.queues.declare("mine", client=session.client, arguments=table)
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
    assert row.rule == "as declared or resized; a queue declared now would have 4 (f.toml:9: match '#')"


def test_explain_an_address_where_there_is_no_queue() -> None:
    """In "/", and where a virtual host has entries of its own; a virtual host that is asked for alone."""
    objects = make(
        '[[vhost]]\nname = "v"\n[[vhost]]\nname = "w"\n[[address-setting]]\nmatch = "a"\nvhost = "v"\n'
        'dead-letter-address = "D"\n'
    )
    assert [(one.kind, one.vhost) for one in explain_running(objects, "a")] == [("address", "/"), ("address", "v")]
    assert [one.vhost for one in explain_running(objects, "a", "w")] == ["w"]


def test_explain_an_address_where_no_virtual_host_is_the_default_one() -> None:
    """An operator may delete "/": another one stands for it, and with none there is nothing to explain."""
    objects = make('[[vhost]]\nname = "v"\n')
    hosts = objects.broker.virtual_hosts
    for left, expected in ((["v"], ["v"]), ([], [])):
        for name in set(hosts) - set(left):
            hosts.delete(name)
        objects.broker.end_turn()
        assert [one.vhost for one in explain_running(objects, "a")] == expected


def test_explain_says_whether_flow_control_applies() -> None:
    """By the settings that the broker has; a queue's destination policy is that of its name."""
    objects = make(configured_queue(""))
    (one,) = explain_running(objects, "q")
    assert one.flow.startswith("none: ")
    reload(objects, configured_queue("") + '\n[[address-setting]]\nmatch = "q"\nmemory-limit = 5\n')
    (one,) = explain_running(objects, "q")
    assert one.flow == "by memory-limit (f.toml:13: match 'q')"


QUEUE = '[[queue]]\nname = "Q"\ntype = "amps"\nunderlying-topic = "^Ord"\ndefault-publish-target = "Orders"\n'
LISTED = '[[logged-topic]]\nname = "Q"\n[[logged-topic]]\npattern = "^Orders$"\nretain = "1h"\n'


def test_explain_says_what_captures_and_logs_a_topic() -> None:
    """By the queues that there are, of clients, too, and the lists in force; of a queue also what it was built from."""
    objects = make(QUEUE + 'queue-filter = "/a = 1"\n')
    session = session_of(objects)
    table = fields_of({"x-queue-type": "amps", "x-underlying-topic": "Orders", "x-recovery-point": "now"})
    session.client.vhost.queues.declare("mine", client=session.client, durable=True, arguments=table)

    def rows(name: str) -> list[tuple[str, object, str]]:
        (one,) = explain_running(objects, name)
        return [
            (row.name, row.value, row.rule)
            for row in one.rows
            if row.name in ("captured-by", "logged-by", "built-from")
        ]

    captured = [
        ("captured-by", "Q", "underlying-topic '^Ord', if /a = 1"),
        ("captured-by", "mine", "underlying-topic 'Orders'"),
    ]
    unlisted = ("logged-by", "the queues that capture it", "no logged topics are listed (W-TXLOG)")
    assert rows("Orders") == [*captured, unlisted]
    assert rows("mine") == [unlisted, ("built-from", "now", "recovery-point 'now'")]
    reload(objects, LISTED + QUEUE + 'queue-filter = "/a = 1"\n')
    listed = ("logged-by", "^Orders$", "f.toml:3: logged topic '^Orders$' (pattern), kept 3600000 ms")
    assert rows("Orders") == [*captured, listed]
    assert rows("Q")[0] == listed and rows("Q")[1][:2] in (("built-from", "epoch"), ("built-from", "is being built"))
    assert rows("other") == []
