"""Files of definitions with one wrong part each, posted to a RabbitMQ that this starts; some ten minutes.

    python tests/server/definitions_beside_rabbitmq.py

It writes RabbitMQ's answers to the rows of tests/server/test_wrong_definitions.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from api_client import ApiClient
from wrong_definitions import answers

from leveret.interop.tools.brokers import http_broker

RECORD = Path(__file__).with_name("wrong_definitions.json")


def main() -> None:
    with http_broker("rabbitmq") as theirs:
        rows = [
            f"{json.dumps(name)}: {json.dumps([status, reason, changes if status < 300 else {}])}"
            for name, (status, reason, changes) in answers(ApiClient(theirs.url))
        ]
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
