"""A publisher by kombu: QUEUE PORT... It prints the number of each message that was confirmed, until it is ended."""

import sys
import threading

import kombu

#: Seconds between two messages; for a connection.
PAUSE_S, PATIENCE_S = 0.02, 20


def main(queue: str, *ports: str) -> None:
    """A message that may not be there is published again by kombu: then it comes twice."""
    urls = ";".join(f"amqp://guest:guest@127.0.0.1:{port}//" for port in ports)
    options = {"confirm_publish": True}
    with kombu.Connection(urls, transport_options=options, connect_timeout=PATIENCE_S) as connection:
        producer = connection.Producer()
        number = 0
        while True:
            producer.publish(
                str(number), routing_key=queue, delivery_mode=2, retry=True, content_type="text/plain",
                retry_policy={"interval_start": PAUSE_S, "interval_step": PAUSE_S, "interval_max": 0.2},
                content_encoding="utf-8", confirm_timeout=PATIENCE_S,
            )  # fmt: skip
            print(number, flush=True)
            number += 1
            threading.Event().wait(PAUSE_S)


main(*sys.argv[1:])
