"""Declarations under the same name, each with each of its table, at a RabbitMQ and a Leveret that this starts.

    python tests/spec/redeclared_beside_rabbitmq.py [--record]

It prints what they answer otherwise; exit code 1: something does. --record writes RabbitMQ's answers to the rows of
tests/spec/test_redeclarations.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import redeclarations
from spec_broker import RABBITMQ_PLUGINS

from leveret.interop.brokers import peers

RECORD = Path(__file__).with_name("redeclarations.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the record of the quick test")
    options = parser.parse_args()
    with peers.rabbitmq(plugins=RABBITMQ_PLUGINS) as peer:
        if options.record:
            rows = [f"{json.dumps(key)}: {json.dumps(said)}" for key, said in redeclarations.answers(peer.port)]
            RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")
            return 0
        theirs = dict(redeclarations.answers(peer.port, is_all=True))
    with peers.leveret() as peer:
        ours = dict(redeclarations.answers(peer.port, is_all=True))
    found = redeclarations.differing(theirs, ours)
    for key, (their, our) in found.items():
        print(f"{key}\n  RabbitMQ: {their}\n  Leveret:  {our}")
    print(f"{len(theirs)} pairs, {len(found)} answered otherwise")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
