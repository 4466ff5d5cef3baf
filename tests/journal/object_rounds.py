"""Objects of every kind made, changed and unmade; checkpoints at every distance from a segment's head; then the end.

    python tests/journal/object_rounds.py [--rounds 2000] [--seed N]

A round is a broker on simulated files, some tens of turns, and a kill or a power cut: at any operation of the files, or
when everything was safe. The next round starts on what is left; a few rounds on, a new journal begins. What a restart
brings back must be what there was behind one of the turns, the last one that was safe or a later one; so nothing that
was deleted comes back, and nothing that was answered is lost. The journal's own names are looked at as well: each is of
one thing that is there, and none is of a thing that is gone. About 50 rounds a second.

Exit status 1 with the seed and the round when a rule is broken: `--seed` says that round's, `--rounds` how many.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from simulated_files import SimulatedFiles

from leveret.engine import (
    Broker,
    Envelope,
    Grant,
    ManualClock,
    Permissions,
    Session,
    TopicPermission,
    User,
    VirtualHostLimits,
)
from leveret.engine.errors import EngineError
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field
from leveret.engine.users.passwords import PasswordHash
from leveret.journal import Journal, JournalOptions
from leveret.journal.format.record import (
    CONNECTION,
    CONSUMER,
    EXCHANGE,
    OBJECT_NAMES,
    OPERATOR_POLICY,
    PARAMETER,
    POLICY,
    QUEUE,
    USER,
    VHOST,
)
from leveret.journal.recording.access_records import parameter_names
from leveret.journal.recording.checkpoint import checkpoint
from leveret.journal.recording.full_recorder import FullRecorder
from leveret.journal.recording.message_index import message_index
from leveret.journal.recording.object_recorder import is_declared
from leveret.journal.recording.recorder import Recorder
from leveret.journal.recording.restore import restore
from leveret.journal.recovery.check import verify
from leveret.settings import make_policy

PATH, ID = "data", b"0123456789abcdef"
ME = User("me", is_configured=True)
SEGMENT_SIZES = (600, 2000, 8000, 100_000)
#: Rounds on one journal.
ROUNDS_EACH = 40
VHOSTS = ("/", "/", "v", "w")
NAMES = ("n0", "n1", "n2")
KEYS = ("a", "b.c")
KINDS = ("fanout", "direct", "topic", "headers")
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"x-queue-type": Field("S", b"quorum")},
    {"x-queue-type": Field("S", b"stream"), "x-max-length-bytes": Field("l", 400)},
    {"x-max-priority": Field("l", 3)},
    {"x-max-length": Field("l", 3)},
)
State = dict[tuple[object, ...], object]


class Broken(Exception):
    """A rule was broken; says which."""


class Struck(BaseException):
    """The process is gone, in the middle of something."""


class World:
    """A journal, and the brokers that live on it one after the other. `seed`: of the first of its rounds."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.figures: Counter[str] = Counter()
        self.files = SimulatedFiles()
        self.options = JournalOptions(
            segment_size=chance.choice(SEGMENT_SIZES), preallocate_size=0, scope=chance.choice(("durable", "all"))
        )
        self._number = 0
        self._behind: list[tuple[int, State]] = []  # LSN behind a turn, what there was then
        self._expected = [facts(Broker(ManualClock()))]
        users = [self._add_user, self._delete_user, self._grant, self._grant_topic, self._configure_user]
        policies = [self._set_policy, self._clear_policy, self._set_parameter, self._clear_parameter]
        vhosts = [self._add_vhost, self._delete_vhost, self._limit_vhost]
        exchanges = [self._declare_exchange, self._delete_exchange, self._bind, self._unbind]
        queues = [self._declare_queue, self._delete_queue, self._bind]
        messages = [self._publish, self._publish, self._publish, self._get]
        # Each world is busy with one thing, and with few names: what comes under an old name is what is hard.
        kinds = (users, policies, vhosts, exchanges, queues)
        busy = chance.choice((*kinds, [*exchanges, self._declare_queue, *messages]))
        self._actions: list[Callable[[], object]] = [
            *chain(*kinds, messages),
            self._purge,
            *busy * chance.choice((1, 10, 30)),
        ]
        self._turns = chance.choice((4, 10, 40))
        self._names = NAMES[: chance.randrange(1, len(NAMES) + 1)]
        self._checkpoints = chance.choice((0.1, 0.3, 0.6))

    # -- a life -------------------------------------------------------------------------------------------------------

    def round(self) -> None:
        """Start, look, work, die. Raises: Broken."""
        chance = self.chance
        while chance.random() < 0.2 and self._ends_in_start():
            self.figures["ends in a start"] += 1
        self._open()
        self._look()
        self._behind = [(self.journal.next_lsn, facts(self.broker))]
        if chance.random() < 0.7:
            self._strike_after(chance.randrange(1, 60))
        try:
            self._work(chance.randrange(1, self._turns))
            self.figures["ends when all is safe"] += 1
        except Struck:
            self.figures["ends in the middle"] += 1
        safe = self.journal.committed_lsn
        first = max((at for at, (lsn, _) in enumerate(self._behind) if lsn <= safe), default=0)
        self._expected = [state for _, state in self._behind[first:]]
        self.journal.contents.close()
        self._end()

    def _ends_in_start(self) -> bool:
        """Whether it does; else it has started, and ends."""
        self._strike_after(self.chance.randrange(1, 30))
        try:
            self._open()
            self._make_safe()
            has_ended = False
        except Struck:
            has_ended = True
        self._end()
        return has_ended

    def _open(self) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        self.journal = Journal.open(PATH, self.clock, self.options, files=self.files, threaded=False, new_id=ID)
        recorder = FullRecorder if self.options.scope == "all" else Recorder
        self.recorder = recorder(self.broker, self.journal, counts_max=-1)
        restore(self.broker, self.journal, self.recorder)
        self.broker.connections.replace_user(ME)
        self._sessions: dict[str, Session] = {}

    def _look(self) -> None:
        found = facts(self.broker)
        if found not in self._expected:
            differences = [difference(found, one) for one in self._expected]
            raise Broken(f"a restart found what never was: {min(differences, key=len)}")
        check_names(self.broker, self.journal)

    def _end(self) -> None:
        self.files.fault = lambda operation, path: None
        if self.chance.random() < 0.5:
            self.files = self.files.crash()
        else:
            self.files = self.files.power_cut(self.chance)
            self.figures["power cuts"] += 1

    def _strike_after(self, operations: int) -> None:
        """Reading apart."""
        left = operations

        def fault(operation: str, path: str) -> None:
            nonlocal left
            left -= operation != "read"
            if left < 0:
                raise Struck

        self.files.fault = fault

    def _work(self, turns: int) -> None:
        chance = self.chance
        under_way: Iterator[None] | None = None
        for _ in range(turns):
            if under_way is None and chance.random() < self._checkpoints:
                self._end_turn()
                under_way = checkpoint(self.broker, self.journal, self.recorder)
                self.figures["checkpoints"] += 1
            if under_way is not None and chance.random() < 0.7:
                if next(under_way, self) is self:
                    under_way = None
                self.journal.commit()
                if under_way is None and chance.random() < 0.7:
                    self._make_safe()
                    self._reclaim()
                continue
            try:
                chance.choice(self._actions)()
            except EngineError:
                self.figures["refused"] += 1
            self._end_turn()
            if chance.random() < 0.3:
                self._make_safe()
        self._make_safe()
        check_names(self.broker, self.journal)

    def _end_turn(self) -> None:
        self.journal.commit()
        self._behind.append((self.journal.next_lsn, facts(self.broker)))
        while self.broker.end_turn():
            self.journal.commit()
        self.journal.commit()
        self._behind.append((self.journal.next_lsn, facts(self.broker)))
        self.figures["turns"] += 1

    def _make_safe(self) -> None:
        self._end_turn()
        self.journal.wait(self.journal.next_lsn)

    def _reclaim(self) -> None:
        self.figures["segments reclaimed"] += len(self.journal.old_segments.reclaim())
        base_lsn = self.journal.usage.worth_emptying()
        if base_lsn is not None and self.chance.random() < 0.5:
            self.figures["segments emptied"] += 1
            queues_of = message_index(self.broker, self.recorder.objects)
            for _ in self.journal.old_segments.move_forward(base_lsn, queues_of, self.recorder.messages.contents.move):
                self.journal.commit()
            self._make_safe()

    # -- what operators do --------------------------------------------------------------------------------------------

    def _new_number(self) -> int:
        self._number += 1
        return self._number

    def _user(self) -> User:
        known = [user for user in self.broker.users if not user.is_configured]
        return self.chance.choice(known) if known else User("n0", permissions=MappingProxyType({}))

    def _add_user(self) -> None:
        chance = self.chance
        tags = tuple(chance.sample(("administrator", "monitoring"), chance.randrange(3)))
        password = PasswordHash(self._new_number().to_bytes(36, "big"))
        granted = chance.choice((None, MappingProxyType({})))
        limit = chance.choice((None, self._new_number()))
        self.broker.connections.replace_user(User(chance.choice(self._names), password, tags, False, granted, limit))

    def _change(self, user: User, vhost: str, grant: Grant | None) -> None:
        permissions = {name: one for name, one in (user.permissions or {}).items() if name != vhost}
        if grant is not None:
            permissions[vhost] = Permissions(grant, user=user.name, vhost=vhost)
        changed = User(
            user.name, user.password, user.tags, user.loopback_only, MappingProxyType(permissions), user.max_connections
        )
        self.broker.connections.replace_user(changed)

    def _grant(self) -> None:
        vhost = self.chance.choice(list(self.broker.virtual_hosts))
        grant = None if self.chance.random() < 0.4 else Grant(f"c{self._new_number()}", "", ".*")
        self._change(self._user(), vhost, grant)

    def _grant_topic(self) -> None:
        vhost = self.chance.choice(list(self.broker.virtual_hosts))
        topics = {"amq.topic": TopicPermission(f"w{self._new_number()}", "r")} if self.chance.random() < 0.6 else {}
        self._change(self._user(), vhost, Grant(topics=MappingProxyType(topics)))

    def _delete_user(self) -> None:
        self.broker.connections.delete_user(self._user().name)

    def _configure_user(self) -> None:
        """A configuration that is read anew names the user: it is kept there, not here."""
        self.broker.connections.replace_user(User(self._user().name, is_configured=True))

    def _set_policy(self) -> None:
        chance = self.chance
        policy = make_policy(
            chance.choice(self._names),
            chance.choice(list(self.broker.virtual_hosts)),
            "^n",
            {"max-length": 1000 + self._new_number()},
            apply_to="queues",
            priority=chance.randrange(3),
            is_operator=chance.random() < 0.5,
        )
        self.broker.reloading.replace_policies(self.broker.context.policies.with_these([policy]))

    def _clear_policy(self) -> None:
        policies = list(self.broker.context.policies)
        if policies:
            gone = self.chance.choice(policies).identity
            self.broker.reloading.replace_policies(self.broker.context.policies.without([gone]))

    def _set_parameter(self) -> None:
        vhost = self.chance.choice(["", *self.broker.virtual_hosts])
        identity = (vhost, self.chance.choice(("", "c")), self.chance.choice(self._names))
        self.broker.parameters.set(identity, self.chance.choice((None, self._new_number(), ["\ud800", {"a": 1.5}])))

    def _clear_parameter(self) -> None:
        known = list(self.broker.parameters)
        if known:
            self.broker.parameters.remove(self.chance.choice(known)[0])

    def _add_vhost(self) -> None:
        self.broker.virtual_hosts.create(self.chance.choice(VHOSTS))

    def _limit_vhost(self) -> None:
        vhost = self.chance.choice(list(self.broker.virtual_hosts.values()))
        self.broker.virtual_hosts.limit(vhost, VirtualHostLimits(None, self.chance.choice((None, 100, 200))))

    def _delete_vhost(self) -> None:
        name = self.chance.choice(VHOSTS)
        if name != "/":
            self.broker.virtual_hosts.delete(name)

    # -- what clients do ----------------------------------------------------------------------------------------------

    def _session(self) -> Session:
        name = self.chance.choice(list(self.broker.virtual_hosts))
        session = self._sessions.get(name)
        if session is None or session.client.vhost is not self.broker.virtual_hosts[name]:
            client = self.broker.connections.open(name, ME, name=f"c{self._new_number()}", flush=lambda: None)
            client.flush = lambda: (client.take_outbox(), client.drained())  # type: ignore[func-returns-value]
            session = self._sessions[name] = client.open_session()
        return session

    def _declare_exchange(self) -> None:
        chance, vhost = self.chance, self._session().client.vhost
        vhost.exchanges.declare(
            chance.choice(self._names),
            chance.choice(KINDS),
            durable=chance.random() < 0.7,
            auto_delete=chance.random() < 0.2,
            internal=chance.random() < 0.2,
        )

    def _delete_exchange(self) -> None:
        self._session().client.vhost.exchanges.delete(self.chance.choice(self._names))

    def _declare_queue(self) -> None:
        chance, client = self.chance, self._session().client
        is_exclusive = chance.random() < 0.15
        arguments = {} if is_exclusive else chance.choice(ARGUMENTS)
        durable = chance.random() < 0.75 or "x-queue-type" in arguments
        client.vhost.queues.declare(
            chance.choice(self._names),
            client=client,
            durable=durable,
            exclusive=is_exclusive,
            arguments=dict(arguments),
        )

    def _delete_queue(self) -> None:
        client = self._session().client
        client.vhost.queues.delete(self.chance.choice(self._names), client)

    def _bind(self) -> None:
        chance, vhost = self.chance, self._session().client.vhost
        there = [name for name in self._names if name in vhost.exchanges]
        source, key = chance.choice((*there * 3, "amq.direct", "amq.topic")), chance.choice(KEYS)
        if chance.random() < 0.75 and vhost.queues:
            vhost.bindings.add("queue", chance.choice(list(vhost.queues)), source, key, {})
        else:
            vhost.bindings.add("exchange", chance.choice((*there, "amq.fanout")), source, key, {})

    def _unbind(self) -> None:
        vhost = self._session().client.vhost
        bindings = [binding for exchange in vhost.exchanges.values() for binding in exchange.bindings.values()]
        if not bindings:
            return
        one: Any = self.chance.choice(bindings)
        is_queue = one.destination.name in vhost.queues and vhost.queues[one.destination.name] is one.destination
        kind = "queue" if is_queue else "exchange"
        vhost.bindings.remove(kind, one.destination.name, one.source.name, one.routing_key, dict(one.arguments))

    def _publish(self) -> None:
        chance, session = self.chance, self._session()
        bound = [name for name, one in session.client.vhost.exchanges.items() if one.bindings]
        exchange = chance.choice([name for name in bound if name in NAMES] or bound or [""])
        key = chance.choice(KEYS if exchange else self._names)
        header = encode_header(4, {"delivery_mode": chance.choice((1, 2, 2))})
        envelope = Envelope(exchange, key, scan_properties(header[12:]))
        contents = [NATIVE.join(header, b"%04d" % self._new_number()) for _ in range(chance.randrange(1, 4))]
        session.publish(session.client.vhost.router.route(exchange, key, ME), envelope, contents, mandatory=False)

    def _get(self) -> None:
        session = self._session()
        vhost = session.client.vhost
        for name in self._names:
            if name in vhost.queues and self.chance.random() < 0.5:
                session.get(vhost.queues.named(name), no_ack=True)

    def _purge(self) -> None:
        client = self._session().client
        client.vhost.queues.purge(self.chance.choice(self._names), client)


