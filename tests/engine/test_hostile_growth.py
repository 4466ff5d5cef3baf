"""Twice the attack is at most twice the work: counted in lines of Python, never in time."""

from functools import partial

import pytest
from steps import steps

from leveret.engine import Users
from leveret.engine.errors import LoginRefused
from leveret.engine.exchanges.headers import Comparables, HeadersPattern
from leveret.engine.exchanges.topic import TopicPatterns
from leveret.engine.messages.field_table import DEPTH_MAX, Field, FieldTable, FieldTableError, decode_table, scan_table
from leveret.engine.users.access import User
from leveret.engine.users.passwords import hash_password
from leveret.settings import SettingsRepository, entry

#: Twice, and a little for what is done once.
TWICE = 2.2


def table_of(count: int) -> FieldTable:
    """That many headers."""
    return {f"h{number}": Field("I", number) for number in range(count)}


def _match(patterns: list[HeadersPattern], message: FieldTable) -> list[bool]:
    headers = Comparables(message)
    return [pattern.matches(headers) for pattern in patterns]


def test_bindings_of_a_headers_exchange() -> None:
    """With its conditions, not with their square; a nested header is made comparable once, not for each binding."""
    work = []
    for count in (100, 200, 400):
        patterns = [HeadersPattern(table_of(count) | {"n": Field("I", number)}) for number in range(5)]
        work.append(steps(partial(_match, patterns, table_of(count))))
    assert work[1] <= TWICE * work[0] and work[2] <= TWICE * work[1]
    nested = {"a": Field("A", [Field("I", number) for number in range(1_000)]), "n": Field("I", 0)}
    wanted = [HeadersPattern({**nested, "n": Field("I", number)}) for number in range(1, 21)]
    assert steps(lambda: _match(wanted, nested)) <= 1.5 * steps(lambda: _match(wanted[:1], nested))


def test_conditions_count_what_is_in_a_value() -> None:
    """What can be put into one binding can't be hidden in its values."""
    plain = HeadersPattern(table_of(100)).conditions
    assert plain == 101
    assert HeadersPattern({"a": Field("F", table_of(100))}).conditions >= 100
    assert HeadersPattern({"a": Field("A", list(table_of(100).values()))}).conditions >= 100
    assert HeadersPattern({"a": Field("S", bytes(64 * 100))}).conditions >= 100


@pytest.mark.parametrize("word", ["#", "*", "#.a", "#.*", "*.#.a"])
def test_topic_patterns_with_many_wildcards(word: str) -> None:
    """Twice the bindings: twice the work; twice pattern and key: four times, that is pattern by key."""

    def work(bindings: int, words: int) -> int:
        patterns: TopicPatterns[int] = TopicPatterns()
        for number in range(bindings):
            patterns.add(f"*.#.{'.'.join([word] * words)}.#.k{number}", number)
        key = ".".join("a" * 2 * words)
        return steps(lambda: patterns.match(key))

    assert work(20, 10) <= TWICE * work(10, 10)
    assert work(10, 20) <= 4.4 * work(10, 10)
    assert work(10, 40) <= 4.4 * work(10, 20)


def test_wildcards_of_settings() -> None:
    """Operators' matches meet a client's name: linear in their words, whatever the name, and linear in the name."""

    def work(matches: int, length: int) -> int:
        texts = ["*.#", "a.#", "#", ".".join("a" * 120) + ".#"]
        texts += [".".join("a*"[number >> place & 1] for place in range(9)) + ".#" for number in range(matches)]
        repository = SettingsRepository(map(entry, texts))
        return steps(lambda: repository.matches(".".join("a" * length)))

    assert work(400, 20) <= TWICE * work(200, 20)
    assert work(200, 120) <= TWICE * work(200, 60)


def test_duplicate_keys_and_many_keys_of_a_table() -> None:
    """Linear in octets, also when all keys are one."""

    def table(count: int, *, same: bool) -> bytes:
        octets = b"".join(b"\x04%04dI\0\0\0\1" % (0 if same else number) for number in range(count))
        return len(octets).to_bytes(4) + octets

    for read in (decode_table, partial(scan_table, start=0, marks=frozenset({b"0000"}))):
        for same in (True, False):
            work = [steps(partial(read, table(count, same=same))) for count in (500, 1_000, 2_000)]
            assert work[1] <= TWICE * work[0] and work[2] <= TWICE * work[1]


def test_nesting_is_given_up_at_a_depth() -> None:
    """A thousand levels cost no more than the depth that is allowed."""

    def nested(depth: int) -> bytes:
        octets = b""
        for _ in range(depth):
            octets = b"\x01aF" + len(octets).to_bytes(4) + octets
        return len(octets).to_bytes(4) + octets

    def refused(data: bytes) -> None:
        with pytest.raises(FieldTableError):
            decode_table(data)

    allowed = steps(partial(decode_table, nested(DEPTH_MAX - 1)))
    assert steps(partial(refused, nested(10_000))) <= 3 * allowed


def test_a_login_tells_nothing_by_how_long_it_takes() -> None:
    """An unknown user, a wrong password, a user without one: the same steps, a hash among them."""
    users = Users([User("alice", password=hash_password("right", b"salt")), User("bob")])

    def refused(name: str, password: str) -> int:
        def attempt() -> None:
            with pytest.raises(LoginRefused):
                users.log_in(name, password, mechanism="PLAIN", is_loopback=True)

        return steps(attempt)

    assert len({refused(name, "wrong") for name in ("alice", "bob", "nobody", "x" * 200)}) == 1
    assert refused("alice", "wrong") > 5
