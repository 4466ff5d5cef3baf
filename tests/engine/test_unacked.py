"""Which deliveries a tag names, against a list: single, up to a tag, all; in a transaction, rolled back or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Message
from leveret.engine.clients.unacked import Unacked
from leveret.engine.errors import UnknownDeliveryTag

#: Deliver so many; settle the tag at a place among all that there ever were; take all; begin, end, or roll back.
STEP = st.one_of(
    st.tuples(st.just("deliver"), st.integers(1, 5)),
    st.tuples(st.sampled_from(("one", "one", "up to", "up to", "take all", "select", "commit", "roll back")),
              st.integers(0, 20)),
)  # fmt: skip


@given(st.booleans(), st.lists(STEP, min_size=5, max_size=30))
def test_what_a_tag_names(is_transactional: bool, steps: list[tuple[str, int]]) -> None:
    """Behaviour page 2.12, 2.15: tags name what is out, each once; what a rollback puts back is in its place."""
    unacked = Unacked()
    uncommitted: dict[int, Message] | None = {} if is_transactional else None
    out: list[int] = []
    taken: list[int] = []  # by the transaction
    next_tag = 1
    messages: dict[int, Message] = {}
    for what, number in steps:
        if what == "deliver":
            for tag in range(next_tag, next_tag + number):
                messages[tag] = unacked[tag] = Message(tag, b"", None)  # type: ignore[arg-type]
                out.append(tag)
            next_tag += number
        elif what in ("one", "up to"):
            tag, multiple = number % (next_tag + 1), what == "up to"
            if not (tag in out or multiple and tag == 0):
                with pytest.raises(UnknownDeliveryTag):
                    unacked.take(tag, multiple=multiple, uncommitted=uncommitted)
            else:
                named = [one for one in out if one == tag or multiple and (one < tag or not tag)]
                found = unacked.take(tag, multiple=multiple, uncommitted=uncommitted)
                assert found == [messages[one] for one in named]
                out = [one for one in out if one not in named]
                taken += named if uncommitted is not None else []
        elif what == "take all":
            assert unacked.take_all() == [messages[one] for one in out]
            out = []
        elif what == "roll back" and uncommitted is not None:
            unacked.put_back(uncommitted)
            out, taken, uncommitted = sorted(out + taken), [], {}
        elif what in ("select", "commit"):
            taken, uncommitted = [], {}
        assert list(unacked.items()) == [(tag, messages[tag]) for tag in out]
        assert uncommitted is None or uncommitted == {tag: messages[tag] for tag in taken}
