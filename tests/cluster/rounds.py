"""Rounds of failures of three nodes and three members of etcd, under load, by seeds: `make cluster-rounds`.

    python tests/cluster/rounds.py --rounds 20 --seed 1

Each round does one thing to the cluster while messages are published and consumed, and waits until all nodes are in
sync again. At the end no confirmed message may be lost, none that was acknowledged may have come again, and the
journals of all nodes must be equal, octet for octet, up to what is agreed.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cluster_nodes import LOOK_S, LOST, NAMES, ClusterNodes, Publisher, cluster_nodes, drain, until
from wires import Wire

from leveret.journal.copying.octet_reader import position_of
from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import path_of, segments_in

#: Seconds for which a stopped process rests: longer than the lease and the deadline of acknowledgements.
STOPPED_S = 4.0
#: Messages that are confirmed before and after each blow.
CONFIRMS = 40


Blow = Callable[[ClusterNodes, random.Random], None]


@dataclass
class Consumer:
    """Acknowledges what it gets; an acknowledgement is sure when the connection answers after it."""

    nodes: ClusterNodes
    through: tuple[str, ...]
    queue: str = "orders"
    acknowledged: set[int] = field(default_factory=set)
    came_again: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)  # came again without the flag
    seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Consumer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)

    def _run(self) -> None:
        turn = 0
        while not self._is_over.is_set():
            name = self.through[turn % len(self.through)]
            turn += 1
            with suppress(*LOST):
                connection = pika.BlockingConnection(
                    pika.ConnectionParameters("127.0.0.1", self.nodes.ports[name], socket_timeout=5, stack_timeout=20)
                )
                self._consume_on(connection)
                connection.close()
            self._is_over.wait(LOOK_S)

    def _consume_on(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.queue_declare(self.queue, durable=True)
        channel.basic_qos(prefetch_count=20)
        for method, _, body in channel.consume(self.queue, inactivity_timeout=0.5):
            if self._is_over.is_set():
                break
            if method is None:
                continue
            number = int(body)
            if number in self.acknowledged:
                self.came_again.append(number)
            if number in self.seen and not method.redelivered:
                self.doubled.append(number)
            self.seen.add(number)
            channel.basic_ack(method.delivery_tag)
            # Answered behind the acknowledgement; what is durable behind it, too, once this is declared.
            channel.queue_declare(f"mark{number % 7}", durable=True)
            self.acknowledged.add(number)
        channel.cancel()


def kill_leader(nodes: ClusterNodes, chance: random.Random) -> None:
    """kill -9 of the leader."""
    _kill_and_start(nodes, [nodes.leader()])


def kill_follower(nodes: ClusterNodes, chance: random.Random) -> None:
    """kill -9 of a follower."""
    _kill_and_start(nodes, [_follower(nodes, chance)])


def kill_two(nodes: ClusterNodes, chance: random.Random) -> None:
    """kill -9 of two nodes at once."""
    _kill_and_start(nodes, chance.sample(NAMES, 2), waits=False)


def kill_all(nodes: ClusterNodes, chance: random.Random) -> None:
    """kill -9 of all nodes at once, which come back in any order."""
    _kill_and_start(nodes, chance.sample(NAMES, 3), waits=False)


def stop_leader(nodes: ClusterNodes, chance: random.Random) -> None:
    """SIGTERM of the leader."""
    name = nodes.leader()
    assert nodes.stop(name) == 0
    nodes.start(name)


def stop_follower(nodes: ClusterNodes, chance: random.Random) -> None:
    """SIGTERM of a follower."""
    name = _follower(nodes, chance)
    assert nodes.stop(name) == 0
    nodes.start(name)


def pause_leader(nodes: ClusterNodes, chance: random.Random) -> None:
    """SIGSTOP of the leader, and SIGCONT when another leads."""
    name = nodes.leader()
    nodes.signal(name, signal.SIGSTOP)
    nodes.leader(but=name)
    nodes.signal(name, signal.SIGCONT)


def pause_follower(nodes: ClusterNodes, chance: random.Random) -> None:
    """SIGSTOP of a follower, and SIGCONT when it is out of the set."""
    name = _follower(nodes, chance)
    nodes.signal(name, signal.SIGSTOP)
    until(lambda: name not in nodes.in_sync(), f"{name} out of the set")
    nodes.signal(name, signal.SIGCONT)


def kill_member(nodes: ClusterNodes, chance: random.Random) -> None:
    """kill -9 of a member of etcd."""
    member = chance.randrange(nodes.etcd.count)
    nodes.etcd.kill(member)
    threading.Event().wait(chance.random() * 2)
    nodes.etcd.start(member)
    nodes.etcd.await_answer(member)


def pause_etcd(nodes: ClusterNodes, chance: random.Random) -> None:
    """SIGSTOP of all members of etcd for a while: nothing happens but that."""
    for member in range(nodes.etcd.count):
        nodes.etcd.signal(member, signal.SIGSTOP)
    threading.Event().wait(STOPPED_S)
    for member in range(nodes.etcd.count):
        nodes.etcd.signal(member, signal.SIGCONT)
    for member in range(nodes.etcd.count):
        nodes.etcd.await_answer(member)


def _cut(nodes: ClusterNodes, wires: list[Wire], leads: str) -> None:
    """Cut wires until another node leads than `leads`, in at most as long as clients may have to wait."""
    for wire in wires:
        wire.cut()
    try:
        nodes.leader(but=leads)
    finally:
        for wire in wires:
            wire.mend()


def cut_leader_off(nodes: ClusterNodes, chance: random.Random) -> None:
    """The leader alone: neither its followers nor etcd."""
    name = nodes.leader()
    _cut(nodes, nodes.wires(name), name)


def cut_link_of_leader(nodes: ClusterNodes, chance: random.Random) -> None:
    """The leader with etcd, without its followers."""
    name = nodes.leader()
    _cut(nodes, nodes.wires(name, etcd=False), name)


def cut_leader_from_etcd(nodes: ClusterNodes, chance: random.Random) -> None:
    """The leader with its followers, without etcd, for longer than its lease: either goes."""
    wires = nodes.wires(nodes.leader(), link=False)
    for wire in wires:
        wire.cut()
    threading.Event().wait(STOPPED_S)
    for wire in wires:
        wire.mend()


def cut_one_way(nodes: ClusterNodes, chance: random.Random) -> None:
    """What followers send does not reach the leader, or the other way round, for a while."""
    wire = nodes.link_wires[nodes.leader()]
    forth = chance.random() < 0.5
    wire.cut(forth=forth, back=not forth)
    threading.Event().wait(STOPPED_S)
    wire.mend()


BLOWS: tuple[Blow, ...] = (
    kill_leader,
    kill_leader,
    kill_leader,
    kill_follower,
    kill_two,
    kill_all,
    stop_leader,
    stop_leader,
    stop_follower,
    pause_leader,
    pause_leader,
    pause_follower,
    kill_member,
    pause_etcd,
    cut_leader_off,
    cut_leader_off,
    cut_link_of_leader,
    cut_leader_from_etcd,
    cut_one_way,
)


def _follower(nodes: ClusterNodes, chance: random.Random) -> str:
    leader = nodes.leader()
    return chance.choice([name for name in NAMES if name != leader])


def _kill_and_start(nodes: ClusterNodes, names: list[str], *, waits: bool = True) -> None:
    """With `waits`, another node leads before they come back."""
    for name in names:
        nodes.kill(name)
    if waits:
        nodes.leader()
    for name in names:
        nodes.start(name, waits=False)
    for name in names:
        nodes.await_ready(name)


def journals_differ(nodes: ClusterNodes) -> str:
    """Where the journals of two nodes differ below what is agreed; empty: nowhere. All nodes have ended."""
    view = nodes.view()
    ends = [node.end for node in view.nodes] if view is not None else []
    agreed = max(view.agreed.lsn if view is not None and view.agreed is not None else 1, min(ends, default=1))
    paths = {name: str(nodes.data(name)) for name in NAMES}
    places = {}
    for name, path in paths.items():
        places[name] = position_of(path, agreed, REAL)
    first, *others = NAMES
    for name in others:
        common = sorted(set(segments_in(REAL, paths[first])) & set(segments_in(REAL, paths[name])))
        if not common:
            return f"{first} and {name} have no segment in common"
        for base_lsn in common:
            octets = [Path(path_of(paths[one], base_lsn)).read_bytes() for one in (first, name)]
            for number, one in enumerate((first, name)):
                if places[one][0] == base_lsn:
                    octets[number] = octets[number][: places[one][1]]
                elif places[one][0] < base_lsn:
                    octets[number] = b""
            if octets[0] != octets[1]:
                return f"segment {base_lsn} of {first} and {name} differs below {agreed}"
    return ""


def stretches(numbers: set[int]) -> str:
    """Numbers as stretches: 1-3, 7-7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{first}-{last}" for first, last in found[:20])


