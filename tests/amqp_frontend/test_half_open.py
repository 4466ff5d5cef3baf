"""Places of connections that are not logged in: shares of addresses, a reserve for known ones, who makes room.

And the limits that are for all connections.
"""

import pytest

from leveret.amqp_frontend.edge.admission import (
    BEGUN_AGAINST_KNOWN_NS,
    BEGUN_NS,
    KNOWN_MAX,
    Admission,
    HalfOpen,
    NoSlot,
)
from leveret.amqp_frontend.edge.proxy_protocol import peer_of
from leveret.amqp_frontend.options import FrontendOptions

PLACES = 80  # a stranger's address has 10 of them, a known one 40, all strangers 60


class Door:
    """Connections are numbers that rise; `now_ns` is set by the test."""

    def __init__(self, slots: int = PLACES) -> None:
        self.half_open: HalfOpen[int] = HalfOpen()
        self.slots = slots
        self.now_ns = 0
        self._next = 0

    def come(self, origin: str, *, is_trusted: bool = False, begins: bool = False) -> tuple[int, int | None]:
        """(the newcomer, who lost a place). Raises: NoSlot."""
        self._next += 1
        how = {"is_trusted": is_trusted, "now_ns": self.now_ns}
        lost = self.half_open.make_room(origin, slots=self.slots, **how)
        self.half_open.enter(self._next, origin, **how)
        if begins:
            self.half_open.note_begun(self._next)
        return self._next, lost

    def fill(self, origin: str, count: int, **how: bool) -> list[int]:
        """So many, none of whom may cost anybody a place."""
        found = [self.come(origin, **how) for _ in range(count)]
        assert [lost for _, lost in found] == [None] * count
        return [one for one, _ in found]


@pytest.mark.parametrize(
    "kind, share",
    [("stranger", 10), ("known", 40), ("trusted", 80)],
)
def test_an_address_has_a_share(kind: str, share: int) -> None:
    """Who comes beyond it gets the place of the oldest of the same address that has said nothing."""
    door = Door()
    if kind == "known":
        door.half_open.note_logged_in(door.come("a")[0])
    how = {"is_trusted": kind == "trusted"}
    ones = door.fill("a", share, **how)
    door.half_open.note_begun(ones[0])
    assert door.come("a", **how)[1] == ones[1]
    assert door.come("a", **how)[1] == ones[2]
    assert len(door.half_open) == share


def test_who_has_begun_has_a_second() -> None:
    """A herd from one address does not tread itself down; who does not go on makes room."""
    door = Door()
    ones = door.fill("a", 10, begins=True)
    with pytest.raises(NoSlot, match="10 connections from a are not logged in") as refused:
        door.come("a")
    assert refused.value.wait_ns is None
    door.now_ns = BEGUN_NS
    assert door.come("a")[1] == ones[0]


def test_the_second_is_counted_from_when_a_connection_has_begun() -> None:
    """However long the broker runs."""
    door = Door()
    door.now_ns = 10 * BEGUN_NS
    ones = door.fill("a", 10, begins=True)
    with pytest.raises(NoSlot):
        door.come("a")
    door.now_ns += BEGUN_NS
    assert door.come("a")[1] == ones[0]


@pytest.mark.parametrize("kind", ["known", "trusted"])
def test_who_is_no_stranger_waits_for_a_tenth_of_it(kind: str) -> None:
    """A flood of connections that begin and do not go on, from the same address, does not keep its logins out."""
    door = Door(16)
    if kind == "known":
        door.half_open.note_logged_in(door.come("a")[0])
    how = {"is_trusted": kind == "trusted"}
    ones = door.fill("a", 16 if how["is_trusted"] else 8, begins=True, **how)
    door.now_ns = 1000
    with pytest.raises(NoSlot) as refused:
        door.come("a", **how)
    assert refused.value.wait_ns is not None
    door.now_ns += refused.value.wait_ns
    assert door.now_ns == BEGUN_AGAINST_KNOWN_NS
    assert door.come("a", **how)[1] == ones[0]


