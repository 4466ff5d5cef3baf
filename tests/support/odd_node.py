"""`leveret serve` of another release, or with another wall clock: LEVEL AHEAD_S PYTHON -m leveret serve ..."""

import sys
import time
from dataclasses import replace


def main() -> int:
    """Returns the exit code."""
    level, ahead_ns = int(sys.argv[1]), int(float(sys.argv[2]) * 1e9)
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + ahead_ns / 1e9
    time.time_ns = lambda: now_ns() + ahead_ns

    from leveret.__main__ import main as leveret
    from leveret.serving import served_node

    options_of = served_node.node_options
    served_node.node_options = lambda *arguments: replace(options_of(*arguments), level=level)
    return leveret(sys.argv[sys.argv.index("leveret") + 1 :])


if __name__ == "__main__":
    sys.exit(main())
