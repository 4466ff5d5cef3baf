"""A publisher: with confirms, in transactions, or just so; to one or several places."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from leveret.interop.wire.raw_codec import Method

from ..books.duplicates import HEADER
from ..books.groups import GROUP, SEQUENCE
from ..ledger import KEY_SIZE, Broken
from ..parts import NORMAL_PACE, behind
from ..selectors import TEXTS
from ..sites import called
from ..swarm import TROUBLING
from .channel import Channel
from .client import Client, Question
from .knowledge import body_of, key_of, publisher_of
from .wire import content, properties, publish_method

#: Publishes without an answer before it waits.
WINDOW = 200
BATCH = 30
#: Octets that wait to be read by the broker, from which on a socket takes no more.
UNREAD_MAX = 200_000
MS = 1_000_000
NOWHERE = "nowhere"


class Sent(NamedTuple):
    """A publish that was not answered yet. `expiration_ms`: as its properties say; None: they say nothing."""

    key: bytes
    persistent: bool
    mandatory: bool
    sent_ns: int
    expiration_ms: int | None

    def may_be_over(self, now_ns: int) -> bool:
        """Whether it may have expired while it was held."""
        return self.expiration_ms is not None and now_ns >= self.sent_ns + self.expiration_ms * MS


class Publisher(Channel):
    """`options`: targets (exchange and routing key each), mode (confirms, transactions, none), retries, mandatory;
    heedless: it publishes on when it hears that it is blocked; insists: it publishes as mandatory, without confirms;
    cuts: its bodies are in frames of all sizes; mixes: few messages are of the kind of the one before.
    """

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self.mode: str = options.get("mode", "confirms")
        self.targets: list[list[str]] = options.get("targets") or [["", options["queue"]]]
        insists = bool(options.get("insists"))
        self._methods = [
            publish_method(
                number, exchange, key if exchange else called(client.world.plan.queue(key)), mandatory=insists
            )
            for exchange, key in self.targets
        ]
        self._lost_method = publish_method(number, "", NOWHERE, mandatory=True)
        self._heads = make_heads(self.chance, options)
        self._publisher = 0
        self._batch_max = max(1, int(BATCH * NORMAL_PACE / client.world.plan.pace))
        self._published = 0  # over all connections
        self._tag = 0  # on this channel
        self._unconfirmed: dict[int, Sent] = {}  # by tag
        self._unanswered: dict[bytes, Sent] = {}  # by key: publishes to which nobody answers
        self._waits_since_ns = 0
        self._again: list[tuple[bytes, bool]] = []  # unconfirmed when the connection was lost: key, persistent
        self._returned: set[bytes] = set()
        self._ids: dict[bytes, str] = {}  # against duplicates, by key
        self._transaction: list[tuple[bytes, bool]] = []
        self._committing: list[tuple[bytes, bool]] = []
        self._is_ready = False

    def opened(self) -> None:
        self._publisher = publisher_of(self.client.number, self.number, self.client.life)
        self._tag = 0
        if self.mode == "transactions":
            self.world.books.flow.committing.add(key_of(self._publisher, 0)[:4])
        self._declare(0)

    def _declare(self, index: int) -> None:
        plan = self.world.plan
        if index < len(self.targets):
            exchange, key = self.targets[index]
            if exchange:
                self.declare_exchange(plan.exchange(exchange), lambda _: self._declare(index + 1))
            else:
                self.declare(plan.queue(key), lambda _: self._declare(index + 1))
        elif self.mode == "confirms":
            self.ask("confirm.select", "confirm.select-ok", self._begin)
        elif self.mode == "transactions":
            self.ask("tx.select", "tx.select-ok", self._begin)
        else:
            self._is_ready = True

    def _begin(self, _: Method) -> None:
        self._is_ready = True

    def lost(self) -> None:
        self._is_ready = False
        if self.options.get("retries"):
            self._again += [(one.key, one.persistent) for one in self._unconfirmed.values() if not one.mandatory]
        self._unconfirmed.clear()
        self._unanswered.clear()
        self._transaction = []
        self._committing = []

    def ended(self) -> None:
        """What was published has its answer, unless it is held or waits for the disk; the uncommitted never comes."""
        plan, disk = self.world.plan, self.world.disk
        may_hold = "[flow]" in plan.configuration or any(fault.kind in TROUBLING for fault in plan.faults)
        first = next(iter(self._unconfirmed.values()), None)
        if first and first.sent_ns > self.world.knowledge.unsafe_ns and not may_hold and not disk.has_been_full:
            raise Broken(f"client {self.client.number} closed a channel, and {first.key.hex()} has no answer")
        self.world.books.routing.never.update(key for key, _ in self._transaction)

    def unanswered(self) -> Question | None:
        if not self._unconfirmed:
            return None
        return Question(self.number, "confirm", self._begin, self._waits_since_ns)

    def act(self) -> None:
        client = self.client
        if not self._is_ready or client.waiting or len(self._unconfirmed) > WINDOW:
            return
        if client.blocked and not self.options.get("heedless"):
            return
        if client.link is not None and client.link.unread_by_broker > UNREAD_MAX:
            return  # its socket takes no more
        self.send(b"".join(self._batch()))
        if self.options.get("asks") and self.chance.random() < 0.1:
            self._ask()
        if self.mode == "transactions" and self.chance.random() < 0.3:
            self._end_transaction()

    def _ask(self) -> None:
        """Something that is answered when it is safe, and so is what was before it."""
        keys = [key for key, sent in self._unanswered.items() if sent.persistent]
        queue = next(self.world.plan.queue(key) for exchange, key in self.targets if not exchange)

        def answered(_: Method) -> None:
            seen = self.world.books.routing.seen
            self.world.answers.after((), (key for key in keys if key in seen))

        if queue.durable:
            self.declare(queue, answered)

    def finish(self) -> None:
        if self._transaction and self._is_ready and not self.client.waiting:
            self._end_transaction()

    def _batch(self) -> list[bytes]:
        chance, knowledge = self.chance, self.world.knowledge
        parts: list[bytes] = []
        frame_max, cuts = self.client.frame_max, self.chance if "cuts" in self.options else None
        method, head = chance.choice(self._methods), chance.choice(self._heads)
        for _ in range(chance.randint(1, self._batch_max)):
            if chance.random() < (0.7 if "mixes" in self.options else 0.1):
                method, head = chance.choice(self._methods), chance.choice(self._heads)
            if self._again:
                key, persistent = self._again.pop()
                of = head if not persistent else next((one for one in self._heads if one.persistent), head)
                self.world.books.routing.again.add(key)
                size = knowledge.published[key]
                knowledge.happened["published again"] += 1
                parts.append(self._publish(key, of._replace(persistent=persistent), False, method))
                parts.append(content(self.number, self._properties(of, key), body_of(key, size), frame_max, cuts))
                continue
            self._published += 1
            key = key_of(self._publisher, self._published)
            size = chance.choice((0, 10, 10, 100, 1000, 20_000 if chance.random() < 0.05 else 50))
            knowledge.publish(key, size)
            is_mandatory = "mandatory" in self.options and chance.random() < 0.1
            parts.append(self._publish(key, head, is_mandatory, method))
            parts.append(content(self.number, self._properties(head, key), body_of(key, size), frame_max, cuts))
        return parts

    def _properties(self, head: Head, key: bytes) -> bytes:
        """With an id of its own, or now and then one that it gave before, where addresses remember them."""
        if "ids" not in self.options:
            return head.octets
        id_ = self._ids.get(key)
        if id_ is None:
            known = list(self._ids.values())[-3 * BATCH :]
            id_ = self._ids[key] = self.chance.choice(known) if known and self.chance.random() < 0.2 else key.hex()
        return properties(persistent=head.persistent, headers={HEADER: id_})

    def _publish(self, key: bytes, head: Head, mandatory: bool, method: bytes) -> bytes:
        self.world.knowledge.operations += 1
        now_ns = self.world.schedule.now_ns
        if self.mode == "confirms":
            if not self._unconfirmed:
                self._waits_since_ns = now_ns
            self._tag += 1
            self._unconfirmed[self._tag] = Sent(key, head.persistent, mandatory, now_ns, head.expiration_ms)
        elif self.mode == "transactions":
            self._transaction.append((key, head.persistent))
        else:
            self._unanswered[key] = Sent(key, head.persistent, mandatory, now_ns, head.expiration_ms)
        return self._lost_method if mandatory else method

    # -- answers ------------------------------------------------------------------------------------------------------

    def confirmed(self, tag: int, multiple: bool, *, is_ack: bool) -> None:
        unconfirmed, knowledge, routing = self._unconfirmed, self.world.knowledge, self.world.books.routing
        tags = [one for one in unconfirmed if one <= tag] if multiple else [tag]
        self._waits_since_ns = self.world.schedule.now_ns
        if not multiple and (oldest := next(iter(unconfirmed), tag)) != tag:  # they come in order
            raise Broken(f"client {self.client.number} got a confirm for {tag}, and none yet for {oldest}")
        for one in tags:
            found = unconfirmed.pop(one, None)
            if found is None:
                raise Broken(f"client {self.client.number} got a confirm for {one}, which is not outstanding")
            key, persistent, mandatory = found[:3]
            if key not in routing.seen or (key in routing.again and not is_ack and key not in routing.refused):
                self._never_came(found, is_ack=is_ack)
                continue
            if mandatory and key in routing.unroutable and key not in self._returned:
                raise Broken(f"message {key.hex()} was confirmed before it was returned")
            self._returned.discard(key)
            if is_ack and key in routing.refused and key not in routing.again:
                raise Broken(f"message {key.hex()} was refused, and confirmed")
            disk = self.world.disk
            if not (is_ack or key in routing.refused or disk.is_troubled or disk.has_been_full):
                raise Broken(f"message {key.hex()} was refused to its publisher, and by no queue")
            knowledge.happened["confirm" if is_ack else "refusal"] += 1
            was_lost_once = key in routing.again and key in routing.unroutable  # its first copy was never confirmed
            if is_ack and persistent and not was_lost_once:
                knowledge.confirm(key)

    def _never_came(self, sent: Sent, *, is_ack: bool) -> None:
        """What is answered and was never published was refused for want of room, or expired while it was held."""
        key, now_ns = sent.key, self.world.schedule.now_ns
        if is_ack:
            if self._was_dropped(key):
                return
            if not sent.may_be_over(now_ns):
                raise Broken(f"message {key.hex()} was confirmed before it was published")
            self.world.knowledge.happened["confirm: expired while it was held"] += 1
        else:
            self._check_refusal(key, sent.sent_ns)
            self.world.knowledge.happened["refusal: no room"] += 1
        if key not in self.world.books.routing.again:
            self.world.books.routing.never.add(key)

    def _was_dropped(self, key: bytes) -> bool:
        """Whether it was confirmed for the sake of the message that had its id first, which has to be safe."""
        if not (dropped := self.world.books.duplicates.dropped[self._ids.get(key, "")]):
            return False
        first = dropped.popleft()
        if not self.world.disk.is_troubled:
            self.world.knowledge.confirm(first)
        self.world.knowledge.happened["confirm: of a duplicate"] += 1
        return True

    def _check_refusal(self, key: bytes, sent_ns: int) -> None:
        plan, disk = self.world.plan, self.world.disk
        if disk.is_troubled or disk.has_been_full:
            return
        queues = {name for exchange, name in self.targets if not exchange}
        for exchange in {exchange for exchange, _ in self.targets if exchange}:
            queues |= behind(plan, exchange)
        may_refuse = "send-fail-if-no-space" in plan.configuration.partition("[[")[0] or any(
            "may_refuse" in plan.queue(name).features for name in queues
        )
        if not may_refuse:
            raise Broken(f"message {key.hex()} was refused for want of room, and nothing says that it may be")
        if not self.world.books.flow.was_full(queues, sent_ns):
            raise Broken(f"message {key.hex()} was refused for want of room, and there was room")

    def closed(self, code: int, text: str) -> None:
        if code == 406 and "partial" in text and self.mode == "transactions":
            self._committed_in_part()
            return
        if code != 406 or "RESOURCE_ERROR" not in text or self.mode == "confirms":
            super().closed(code, text)
        self.world.knowledge.happened["channel closed: no room"] += 1
        if self.mode == "transactions":
            self.world.books.routing.never.update(key for key, _ in (*self._committing, *self._transaction))

    def _committed_in_part(self) -> None:
        """A queue refused some of the messages; the others are there."""
        routing, keys = self.world.books.routing, [key for key, _ in self._committing]
        if missing := [key.hex() for key in keys if key not in routing.seen]:
            raise Broken(f"a commit was refused in part, and of the rest {missing[:5]} were not published")
        is_troubled = self.world.disk.is_troubled or self.world.disk.has_been_full
        if routing.refused.isdisjoint(keys) and not is_troubled:
            raise Broken("a commit was refused in part, and no queue refused any of its messages")
        self.world.knowledge.happened["commit of a part"] += 1

    def lost_publishes(self) -> list[bytes]:
        """Keys of what nobody answers to, and that has not come although the connection is still there."""
        seen, now_ns = self.world.books.routing.seen, self.world.schedule.now_ns
        late = {key: one for key, one in self._unanswered.items() if key not in seen and not one.may_be_over(now_ns)}
        self._unanswered = late
        return list(late)

    def returned(self, method: Method, body: bytes) -> None:
        key = body[-KEY_SIZE:]
        self.world.knowledge.check(body)
        if "insists" in self.options:
            sent = self._unanswered.pop(key, None)
            if sent is not None and method["reply_code"] == 312 and key in self.world.books.routing.unroutable:
                return
            if sent is None or method["reply_code"] != 506 or key in self.world.books.routing.seen:
                raise Broken(f"message {key.hex()} was returned for want of room, and was published, or is unknown")
            self._check_refusal(key, sent.sent_ns)
            self.world.books.routing.never.add(key)
            self.world.knowledge.happened["returned: no room"] += 1
            return
        self.world.knowledge.happened["returned"] += 1
        if key not in self.world.books.routing.unroutable or key in self._returned:
            raise Broken(f"message {key.hex()} was returned, and was routed, or was returned before")
        expected = {"reply_code": 312, "reply_text": "NO_ROUTE", "exchange": "", "routing_key": NOWHERE}
        if any(method[name] != value for name, value in expected.items()):
            raise Broken(f"message {key.hex()} was returned with {method.arguments}")
        self._returned.add(key)

    def _end_transaction(self) -> None:
        done, self._transaction = self._transaction, []
        if self.chance.random() < 0.8:
            self._committing = done
            self.ask("tx.commit", "tx.commit-ok", lambda _: self._committed(done))
        else:
            self.world.books.routing.never.update(key for key, _ in done)
            self.ask("tx.rollback", "tx.rollback-ok", lambda _: None)

    def _committed(self, done: list[tuple[bytes, bool]]) -> None:
        knowledge, routing = self.world.knowledge, self.world.books.routing
        knowledge.happened["commit of publishes"] += 1
        self._committing = []
        for key, persistent in done:
            if key not in routing.seen:
                raise Broken(f"message {key.hex()} was committed, and not published")
            if key in routing.refused:
                raise Broken(f"message {key.hex()} was refused, and its transaction committed")
            if persistent:
                knowledge.confirm(key)


class Head(NamedTuple):
    """Properties that a publisher chooses, as octets, and what they say."""

    octets: bytes
    persistent: bool
    expiration_ms: int | None


def make_heads(chance: Random, options: dict[str, Any]) -> list[Head]:
    """Properties that it chooses among."""
    heads = []
    for number in range(12):
        persistent = number == 0 or chance.random() < 0.8
        more: dict[str, Any] = {}
        if chance.random() < 0.3:
            more["message_id"] = f"message {number}"
        if (highest := options.get("priority_max")) is not None and chance.random() < 0.9:
            more["priority"] = chance.randint(0, min(255, highest + 1))
        if (expirations := options.get("expirations")) and chance.random() < 0.7:
            more["expiration"] = chance.choice(expirations)
        headers: dict[str, Any] = {}
        if (keys := options.get("last_value_keys")) is not None and chance.random() < 0.9:
            headers["key"] = f"key {chance.randrange(keys)}"
        if (delays_ms := options.get("delays")) and chance.random() < 0.5:
            headers["x-delay"] = chance.choice(delays_ms)
        if (groups := options.get("groups")) and chance.random() < 0.9:
            headers[GROUP] = f"group {chance.randrange(groups)}"
            if chance.random() < 0.2:
                headers[SEQUENCE] = -1
        if options.get("texts"):
            if chance.random() < 0.8:
                headers["of"] = chance.choice(TEXTS)
        elif options.get("headers"):
            headers["of"] = chance.choice(("a", "b", "c"))
        if headers:
            more["headers"] = headers
        expiration = more.get("expiration")
        octets = properties(persistent=persistent, **more)
        heads.append(Head(octets, persistent, None if expiration is None else int(expiration)))
    return heads
