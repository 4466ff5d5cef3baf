"""A publisher by pika: QUEUE PORT... It prints the number of each message that was confirmed, until it is ended."""

import sys
import threading

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

#: Seconds between two messages and between two tries; for a connection.
PAUSE_S, PATIENCE_S = 0.02, 20
LOST = (AMQPError, AMQPConnectorException, OSError)


def main(queue: str, *ports: str) -> None:
    """Publish through one node after the other."""
    number = turn = 0
    while True:
        port, patience = int(ports[turn % len(ports)]), {"socket_timeout": PATIENCE_S, "stack_timeout": PATIENCE_S}
        where = pika.ConnectionParameters("127.0.0.1", port, heartbeat=10, **patience)
        turn += 1
        try:
            channel = pika.BlockingConnection(where).channel()
            channel.confirm_delivery()
            while True:
                sent, number = number, number + 1
                channel.basic_publish("", queue, str(sent).encode(), pika.BasicProperties(delivery_mode=2))
                print(sent, flush=True)
                channel.connection.sleep(PAUSE_S)
        except LOST:
            threading.Event().wait(PAUSE_S)


main(*sys.argv[1:])
