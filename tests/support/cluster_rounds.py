"""Rounds of failures of three nodes and three members of etcd, under load, by a seed: for `make cluster-rounds`.

Each round does one thing to the cluster while messages are published, committed and consumed, and waits until messages
are confirmed again, and in every other round until all nodes are in sync. At the end the books of the clients must
agree with the queues (cluster_books.py), the journals of all nodes must be equal, octet for octet, up to what is
agreed, and be sound, and the audit of one must agree with the books.
"""

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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster_books import Books
from cluster_nodes import NAMES, ClusterNodes, cluster_nodes, others, until
from wires import Wire

from leveret.journal.copying.octet_reader import position_of
from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import path_of, segments_in
from leveret.journal.format.errors import NotInJournal
from leveret.journal.recovery.check import verify

#: Messages that are confirmed before and after each blow.
CONFIRMS = 5
#: Keys of [cluster].
DEFAULTS = ""
SHORT = (
    'lease = "2s"\nsuspend-after = "700ms"\nack-deadline = "700ms"\njoin-patience = "500ms"\n'
    'resign-after = "700ms"\nbeacon = "150ms"'
)

Blow = Callable[[ClusterNodes, random.Random], None]


@dataclass(frozen=True)
class Pace:
    """Timers of the nodes, and for how long what is stopped rests: longer than the deadline of acknowledgements."""

    keys: str
    rest_s: float


PACES = {"short": Pace(SHORT, 1.5), "defaults": Pace(DEFAULTS, 4.0)}


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
    _rest(nodes, chance.random())
    nodes.etcd.start(member)
    nodes.etcd.await_answer(member)


def kill_two_members(nodes: ClusterNodes, chance: random.Random) -> None:
    """kill -9 of two members of etcd: until they are back, etcd answers nothing."""
    members = chance.sample(range(nodes.etcd.count), 2)
    for member in members:
        nodes.etcd.kill(member)
    _rest(nodes, chance.random())
    for member in members:
        nodes.etcd.start(member)
    for member in members:
        nodes.etcd.await_answer(member)


def kill_leader_and_member(nodes: ClusterNodes, chance: random.Random) -> None:
    """kill -9 of the leader and of a member of etcd at once: often the one that its followers are connected to."""
    member = chance.randrange(nodes.etcd.count)
    nodes.etcd.kill(member)
    _kill_and_start(nodes, [nodes.leader()])
    nodes.etcd.start(member)
    nodes.etcd.await_answer(member)


def pause_member(nodes: ClusterNodes, chance: random.Random) -> None:
    """SIGSTOP of a member of etcd for a while."""
    member = chance.randrange(nodes.etcd.count)
    nodes.etcd.signal(member, signal.SIGSTOP)
    _rest(nodes)
    nodes.etcd.signal(member, signal.SIGCONT)
    nodes.etcd.await_answer(member)


def pause_etcd(nodes: ClusterNodes, chance: random.Random) -> None:
    """SIGSTOP of all members of etcd for a while."""
    _pause_etcd(nodes, nodes.rest_s)


def _pause_etcd(nodes: ClusterNodes, seconds: float) -> None:
    for member in range(nodes.etcd.count):
        nodes.etcd.signal(member, signal.SIGSTOP)
    threading.Event().wait(seconds)
    for member in range(nodes.etcd.count):
        nodes.etcd.signal(member, signal.SIGCONT)
    for member in range(nodes.etcd.count):
        nodes.etcd.await_answer(member)


def pause_etcd_for_a_minute(nodes: ClusterNodes, chance: random.Random) -> None:
    """CL08, by its name alone (`--only`): the longest time without a confirm must be that of any other minute."""
    _pause_etcd(nodes, 60)


def blink(nodes: ClusterNodes, chance: random.Random) -> None:
    """SIGSTOP of all three nodes in turn, each for less than anything lasts, and for more than a beacon."""
    for name in chance.sample(NAMES, 3):
        nodes.signal(name, signal.SIGSTOP)
        threading.Event().wait(chance.random() * 0.6)
        nodes.signal(name, signal.SIGCONT)


