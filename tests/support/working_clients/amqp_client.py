"""A publisher by py-amqp: QUEUE PORT... It prints the number of each message that was confirmed, until it is ended."""

import sys
import threading

import amqp

#: Seconds between two messages and between two tries; for a connection, and for a confirm.
PAUSE_S, PATIENCE_S = 0.02, 20
LOST = (amqp.AMQPError, OSError)


def main(queue: str, *ports: str) -> None:
    """Publish through one node after the other."""
    number = turn = 0
    while True:
        host = f"127.0.0.1:{ports[turn % len(ports)]}"
        turn += 1
        try:
            with amqp.Connection(host, confirm_publish=True, connect_timeout=PATIENCE_S) as connection:
                channel = connection.channel()
                while True:
                    sent, number = number, number + 1
                    message = amqp.Message(str(sent), delivery_mode=2)
                    channel.basic_publish_confirm(message, "", queue, confirm_timeout=PATIENCE_S)
                    print(sent, flush=True)
                    threading.Event().wait(PAUSE_S)
        except LOST:
            threading.Event().wait(PAUSE_S)


main(*sys.argv[1:])