def test_fewer_places_than_are_taken() -> None:
    """Something else is short: who comes gets the place of one who is there, or there is nobody who could make room."""
    door = Door()
    ones = door.fill("a", 10)
    door.slots = 3
    assert door.come("b")[1] == ones[0]
    assert door.come("a")[1] == ones[1]
    for one in range(1, 20):
        door.half_open.leave(one)
    door.slots = 0
    with pytest.raises(NoSlot, match="0 connections are not logged in"):
        door.come("a", is_trusted=True)


def test_strangers_never_have_all_places() -> None:
    """A quarter is for this machine, proxies, and addresses from which somebody logged in lately."""
    door = Door()
    door.half_open.note_logged_in(door.come("known")[0])
    for number in range(6):
        door.fill(f"stranger {number}", 10, begins=True)
    door.fill("known", 10, begins=True)
    door.fill("loopback", 10, is_trusted=True, begins=True)
    assert len(door.half_open) == PLACES


def test_the_address_with_most_places_makes_room() -> None:
    """Even for who has begun: one who has few gets a place from those who have many."""
    door = Door()
    heavy = [door.fill(f"stranger {number}", 10, begins=True) for number in range(6)]
    lost = [door.come("newcomer")[1] for _ in range(8)]
    assert set(lost) <= {one for ones in heavy for one in ones[:2]} and len(set(lost)) == 8
    assert len(door.half_open) == 60


def test_many_addresses_with_one_each() -> None:
    """The oldest goes, unless it has begun lately; then the newcomer does."""
    door = Door()
    for number in range(60):
        door.fill(f"stranger {number}", 1, begins=True)
    with pytest.raises(NoSlot, match="60 connections are not logged in"):
        door.come("newcomer")
    door.now_ns = BEGUN_NS
    assert door.come("newcomer")[1] == 1
    assert door.come("another")[1] == 2


def test_all_places_are_taken() -> None:
    """Then this machine's newcomers take from whoever has most, and so do strangers while they are few."""
    door = Door()
    door.half_open.note_logged_in(door.come("known")[0])
    known = door.fill("known", 40)
    for number in range(4):
        door.fill(f"stranger {number}", 10)
    assert door.come("loopback", is_trusted=True)[1] == known[0]
    assert door.come("newcomer")[1] == known[1]


def test_refused_logins_keep_their_places() -> None:
    """Guessing stays slow: no newcomer gets a guesser out, and the guesser's address has no more than its share."""
    door = Door()
    for one in door.fill("a", 10):
        door.half_open.note_refused(one)
    with pytest.raises(NoSlot):
        door.come("a")
    door.fill("b", 10)
    for one in range(1, 11):
        door.half_open.leave(one)
    door.fill("a", 10)


def test_a_login_frees_the_place_and_makes_the_address_known() -> None:
    """The others of that address are strangers no longer."""
    door = Door()
    first, *_ = door.fill("a", 10)
    door.half_open.note_logged_in(first)
    door.half_open.leave(first)
    assert len(door.half_open) == 9
    door.fill("a", 31)
    for number in range(4):
        door.fill(f"stranger {number}", 10)


def test_known_addresses_are_forgotten_in_the_end() -> None:
    """The latest are remembered, so that who logs in from ever new addresses takes no memory."""
    door = Door()
    for number in range(KNOWN_MAX + 1):
        door.half_open.note_logged_in(door.come(f"{number}")[0])
    for origin, share in (("0", 10), ("1", 40)):
        ones = door.fill(origin, share)
        assert door.come(origin)[1] == ones[0]


def test_an_address_that_logs_in_again_is_not_the_oldest() -> None:
    """It is remembered from its last login on, not from its first."""
    door = Door()
    for number in [*range(KNOWN_MAX), 0, KNOWN_MAX]:
        door.half_open.note_logged_in(door.come(f"{number}")[0])
    for origin, share in (("0", 40), ("1", 10)):
        ones = door.fill(origin, share)
        assert door.come(origin)[1] == ones[0]


