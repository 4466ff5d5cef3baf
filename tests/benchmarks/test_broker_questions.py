"""The questions of docs/test-brokers-compared.md, asked to Leveret; the programs of the others ask the same ones."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pika
import pytest

from leveret.testing import start_broker

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def questions() -> ModuleType:
    """benchmarks/broker_questions.py."""
    specification = importlib.util.spec_from_file_location("broker_questions", BENCHMARKS / "broker_questions.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def test_leveret_says_yes(questions: ModuleType) -> None:
    """To each question; one that cannot be asked, as its queue is another one, is answered otherwise."""
    with start_broker() as broker:
        assert questions.ask(broker.url) == dict.fromkeys(questions.QUESTIONS, "yes")
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_declare("q", arguments={"x-max-length": 1})
        first = next(iter(questions.QUESTIONS))
        assert questions.ask(broker.url, only=first) == {first: "refused: ChannelClosedByBroker"}


@pytest.mark.parametrize("program", ["ask_kombu.py", "ask_mock_amqplib.js"])
def test_others_are_asked_the_same(questions: ModuleType, program: str) -> None:
    """Each question is in their programs, under its name."""
    text = (BENCHMARKS / "test_broker_programs" / program).read_text()
    assert [name for name in questions.QUESTIONS if f'"{name}": ' not in text] == []