def _rest(nodes: ClusterNodes, part: float = 1.0) -> None:
    threading.Event().wait(nodes.rest_s * part)


def _cut(nodes: ClusterNodes, wires: list[Wire], leads: str) -> None:
    """Cut wires until another node leads than `leads`."""
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
    """The leader with its followers, without etcd, for longer than its lease: whether it leads on is left open."""
    wires = nodes.wires(nodes.leader(), link=False)
    for wire in wires:
        wire.cut()
    _rest(nodes, 2)
    for wire in wires:
        wire.mend()


def cut_follower_off(nodes: ClusterNodes, chance: random.Random) -> None:
    """One follower from the leader, and perhaps from etcd and the other one, too."""
    leader, name = nodes.leader(), _follower(nodes, chance)
    nodes.link_wires[leader].cut(whose=name)
    alone = chance.random() < 0.5
    for wire in nodes.wires(name) if alone else []:
        wire.cut()
    _rest(nodes)
    for wire in [nodes.link_wires[leader], *nodes.wires(name)]:
        wire.mend()


def cut_followers_apart(nodes: ClusterNodes, chance: random.Random) -> None:
    """The followers without each other; then the leader is killed: two that cannot reach each other are left."""
    leader = nodes.leader()
    followers = others(leader)
    for name, other in zip(followers, reversed(followers)):
        nodes.link_wires[name].cut(whose=other)
    nodes.kill(leader)
    _rest(nodes, chance.random())
    nodes.start(leader)
    _rest(nodes, chance.random())
    for name in followers:
        nodes.link_wires[name].mend()


def cut_one_way(nodes: ClusterNodes, chance: random.Random) -> None:
    """What followers send does not reach the leader, or the other way round, for a while; of one follower, or all."""
    leader, name = nodes.leader(), _follower(nodes, chance)
    forth = chance.random() < 0.5
    nodes.link_wires[leader].cut(forth=forth, back=not forth, whose=chance.choice((None, name)))
    _rest(nodes, 2)
    nodes.link_wires[leader].mend()


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
    kill_two_members,
    kill_leader_and_member,
    pause_member,
    pause_etcd,
    blink,
    cut_leader_off,
    cut_leader_off,
    cut_link_of_leader,
    cut_leader_from_etcd,
    cut_follower_off,
    cut_followers_apart,
    cut_one_way,
)

#: Those that are done only by their names.
EXTRA: tuple[Blow, ...] = (pause_etcd_for_a_minute,)


def _follower(nodes: ClusterNodes, chance: random.Random) -> str:
    return chance.choice(others(nodes.leader()))


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


def push_end(nodes: ClusterNodes) -> None:
    """Write some more records, so that later blocks say of those that count that all nodes have them."""
    with nodes.channel(nodes.leader()) as channel:
        for number in range(5):
            channel.queue_declare(f"end{number}", durable=True)


def journals_differ(nodes: ClusterNodes) -> str:
    """Where the journals of two nodes differ below what is agreed; empty: nowhere. All nodes have ended."""
    view = nodes.view()
    assert view is not None
    agreed, ends = view.agreed.lsn if view.agreed is not None else 1, [node.end for node in view.nodes]
    paths = {name: str(nodes.data(name)) for name in NAMES}
    for path in paths.values():
        position_of(path, agreed, REAL)  # it is the end of a block in all journals
    places = {}
    lsn = max(agreed, min(ends, default=1))
    while not places:
        # A node registers its end every 10 s: it may be that of a block that it cut later, and within one of now.
        try:
            places = {name: position_of(path, lsn, REAL) for name, path in paths.items()}
        except NotInJournal as error:
            if "within the block" not in str(error) or lsn <= agreed:
                return f"{lsn}, {agreed} was agreed: {error}"
            lsn -= 1
    agreed = lsn
    first, *rest = NAMES
    for name in rest:
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


