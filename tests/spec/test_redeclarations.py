"""Queues and exchanges that are declared again with other arguments: code and text of each answer.

redeclarations.json has what RabbitMQ 3.10.8 answers; with LEVERET_SPEC_PEER=rabbitmq RabbitMQ is asked, which proves
the record. `make redeclarations` compares many more with a RabbitMQ.
"""

import json
from pathlib import Path

import redeclarations
from spec_broker import SpecBroker

RECORDED = json.loads(Path(__file__).with_name("redeclarations.json").read_text())


def test_each_answer_is_that_of_rabbitmq(broker: SpecBroker) -> None:
    """Accepted, or refused with the same code and text. Where RabbitMQ fails with 541, the channel is closed."""
    answers = dict(redeclarations.answers(broker.port))
    if broker.is_rabbitmq:
        assert answers == RECORDED
    else:
        assert redeclarations.differing(RECORDED, answers) == {}
