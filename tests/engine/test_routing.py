"""Headers bindings, and walks over exchanges that are bound to each other (behaviour page 2.3, 3.9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Broker, Client, ManualClock, User
from leveret.engine.errors import InvalidHeadersMatch, InvalidHeadersMatchType
from leveret.engine.exchanges.headers import Comparables, HeadersPattern
from leveret.engine.messages.field_table import Field, FieldTable

USER = User("guest")


def s(text: str) -> Field:
    """A long string."""
    return Field("S", text.encode())


ONE, TWO, VOID = Field("I", 1), Field("I", 2), Field("V", None)
ALL, ANY = s("all"), s("any")


@pytest.mark.parametrize(
    "arguments, headers, matches",
    [
        ({}, {}, True),
        ({}, {"a": ONE}, True),
        ({"x-match": ANY}, {"a": ONE}, False),
        ({"x-match": ALL, "a": ONE}, {"a": ONE}, True),
        ({"x-match": ALL, "a": ONE}, {"a": TWO}, False),
        ({"x-match": ALL, "a": ONE, "b": TWO}, {"a": ONE}, False),
        ({"x-match": ANY, "a": ONE, "b": TWO}, {"a": ONE}, True),
        ({"x-match": ANY, "a": ONE, "b": TWO}, {"c": ONE}, False),
        ({"a": ONE, "b": TWO}, {"b": TWO, "a": ONE, "c": VOID}, True),
        ({"a": VOID}, {"a": TWO}, True),
        ({"a": VOID}, {"b": TWO}, False),
        ({"a": ONE}, {"a": VOID}, False),
        ({"a": ONE}, {"a": Field("l", 1)}, True),
        ({"a": ONE}, {"a": Field("d", 1.0)}, True),
        ({"a": ONE}, {"a": s("1")}, False),
        ({"a": ONE}, {"a": Field("t", True)}, False),
        ({"a": s("x")}, {"a": Field("x", b"x")}, True),
        ({"x-a": ONE}, {}, True),
        ({"x-match": ANY, "x-a": ONE}, {"x-a": ONE}, False),
        ({"x-match": s("any-with-x"), "x-a": ONE}, {"x-a": ONE}, True),
        ({"x-match": s("all-with-x"), "x-a": ONE}, {}, False),
        ({"x-match": s("all-with-x"), "x-a": ONE}, {"x-a": ONE}, True),
    ],
)
def test_headers_bindings(arguments: FieldTable, headers: FieldTable, matches: bool) -> None:
    """All or any of the conditions; void asks for presence; numbers are equal at any width; x- keys only on demand."""
    assert HeadersPattern(arguments).matches(Comparables(headers)) is matches


@pytest.mark.parametrize(
    "value, refusal",
    [(s("most"), InvalidHeadersMatch), (s(""), InvalidHeadersMatch), (ONE, InvalidHeadersMatchType)],
)
def test_impossible_x_match_is_refused(value: Field, refusal: type[Exception]) -> None:
    """x-match is one of four long strings."""
    with pytest.raises(refusal):
        HeadersPattern({"x-match": value})


KEYS = st.sampled_from(("a", "b", "x-a"))
VALUES = st.sampled_from((ONE, TWO, VOID, s("1")))
TABLES = st.dictionaries(KEYS, VALUES, max_size=3)


@given(TABLES, TABLES, st.sampled_from(("all", "any", "all-with-x", "any-with-x")))
def test_headers_bindings_as_defined(conditions: FieldTable, headers: FieldTable, match: str) -> None:
    """The definition, written down once more."""
    asked = {key: wanted for key, wanted in conditions.items() if match.endswith("-x") or not key.startswith("x-")}
    held = [key in headers and (wanted is VOID or headers[key] == wanted) for key, wanted in asked.items()]
    expected = any(held) if match.startswith("any") else all(held)
    assert HeadersPattern({"x-match": s(match), **conditions}).matches(Comparables(headers)) is expected


class Web:
    """A broker with fanout exchanges 0 to n-1, each with a queue of the same number."""

    def __init__(self, size: int) -> None:
        self.broker = Broker(ManualClock())
        self.client: Client = self.broker.connections.open("/", USER, name="client", flush=lambda: None)
        self.vhost = self.broker.virtual_hosts["/"]
        for number in range(size):
            self.vhost.exchanges.declare(f"e{number}", "fanout")
            self.vhost.queues.declare(f"q{number}", client=self.client)
            self.vhost.bindings.add("queue", f"q{number}", f"e{number}", "", {})

    def reached(self, number: int) -> list[str]:
        """Queues that a message to an exchange comes to."""
        queues = self.vhost.router.route(f"e{number}", "key", USER).queues
        assert queues is not None
        return [queue.name for queue in queues]


@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14))
def test_cycles_of_exchanges_end_and_no_queue_gets_two_copies(size: int, edges: list[tuple[int, int]]) -> None:
    """Any graph of bindings, loops included: every queue that can be reached gets the message once."""
    web = Web(size)
    edges = [(source % size, target % size) for source, target in edges]
    for source, target in edges:
        web.vhost.bindings.add("exchange", f"e{target}", f"e{source}", "", {})
    for start in range(size):
        reach = {start}
        for _ in range(size):
            reach |= {target for source, target in edges if source in reach}
        found = web.reached(start)
        assert len(found) == len(set(found))
        assert set(found) == {f"q{number}" for number in reach}


def test_a_chain_of_a_thousand_exchanges_routes() -> None:
    """The walk has no depth of its own."""
    web = Web(1)
    for number in range(1000):
        web.vhost.exchanges.declare(f"c{number}", "fanout")
        web.vhost.bindings.add("exchange", f"c{number}", f"c{number - 1}" if number else "e0", "", {})
    web.vhost.bindings.add("queue", "q0", "c999", "", {})
    assert web.reached(0) == ["q0"]


@given(st.lists(st.tuples(st.sampled_from(("bind", "unbind", "drop")), st.integers(0, 3), st.integers(0, 3))))
def test_bindings_stay_consistent(steps: list[tuple[str, int, int]]) -> None:
    """Bind, unbind and delete in any order: both ends of every binding agree, and routes follow."""
    web = Web(4)
    for what, source, target in steps:
        names = f"e{target}", f"e{source}"
        if any(name not in web.vhost.exchanges for name in names):
            continue
        if what == "bind":
            web.vhost.bindings.add("exchange", *names, "", {})
        elif what == "unbind":
            web.vhost.bindings.remove("exchange", *names, "", {})
        else:
            web.vhost.exchanges.delete(names[0])
    exchanges = web.vhost.exchanges.values()
    outgoing = {binding for exchange in exchanges for binding in exchange.bindings.values()}
    incoming = {binding for exchange in exchanges for binding in exchange.incoming}
    incoming |= {binding for queue in web.vhost.queues.values() for binding in queue.incoming}
    assert outgoing == incoming
    assert all(web.vhost.exchanges.get(binding.source.name) is binding.source for binding in outgoing)