def audit_differs(nodes: ClusterNodes, name: str, books: Books) -> list[str]:
    """Where `leveret pipeline audit` of a node's journal and the clients' books differ. All nodes have ended."""
    source = ["--journal", str(nodes.data(name)), "--lake", str(nodes.directory / f"audit-{name}")]
    faults: list[str] = []
    for queue, (least, most) in books.counts().items():
        command = [sys.executable, "-m", "leveret", "pipeline", "audit", *source, "--queue", queue, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        source = source[-2:]  # the lake has the journal now
        if done.returncode:
            faults.append(f"the audit of {name}: {queue}: exit code {done.returncode}: {done.stdout}{done.stderr}")
            continue
        fates = json.loads(done.stdout)["fates"]
        ends = {"open"} if queue == "stream" else {"acked"}
        if set(fates) - ends or not least <= sum(fates.values()) <= most:
            faults.append(f"the audit of {name}: {queue}: {fates}, the books have {least} to {most} {ends}")
    return faults


def unsound(nodes: ClusterNodes, name: str) -> list[str]:
    """What is wrong with a node's journal, but a torn tail."""
    return [f"the journal of {name}: {fault}" for fault in verify(str(nodes.data(name))).faults]


def run(
    rounds: int,
    seed: int,
    choose: Callable[[random.Random], Blow],
    pace: str = "short",
    *,
    is_quiet: bool = False,
    is_kept: bool = False,
    is_audited: bool = True,
) -> list[str]:
    """Do the rounds. Returns what went wrong. `is_kept`: logs and journals are."""
    chance = random.Random(seed)
    faults: list[str] = []
    directory = Path(tempfile.mkdtemp(prefix=f"leveret-rounds-{seed}-"))
    began, longest_s = time.monotonic(), 0.0
    done: Counter[str] = Counter()
    with cluster_nodes(directory, members=3, keys=PACES[pace].keys, has_wires=True) as nodes:
        nodes.rest_s = PACES[pace].rest_s
        nodes.start_all()
        nodes.await_in_sync()
        try:
            with Books(nodes) as books:
                publishing = books.publishing
                for number in range(rounds):
                    blow = choose(chance)
                    round_began = time.monotonic()
                    publishing.longest_gap_s = 0.0
                    publishing.await_confirms(CONFIRMS)
                    blow(nodes, chance)
                    publishing.await_confirms(CONFIRMS)
                    if chance.random() < 0.5 or number == rounds - 1:
                        nodes.await_in_sync()
                    done[blow.__name__] += 1
                    longest_s = max(longest_s, publishing.longest_gap_s)
                    if not is_quiet:
                        print(
                            f"seed {seed} round {number + 1}: {blow.__name__}: {time.monotonic() - round_began:.1f} s, "
                            f"longest without a confirm {publishing.longest_gap_s:.2f} s, {books.summary()}",
                            flush=True,
                        )
                books.close()
            nodes.await_in_sync()
            push_end(nodes)
            for name in NAMES:
                nodes.kill(name)
            faults += books.faults
            differ = journals_differ(nodes)
            faults += [differ] if differ else []
            for name in NAMES:
                faults += unsound(nodes, name)
            if is_audited:
                faults += audit_differs(nodes, chance.choice(NAMES), books)
        except Exception as error:
            faults.append("".join(traceback.format_exception(error)))
    blown = ", ".join(f"{name} {count}" for name, count in sorted(done.items()))
    print(
        f"seed {seed} ({pace}): {done.total()} rounds in {time.monotonic() - began:.0f} s, longest without a confirm "
        f"{longest_s:.1f} s, {books.summary()}, {len(faults)} faults; {blown}",
        flush=True,
    )
    for fault in faults:
        print(f"seed {seed}: {fault}", flush=True)
    if faults or is_kept:
        print(f"seed {seed}: logs and journals: {directory}", flush=True)
    else:
        shutil.rmtree(directory)
    return faults
