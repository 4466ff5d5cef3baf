"""A data directory and the lake that an older release made of it: python make.py DIRECTORY. See README.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[2]) / "tests" / "support"))
from lakes import fill
from recorded_broker import RecordedBroker

directory = Path(sys.argv[1])
broker = RecordedBroker(directory / "data" / "journal")
broker.declare("dead")
broker.queue("work", client=broker.client, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
broker.queue("ring", client=broker.client, x_ring_size=3)
broker.settle()
for number in range(6):
    broker.publish("work", message_id=f"m{number}".encode())
broker.publish("ring", 5)
broker.get("work", 2)
got = broker.session.get(broker.named("work"), no_ack=False)
broker.session.reject(got[0], requeue=False)
broker.settle()
broker.checkpoint()
broker.tick()
fill(directory / "data", directory / "lake", payloads=True)
broker.clock.advance_ns(1_000_000_000)
broker.get("work")
broker.tick()
fill(directory / "data", directory / "lake", payloads=True)
broker.get("work")  # which the lake does not have
broker.close()
