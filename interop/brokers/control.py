"""Commands of `leveret ctl` over an open connection, without starting a process."""

from __future__ import annotations

import json
import time
from typing import Any

import pika

CONTROL = "leveret.control"
REPLY_TO = "amq.rabbitmq.reply-to"
ANSWER_SECONDS_MAX = 30.0
POLL_SECONDS = 0.01


def ask(connection: Any, command: str, **arguments: Any) -> Any:
    """Run a command. Returns the result that `leveret ctl --json` prints. `connection`: a pika.BlockingConnection.

    Raises: RuntimeError: the broker refused the command or did not answer.
    """
    answers: list[bytes] = []
    channel = connection.channel()
    channel.basic_consume(REPLY_TO, lambda _, method, properties, body: answers.append(body), auto_ack=True)
    question = json.dumps({"command": command, "arguments": arguments}).encode()
    channel.basic_publish(CONTROL, "", question, pika.BasicProperties(reply_to=REPLY_TO))
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while not answers:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{command}: no answer")
        connection.process_data_events(POLL_SECONDS)
    channel.close()
    answer = json.loads(answers[0])
    if not answer["ok"]:
        raise RuntimeError(f"{command}: {answer['error']}")
    return answer["result"]
