"""Publisher confirms: whatever is published, refused and synced in whatever order, each publish is answered once."""

from hypothesis import given
from hypothesis import strategies as st

from leveret.engine.clients.confirms import Confirms

#: One step: publish so many, of which those offsets are refused, behind a barrier or not; or take what is safe.
STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 4), st.sets(st.integers(0, 3)), st.booleans()),
    st.tuples(st.just("take"), st.integers(0, 3)),
    st.just(("fail",)),
)


@given(st.lists(STEP, max_size=30))
def test_each_publish_is_answered_once_and_in_order(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    """Behaviour page 2.14: acks and nacks rise, a multiple covers only acks, nothing is said before it is safe."""
    confirms = Confirms()
    lsn = safe = 0
    answers: list[bool] = []  # of each publish: whether it is to be acked
    barriers: list[int] = []  # of each publish: the LSN behind which it is answered
    answered: list[bool] = []
    for step in steps:
        if step[0] == "add":
            _, count, offsets, is_stored = step
            refused = sorted(offset for offset in offsets if offset < count)
            lsn += is_stored
            confirms.add(count, refused, lsn if is_stored else 0)
            answers += [offset not in refused for offset in range(count)]
            before = barriers[-1] if barriers else 0
            barriers += [max(before, lsn if is_stored else 0)] * count
        elif step[0] == "fail":
            confirms.refuse_waiting()
            assert not confirms.waiting
            for at in range(len(answered), len(answers)):
                if barriers[at] > safe:
                    answers[at], barriers[at] = False, 0
            safe = lsn
        else:
            safe = max(safe, min(lsn, safe + step[1]))
            for tag, multiple, is_ack in confirms.take(safe):
                covered = answers[len(answered) : tag]
                assert covered and all(answer is is_ack for answer in covered)
                assert multiple is (len(covered) > 1)
                assert barriers[tag - 1] <= safe
                answered += covered
    confirms.take(safe)
    due = [at for at, barrier in enumerate(barriers) if barrier <= safe]
    assert confirms.confirmed == (max(due) + 1 if due else 0)


def test_what_is_safe_when_the_journal_fails_is_confirmed() -> None:
    """Its confirm was about to be sent: a nack would have it published twice."""
    confirms = Confirms()
    for lsn in (1, 2, 3):
        confirms.add(1, (), lsn)
    confirms.refuse_waiting(2)
    assert confirms.take(2) == [(2, True, True), (3, False, False)]