def facts(broker: Broker) -> State:
    """What has to survive."""
    found: State = {}
    for user in broker.users:
        if not user.is_configured:
            found["user", user.name] = (
                user.password.text(),
                user.tags,
                user.max_connections,
                None
                if user.permissions is None
                else {name: granted.grant for name, granted in user.permissions.items()},
            )
    for identity, value in broker.parameters:
        found["parameter", *identity] = value
    for policy in broker.context.policies:
        found["policy", *policy.identity] = (policy.pattern, policy.priority, tuple(policy.definition.items()))
    for name, vhost in broker.virtual_hosts.items():
        found["vhost", name] = vhost.context.limits
        for exchange in vhost.exchanges.values():
            if is_declared(exchange):
                kept = (exchange.type, exchange.auto_delete, exchange.internal)
                found["exchange", name, exchange.name] = kept
            for binding in exchange.bindings.values():
                one: Any = binding
                if one.source.durable and one.destination.durable:
                    what = type(one.destination).__name__
                    found["binding", name, one.source.name, what, one.destination.name, one.routing_key] = True
        for queue in vhost.queues.values():
            if not queue.durable:
                continue
            first = getattr(queue, "first_offset", 0)
            found["queue", name, queue.name] = (queue.type, str(queue.arguments), first)
            found["messages", name, queue.name] = [
                (message.id, message.body, message.envelope.exchange)
                for message in sorted(queue.messages(), key=lambda message: message.id)
                if message.envelope.summary.persistent
            ]
    return found


