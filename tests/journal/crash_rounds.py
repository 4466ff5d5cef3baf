"""kill -9 at any moment under load, thousands of times: is every confirmed message there once, and nothing acked back?

    python tests/journal/crash_rounds.py [--rounds 2000 | --seconds 60] [--seed N] [--lanes 2] [--leased]

Each round starts a broker on the same directory, looks at all that is there, loads it, and kills it: at some moment,
soon after the journal began or dropped a segment, in an orderly end, or while it starts. What the client may know is
modelled in `crash/truth.py`; `crash/world.py` has the kinds of queues, `crash/line.py` and `crash/declares.py` have the
load. Lanes are processes with a broker each. Of two lanes one has memory for next to nothing, so that its queues are
deep; what else the brokers are configured with comes of the seed. SIGTERM lets each lane finish its round. Exit status
1 with the seed, the round and the directory when a rule is broken. docs/testing.md, "Killed brokers", says more.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from crash.broker import Setup
from crash.lane import Lane

MEMORIES = ("64KiB", "256MiB")
SEGMENT_SIZES = ("64KiB", "256KiB")
FSYNCS = ("commit", "commit", "interval", "never")
SCOPES = ("durable", "durable", "all")
#: What each queue may have in memory.
CAPS = (
    "",
    'max-size-bytes = "20KiB"',
    'memory-limit = "20KiB"\nproducer-flow-control = false',
)
#: How often a lane tells how far it is.
TOLD_EACH = 100


def run_lane(options: argparse.Namespace) -> int:
    """Rounds until the count or the time is up; figures as JSON on standard output."""
    chance = random.Random(options.seed * 1000 + options.lane)
    directory = tempfile.mkdtemp(prefix="leveret-crash-", dir=options.directory)
    fsync = options.fsync or chance.choice(FSYNCS)
    memory, segment_size = MEMORIES[(options.lane + options.seed) % 2], chance.choice(SEGMENT_SIZES)
    setup = Setup(directory, fsync, memory, segment_size, chance.choice(SCOPES), caps=chance.choice(CAPS))
    lane = Lane(setup, chance, is_leased=options.leased)
    end = time.monotonic() + options.seconds
    done, is_asked_to_stop = 0, threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_asked_to_stop.set())
    try:
        while done < options.rounds and time.monotonic() < end and not is_asked_to_stop.is_set():
            lane.round()
            done += 1
            if not done % TOLD_EACH:
                print(f"lane {options.lane}: {done} rounds", file=sys.stderr, flush=True)
    except BaseException as error:
        print(f"FAILED in round {done} of lane {options.lane}, seed {options.seed}, {setup}: {error}", file=sys.stderr)
        if not isinstance(error, KeyboardInterrupt):
            traceback.print_exc()
        return 1
    finally:
        lane.figures["rounds"] = done
        lane.figures["messages published"] = lane.world.next_number - 1
        print(json.dumps(lane.figures), flush=True)
    shutil.rmtree(directory)
    return 0


def main() -> int:
    """Several lanes at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000, help="of all lanes together")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--lane", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--leased", action="store_true", help="short rounds with nothing but leased queues")
    parser.add_argument("--fsync", choices=("commit", "interval", "never"), help="default: by the seed")
    parser.add_argument("--directory", help="where journals are kept (and stay, when a rule was broken)")
    options = parser.parse_args()
    if options.lane is not None:
        return run_lane(options)
    print(f"seed {options.seed}", flush=True)
    command = [sys.executable, __file__, "--seconds", str(options.seconds), "--seed", str(options.seed)]
    command += ["--fsync", options.fsync] if options.fsync else []
    command += ["--leased"] if options.leased else []
    command += ["--directory", options.directory] if options.directory else []
    lanes: list[subprocess.Popen[str]] = []
    for lane in range(options.lanes):
        rounds = len(range(lane, options.rounds, options.lanes))
        lanes.append(
            subprocess.Popen(
                [*command, "--lane", str(lane), "--rounds", str(rounds)], stdout=subprocess.PIPE, text=True
            )
        )
    figures: Counter[str] = Counter()
    signal.signal(signal.SIGTERM, lambda *_: [lane.send_signal(signal.SIGTERM) for lane in lanes])
    for process in lanes:
        text, _ = process.communicate()
        figures.update(json.loads(text or "{}"))
    print(", ".join(f"{figures[name]:,} {name}" for name in sorted(figures)), f"(seed {options.seed})")
    if any(process.returncode for process in lanes):
        return 1
    print("nothing confirmed was lost, nothing was there twice, nothing acknowledged came back")
    return 0


if __name__ == "__main__":
    sys.exit(main())
