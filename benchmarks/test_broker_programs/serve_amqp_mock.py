"""amqp-mock until it is killed; prints its port and how long its start took, as JSON."""

import asyncio
import json
import socket
import time
from importlib.metadata import version

from amqp_mock import create_amqp_mock


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def main():
    from amqp_mock import AmqpServer, HttpServer, Storage

    port, http = free_port(), free_port()
    storage = Storage()
    since = time.perf_counter()
    servers = HttpServer(storage, "127.0.0.1", http), AmqpServer(storage, "127.0.0.1", port)
    async with create_amqp_mock(*servers):
        ready = time.perf_counter() - since
        print(json.dumps({"port": port, "ready": ready, "version": version("amqp-mock")}), flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
