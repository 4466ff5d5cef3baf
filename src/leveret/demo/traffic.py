"""The programs of the demo. Each has one connection, whose name tells its job."""

from collections.abc import Awaitable, Callable
from itertools import count

import trio

from .client import Client, ClosedByBroker, Delivery, connected

Program = Callable[[Client], Awaitable[None]]

#: Seconds until a program connects again.
RECONNECT_S = 2


async def feed_quotes(client: Client) -> None:
    """Fifty quotes a second into a ring that keeps the newest hundred."""
    await client.declare("quotes.last")
    for number in count():
        await client.publish("quotes.last", f'{{"share": "HARE", "price": {100 + number % 17}}}')
        await trio.sleep(0.02)


def reader(queue: str, tag: str, *, prefetch: int, pause_s: float, declares: bool = True) -> Program:
    """A program that reads a queue, and pauses before it acknowledges a message.

    declares: the queue. False: the configuration of the demo has it, with another type.
    """

    async def read(client: Client) -> None:
        if declares:
            await client.declare(queue)
        await client.consume(queue, tag, prefetch=prefetch)
        async for delivery in client.deliveries:
            await trio.sleep(pause_s)
            await client.ack(delivery)

    return read


async def order_mails(client: Client) -> None:
    """Five mails a second; each third has an address that does not exist."""
    await client.declare("jobs.mail")
    for number in count():
        to = "nobody@invalid" if number % 3 == 0 else f"customer{number}@example.com"
        await client.publish("jobs.mail", f'{{"to": "{to}"}}', message_id=f"mail-{number}")
        await trio.sleep(0.2)


async def send_mails(client: Client) -> None:
    """Requeue mails that cannot be sent. The broker delays them and counts the attempts."""
    await client.declare("jobs.mail")
    await client.consume("jobs.mail", "smtp", prefetch=10)
    async for delivery in client.deliveries:
        await (client.nack if b"@invalid" in delivery.body else client.ack)(delivery)


async def scan_parcels(client: Client) -> None:
    """A parcel each 300 ms."""
    for number in count():
        await client.publish("parcels", f'{{"parcel": {number}}}', message_id=f"parcel-{number}")
        await trio.sleep(0.3)


async def carry_parcels_slowly(client: Client) -> None:
    """A slow robot: it takes 7 s for three parcels, but leases end after 5 s, and the other robot gets the parcels."""

    async def carry(delivery: Delivery) -> None:
        await trio.sleep(7)
        await client.ack(delivery)

    await client.consume("parcels", "robot-2", prefetch=3)
    async with trio.open_nursery() as nursery:
        async for delivery in client.deliveries:
            nursery.start_soon(carry, delivery)


async def import_orders(client: Client) -> None:
    """Publish up to 200 orders a second, until the broker blocks the publisher."""
    await client.declare("orders")
    for number in count():
        await client.publish("orders", f'{{"order": {number}, "text": "{"x" * 200}"}}')
        if number % 10 == 0:
            await trio.sleep(0.05)


async def measure(client: Client) -> None:
    """Publish a thousand readings each ten seconds; they expire because nobody reads them."""
    await client.declare("readings")
    while True:
        for number in range(1000):
            await client.publish("readings", f'{{"sensor": {number % 40}, "celsius": {number % 30}}}')
        await trio.sleep(10)


#: Name of the connection -> its program.
PROGRAMS: dict[str, Program] = {
    "quote feed": feed_quotes,
    "quote wall": reader("quotes.last", "wall", prefetch=5, pause_s=0.2),
    "web shop": order_mails,
    "mail sender": send_mails,
    "parcel scanner": scan_parcels,
    "robot 1": reader("parcels", "robot-1", prefetch=3, pause_s=0.2, declares=False),
    "robot 2 (too slow)": carry_parcels_slowly,
    "order import": import_orders,
    "order book": reader("orders", "book", prefetch=10, pause_s=0.05),
    "weather station": measure,
}


async def run_programs(host: str, port: int) -> None:
    """Run all programs until cancelled. Raises: an exception group of OSError, when the broker has ended."""
    async with trio.open_nursery() as nursery:
        for name, program in PROGRAMS.items():
            nursery.start_soon(_run, host, port, name, program)


async def _run(host: str, port: int, name: str, program: Program) -> None:
    """Run a program, and connect again after an operator has closed its connection from the console."""
    while True:
        try:
            async with connected(host, port, name) as client:
                await program(client)
        except* ClosedByBroker:
            pass
        await trio.sleep(RECONNECT_S)