def run(rounds: int, seed: int, blows: Sequence[Blow]) -> list[str]:
    """Do the rounds. Returns what went wrong."""
    chance = random.Random(seed)
    faults: list[str] = []
    directory = Path(tempfile.mkdtemp(prefix=f"leveret-rounds-{seed}-"))
    with cluster_nodes(directory, members=3, has_wires=True) as nodes:
        nodes.start_all()
        nodes.await_in_sync()
        try:
            with Publisher(nodes, NAMES) as publisher, Consumer(nodes, NAMES[::-1]) as consumer:
                for number in range(rounds):
                    blow = chance.choice(blows)
                    began = time.monotonic()
                    publisher.longest_gap_s = 0.0
                    publisher.await_confirms(CONFIRMS)
                    blow(nodes, chance)
                    publisher.await_confirms(CONFIRMS)
                    nodes.await_in_sync()
                    print(
                        f"seed {seed} round {number + 1}: {blow.__name__}: {time.monotonic() - began:.1f} s, "
                        f"longest without a confirm {publisher.longest_gap_s:.2f} s, "
                        f"{len(publisher.confirmed)} confirmed, {len(consumer.acknowledged)} acknowledged",
                        flush=True,
                    )
            rest = {number for number, _ in drain(nodes, nodes.leader())}
            lost = set(publisher.confirmed) - rest - consumer.seen
            faults += [f"{len(lost)} confirmed messages are lost: {stretches(lost)}"] if lost else []
            again = consumer.came_again + sorted(rest & consumer.acknowledged)
            faults += [f"{len(again)} acknowledged messages came again: {again[:10]}"] if again else []
            if consumer.doubled:
                faults.append(f"{len(consumer.doubled)} came again without the flag: {consumer.doubled[:10]}")
            nodes.await_in_sync()
            for name in NAMES:
                nodes.kill(name)
            differ = journals_differ(nodes)
            faults += [differ] if differ else []
        except AssertionError as error:
            faults.append(str(error))
        if faults:
            print(f"logs and journals: {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory)
    return faults


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="a blow, by its name; repeatable")
    options = parser.parse_args()
    blows = [blow for blow in BLOWS if options.only is None or blow.__name__ in options.only]
    faults = run(options.rounds, options.seed, blows)
    for fault in faults:
        print(f"seed {options.seed}: {fault}", file=sys.stderr)
    print(f"seed {options.seed}: {options.rounds} rounds, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
