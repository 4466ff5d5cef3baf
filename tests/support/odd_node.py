"""`leveret serve` of another release, or with another wall clock: LEVEL AHEAD PYTHON -m leveret serve ...

AHEAD: seconds, or a file with them, which may change while the node runs.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path


def main() -> int:
    """Returns the exit code."""
    level, ahead = int(sys.argv[1]), sys.argv[2]
    now, now_ns = time.time, time.time_ns

    def ahead_s() -> float:
        return float(Path(ahead).read_text() if ahead.startswith("/") else ahead)

    time.time = lambda: now() + ahead_s()
    time.time_ns = lambda: now_ns() + int(ahead_s() * 1e9)

    from leveret.__main__ import main as leveret
    from leveret.serving import served_node

    options_of = served_node.node_options
    served_node.node_options = lambda *arguments: replace(options_of(*arguments), level=level)
    return leveret(sys.argv[sys.argv.index("leveret") + 1 :])


if __name__ == "__main__":
    sys.exit(main())
