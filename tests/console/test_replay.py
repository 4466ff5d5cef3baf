"""The requests that were asked of RabbitMQ 3.10.8, asked of Leveret: status, reason and headers are equal, or listed.

Each listed row says what Leveret answers, and why; docs/DEVIATIONS.md, "The HTTP API", has them for users.
"""

from collections.abc import Iterator

import pytest
from api_client import ApiClient, Response
from probe_log import NODE, Probe, ask, differences, prepared, probes, reason_of

from leveret.testing import start_broker

FAULT = "RabbitMQ fails (500); Leveret says what is wrong"
GONE = "what is not there is 404, also where RabbitMQ fails (500)"
WORDS = "the same refusal in words of our own"
STRICT = "refused, as it would mean nothing"
LENIENT = "taken, as it is clear what is meant"

#: Line of the log -> (status, why).
DEVIATIONS: dict[int, tuple[int, str]] = {
    **dict.fromkeys((387, 431, 476, 519, 572, 590, 592, 727, 828), (404, GONE)),
    **dict.fromkeys((617, 684, 687, 718, 741, 742, 749, 754, 792, 805, 859), (400, FAULT)),
    **dict.fromkeys((751, 760, 783, 851, 852, 853, 856, 857), (400, WORDS)),
    569: (404, "a queue that is not there has no bindings to show"),
    642: (204, LENIENT),
    705: (200, LENIENT),
    685: (400, STRICT),
    686: (201, "a key that is null is an empty key, not the word null"),
    734: (400, "a hash that no password can have is refused"),
    855: (400, "a hash that no password can have is refused"),
    904: (406, "Erlang's own format is not spoken"),
    915: (200, "no ETags are sent, so that none can match"),
    922: (201, "a tilde in a key with arguments is nothing special"),
    923: (200, "a tilde in a key with arguments is nothing special"),
}


@pytest.fixture(scope="module")
def answers() -> dict[int, tuple[Probe, Response]]:
    """Of all lines, asked in their order."""
    with start_broker(management=True, config={"management": {"node": NODE}}) as broker:
        api = ApiClient(broker.management_url)
        found = {}
        with prepared(broker.url, api) as had:
            for probe in probes():
                had.before(probe)
                found[probe.number] = (probe, ask(probe, api, had.publisher))
        return found


def _unlisted(answers: dict[int, tuple[Probe, Response]]) -> Iterator[str]:
    for number, (probe, answer) in answers.items():
        found = differences(probe, answer)
        if found and number not in DEVIATIONS:
            yield f"{number} {probe.method} {probe.path} as {probe.user}: {found}"


def test_answers_are_equal_or_listed(answers: dict[int, tuple[Probe, Response]]) -> None:
    """Every line of the log."""
    assert list(_unlisted(answers)) == []
    assert len(answers) == 934


@pytest.mark.parametrize("number", DEVIATIONS)
def test_listed_deviations(number: int, answers: dict[int, tuple[Probe, Response]]) -> None:
    """What is listed differs, and as it is listed; a refusal says why."""
    probe, answer = answers[number]
    assert differences(probe, answer)
    assert answer.status == DEVIATIONS[number][0]
    if answer.status >= 400 and answer.status != 406:
        assert reason_of(answer.body.decode())