def difference(found: State, expected: State) -> str:
    """In words."""
    more = {key: value for key, value in found.items() if expected.get(key, "missing") != value}
    fewer = {key: value for key, value in expected.items() if found.get(key, "missing") != value}
    return f"found {more}, instead of {fewer}"


def check_names(broker: Broker, journal: Journal) -> None:
    """Each name that the journal knows is of a thing that is there, and has one id. Raises: Broken.

    But for exchanges, whose names stay for the sake of messages.
    """
    names = journal.names
    seen: set[object] = set()
    for id_ in names.ids_of(VHOST, EXCHANGE, QUEUE, CONSUMER, CONNECTION, USER, POLICY, OPERATOR_POLICY, PARAMETER):
        define = names[id_]
        if define.object_type in (CONSUMER, CONNECTION) or names.is_retired(id_):
            continue
        if define in seen:
            raise Broken(f"{define} has several ids")
        seen.add(define)
        vhost = "" if not define.vhost_id else names.text(define.vhost_id)
        here = broker.virtual_hosts.get(vhost)
        is_there = {
            VHOST: define.name in broker.virtual_hosts,
            EXCHANGE: here is not None and define.name in here.exchanges,
            QUEUE: here is not None and define.name in here.queues,
            USER: any(user.name == define.name and not user.is_configured for user in broker.users),
            POLICY: broker.context.policies.find(vhost, define.name) is not None,
            OPERATOR_POLICY: broker.context.policies.find(vhost, define.name, is_operator=True) is not None,
            PARAMETER: define.object_type == PARAMETER and (vhost, *parameter_names(define.name)) in broker.parameters,
        }[define.object_type]
        if not is_there:
            raise Broken(f"the {OBJECT_NAMES[define.object_type]} {define.name} is gone, and its name is kept")


def run(rounds: int, seed: int) -> Counter[str]:
    """Raises: Broken, whatever else breaks: the note tells how to see it again."""
    figures: Counter[str] = Counter()
    done = 0
    while done < rounds:
        of_world = seed + done
        world = World(of_world)
        for at in range(min(ROUNDS_EACH, rounds - done)):
            try:
                world.round()
            except BaseException as error:
                error.add_note(f"round {at + 1} of --seed {of_world} --rounds {at + 1}")
                raise
        done += ROUNDS_EACH
        report = verify(PATH, world.files)
        if report.faults:
            raise Broken(f"{report.faults}, in the journal of --seed {of_world}")
        figures += world.figures
    return figures


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    begun = time.monotonic()
    figures = run(options.rounds, options.seed)
    seconds = time.monotonic() - begun
    print(", ".join(f"{figures[name]:,} {name}" for name in sorted(figures)))
    print(f"{options.rounds:,} rounds, {options.rounds / seconds:.0f} a second: nothing came back, nothing was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
