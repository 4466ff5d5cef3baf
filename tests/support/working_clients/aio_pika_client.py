"""A publisher by aio-pika: QUEUE PORT... It prints the number of each message that was confirmed, until it is ended."""

import asyncio
import sys
import threading

import aio_pika
from aio_pika.exceptions import AMQPError

#: Seconds between two messages and between two tries; for a connection, and for a confirm.
PAUSE_S, PATIENCE_S = 0.02, 20
LOST = (AMQPError, OSError, TimeoutError, RuntimeError)


async def main(queue: str, *ports: str) -> None:
    """Publish through one node after the other."""
    number = turn = 0
    while True:
        url = f"amqp://guest:guest@127.0.0.1:{ports[turn % len(ports)]}/"
        turn += 1
        try:
            async with await aio_pika.connect(url, timeout=PATIENCE_S) as connection:
                channel = await connection.channel(publisher_confirms=True)
                while True:
                    message = aio_pika.Message(str(number).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                    sent, number = number, number + 1
                    await channel.default_exchange.publish(message, queue, timeout=PATIENCE_S)
                    print(sent, flush=True)
                    await asyncio.to_thread(threading.Event().wait, PAUSE_S)
        except LOST:
            await asyncio.to_thread(threading.Event().wait, PAUSE_S)


asyncio.run(main(*sys.argv[1:]))