def test_nothing_stays_behind() -> None:
    """Who is gone leaves nothing, in whatever state."""
    door = Door()
    for how in ({}, {"begins": True}, {"is_trusted": True}):
        for one in door.fill(f"{how}", 5, **how):
            if one % 2:
                door.half_open.note_refused(one)
                door.half_open.note_refused(one)
                door.half_open.note_begun(one)
            door.half_open.leave(one)
            door.half_open.leave(one)
            door.half_open.note_logged_in(one)
    assert len(door.half_open) == 0
    assert not door.half_open._addresses and not any(door.half_open._by_weight.values())
    assert door.half_open._strangers == 0


@pytest.mark.parametrize(
    "host, origin",
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "this machine"),
        ("127.0.0.9", "this machine"),
    ],
)
def test_where_a_peer_comes_from(host: str, origin: str) -> None:
    """Of IPv6 a /64: so much each subscriber has."""
    assert peer_of((host, 5672, 0, 0), None).origin == origin


def test_a_peer_of_a_unix_socket_is_on_this_machine() -> None:
    """So that the user guest may log in."""
    peer = peer_of("", None)
    assert peer.is_loopback and peer.origin == peer_of(("127.0.0.1", 5672), None).origin


@pytest.mark.parametrize(
    "descriptor, connections, why",
    [
        (99, 9, ""),
        (100, 9, "100 descriptors are in use, the rest is for the broker's files"),
        (101, 9, "100 descriptors are in use, the rest is for the broker's files"),
        (99, 10, "10 connections are open"),
    ],
)
def test_connections_and_descriptors_are_limited(descriptor: int, connections: int, why: str) -> None:
    """As many connections as are configured, and no descriptor that the journal may need."""
    options = FrontendOptions(descriptor_max=100, connections_max=10)
    assert Admission[int]().shortage(descriptor, connections, options) == why


def test_each_shortage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """However many connections come meanwhile; it is over when some descriptors are free, not only one."""
    admission, options = Admission[int](), FrontendOptions(descriptor_max=100)
    for _ in range(2):
        for descriptor in (100, 101, 99, 100, 50, 51):
            if why := admission.shortage(descriptor, 0, options):
                admission.note_short(why)
    short = "no more connections are accepted: 100 descriptors are in use, the rest is for the broker's files"
    assert [record.getMessage() for record in caplog.records] == [short, "connections are accepted again"] * 2


def test_a_shortage_of_descriptors_leaves_half_of_them_to_those_who_are_logged_in() -> None:
    """And a newcomer takes the slot of another one while no descriptor is free at all."""
    admission, options = Admission[int](), FrontendOptions(descriptor_max=8, half_open_max=100)
    lost = []
    for number in range(6):
        peer = peer_of((f"10.0.0.{number}", 5), ("10.0.0.9", 5672))
        lost.append(admission.make_room(peer, is_trusted=True, options=options, is_short=number == 3, now_ns=number))
        admission.half_open.enter(number, peer.origin, is_trusted=True, now_ns=number)
    assert lost == [None, None, None, 0, None, 1]
    assert len(admission.half_open) == 4


def test_an_address_that_logs_in_makes_room_for_other_strangers() -> None:
    """All of its slots are those of a known one from then on."""
    door = Door(slots=16)  # strangers have 12, an address 8 of them
    first = door.fill("a", 8)
    door.fill("b", 4)
    assert door.come("c")[1] == first.pop(0)
    door.half_open.note_logged_in(first.pop())
    assert [door.come("d")[1] for _ in range(5)] == [None] * 5


def test_strangers_take_no_place_of_a_known_address() -> None:
    """When they have all that are for strangers, one of them makes room, although a known address has more."""
    door = Door()
    door.half_open.note_logged_in(door.come("known")[0])
    door.fill("known", 15)
    strangers = [door.fill(f"stranger {number}", 10) for number in range(6)]
    lost = door.come("another")[1]
    assert lost in [one for ones in strangers for one in ones]
