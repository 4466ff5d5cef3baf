"""A look at a broker that has just started: every fact, every message to the last octet, in its order.

Nothing is changed: what was handed out goes back when the channel is closed, which counts for nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pamqp import commands

from leveret.cli.control_client import request

from .borrower import check_once
from .content import PRIORITIZED, key_of, number_of, priority_of, properties_in, what_differs
from .truth import Broken, Fact, Line
from .wire import DEADLINE_SECONDS, Delivery, Wire
from .world import (
    DIED_IN,
    LEASED,
    ONCE,
    PUBLISHED_TO,
    SLACK_MS,
    World,
    binding_fact,
    count,
    exchange_fact,
    inner_fact,
    limit_fact,
    message,
    permission_fact,
    policy_fact,
    queue_fact,
    topic_fact,
    user_fact,
    vhost_fact,
    wall_ms,
)

#: A broker that has just started, on a busy machine, may be so late.
EXPIRY_LATE_MS = 3000
COUNT_HEADER, OFFSET_HEADER = "x-delivery-count", "x-stream-offset"


def look(port: int, world: World) -> dict[str, int]:
    """Compare a broker with the truth; returns how many messages each queue has. Raises: Broken."""
    control = Control(port)
    facts = objects(control)
    names = {fact[1] for fact in facts if fact[0] == "queue"}
    wire = Wire(port)
    handed_out: dict[str, list[Delivery]] = {}
    if "brief" in names:
        begun_ms = wall_ms()
        handed_out["brief"] = get_all(wire, "brief")  # first: what is out does not expire
        check_brief(world, {number_of(one.body) for one in handed_out["brief"]}, begun_ms)
    queues: list[dict[str, Any]] = control.ask("queues", vhost="/")
    if strange := [one["name"] for one in queues if one["name"] not in names]:
        raise Broken(f"queues {strange} outlived the broker")
    for channel, queue in enumerate(queues, start=2):
        if queue["ready"]:
            handed_out[queue["name"]] = drain(wire, channel, queue["name"], queue["ready"])
    if "later" in names:
        facts += waiting(world, control.ask("scheduled", queue="later"))
    if ONCE in names:
        check_once(world, {number_of(one.body) for one in handed_out.get(ONCE, ())})
    wire.finish_politely()
    for vhost in sorted({str(fact[1]) for fact in facts if fact[0] == "inner"}):
        facts += inside(port, vhost, [str(fact[3]) for fact in facts if fact[:3] == ("inner", vhost, "queue")])
    for name, deliveries in handed_out.items():
        facts += contents(world, name, deliveries)
    world.truth.look(facts)
    for name, deliveries in handed_out.items():
        check_order(world, name, [number_of(one.body) for one in deliveries])
    remember(world, {name: [number_of(one.body) for one in found] for name, found in handed_out.items()}, facts)
    return {name: len(found) for name, found in handed_out.items()}


class Control:
    """The broker's control table."""

    def __init__(self, port: int) -> None:
        self._url = f"amqp://guest:guest@127.0.0.1:{port}/"

    def ask(self, command: str, **arguments: object) -> Any:
        """Raises: ControlFailed, OSError."""
        return request(self._url, command, arguments, timeout_s=DEADLINE_SECONDS)


def objects(control: Control) -> list[Fact]:
    """Queues, exchanges, bindings, policies, users with what they may do, virtual hosts."""
    found = control.ask("definitions", action="export")
    facts: list[Fact] = []
    for queue in found["queues"]:
        if not queue["durable"]:
            raise Broken(f"the transient queue {queue['name']} outlived the broker")
        facts.append(_placed(queue, queue_fact(queue["name"], queue["arguments"])))
    for exchange in found["exchanges"]:
        if not exchange["durable"]:
            raise Broken(f"the transient exchange {exchange['name']} outlived the broker")
        facts.append(_placed(exchange, exchange_fact(exchange["name"], exchange["type"], exchange["arguments"])))
    for one in found["bindings"]:
        binding = binding_fact(one["source"], one["destination_type"], one["destination"], one["routing_key"])
        facts.append(_placed(one, binding))
    facts += [policy_fact("policies", one["vhost"], one["name"], one["definition"]) for one in found["policies"]]
    for one in found["parameters"]:
        if one["component"] == "operator_policy":
            facts.append(policy_fact("operator-policies", one["vhost"], one["name"], one["value"]["definition"]))
        else:
            facts.append(limit_fact(one["vhost"], one["value"]["max-queues"]))
    users = [one for one in found["users"] if one["name"] != "guest"]
    facts += [user_fact(one["name"], ",".join(one["tags"]), one["password_hash"]) for one in users]
    granted = [one for one in found["permissions"] if one["user"] != "guest"]
    facts += [permission_fact(one["user"], one["vhost"], one["configure"]) for one in granted]
    facts += [
        topic_fact(one["user"], one["vhost"], one["exchange"], one["write"]) for one in found["topic_permissions"]
    ]
    facts += [vhost_fact(one["name"]) for one in found["vhosts"] if one["name"] != "/"]
    return facts


def _placed(definition: dict[str, Any], fact: Fact) -> Fact:
    """The fact of a thing that is in a virtual host."""
    vhost = definition["vhost"]
    return fact if vhost == "/" else inner_fact(vhost, *map(str, fact))


def inside(port: int, vhost: str, queues: list[str]) -> list[Fact]:
    """The messages in another virtual host, each as it was published. Raises: Broken."""
    wire = Wire(port, vhost=vhost)
    facts: list[Fact] = []
    for queue in queues:
        for one in get_all(wire, queue):
            number = number_of(one.body)
            if one.redelivered or (difference := what_differs(number, queue, one.header, one.body, died=False)):
                raise Broken(f"message {number} in {queue} of {vhost} is not as it was published: {difference}")
            facts.append(inner_fact(vhost, "message", queue, number))
    wire.finish_politely()
    return facts


def get_all(wire: Wire, queue: str) -> list[Delivery]:
    """Everything in a queue, one by one, on channel 1, until it is empty."""
    found: list[Delivery] = []
    while True:
        wire.send(commands.Basic.Get(queue=queue))
        for event in wire.wait():
            if not isinstance(event, Delivery):
                return found
            found.append(event)


def check_brief(world: World, there: set[int], begun_ms: int) -> None:
    """What should have expired has; what may have is noted. Raises: Broken. `begun_ms`: of the look, wall ms."""
    slack = SLACK_MS + world.clock_moved_ms
    for fact in world.messages_in("brief"):
        number = int(str(fact[2]))
        earliest, latest = world.times[fact]
        if number in there and latest + slack + EXPIRY_LATE_MS < begun_ms:
            raise Broken(f"message {number} should have expired at {latest} ms, and it is {begun_ms} ms")
        if number not in there and earliest - slack <= wall_ms():
            world.expired(number)


def waiting(world: World, listed: list[dict[str, Any]]) -> list[Fact]:
    """The facts of messages that wait for their time, and it is that which the journal had. Raises: Broken."""
    facts: list[Fact] = []
    for one in listed:
        if one["id"] not in world.waiting:
            raise Broken(f"a message with the id {one['id']} waits in later, and is not in the journal")
        number, due_ms = world.waiting[one["id"]]
        if abs(one["due_ms"] - due_ms) > SLACK_MS + world.clock_moved_ms:
            raise Broken(f"message {number} in later was due at {due_ms} ms, and is now due at {one['due_ms']} ms")
        facts.append(message("later", number))
    return facts


def drain(wire: Wire, channel: int, queue: str, ready: int) -> list[Delivery]:
    """Everything in a queue, as it is handed out on a channel of its own; closing that gives it back."""
    wire.ask(commands.Channel.Open(), commands.Channel.OpenOk, channel=channel)
    arguments: dict[str, Any] = {}
    if queue == "lent":  # handed out, as to anybody; of the others pictures are enough
        wire.ask(commands.Basic.Qos(prefetch_count=0), commands.Basic.QosOk, channel=channel)
    elif queue in LEASED:
        arguments = {"x-browse": True}
    if queue.startswith("log"):
        wire.ask(commands.Basic.Qos(prefetch_count=65535), commands.Basic.QosOk, channel=channel)
        arguments = {"x-stream-offset": "first"}
    wire.send(
        commands.Basic.Consume(queue=queue, nowait=True, consumer_tag="look", arguments=arguments), channel=channel
    )
    found: list[Delivery] = []
    while len(found) < ready:
        for event in wire.wait():
            if not isinstance(event, Delivery):
                raise Broken(f"{event} while {queue} was read")
            found.append(event)
    wire.ask(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk, channel=channel)
    return found


def contents(world: World, queue: str, found: list[Delivery]) -> list[Fact]:
    """The facts of a queue's messages; each is as it was published, and is redelivered if it came back.

    What was out when a broker was killed did not come back. Source: address-settings page 5.7.
    """
    facts: list[Fact] = []
    target = PUBLISHED_TO.get(queue, queue)
    for at, one in enumerate(found):
        number = number_of(one.body)
        facts.append(message(queue, number))
        if difference := what_differs(number, target, one.header, one.body, died=queue in DIED_IN):
            raise Broken(f"message {number} in {queue} is not as it was published: {difference}")
        headers = properties_in(one.header).get("headers") or {} if queue in ("quorum", world.stream) else {}
        tries = headers.get(COUNT_HEADER, 0) if queue == "quorum" else int(one.redelivered)
        if tries:
            facts.append(count(queue, number, tries))
        if one.redelivered != (tries > 0):
            raise Broken(
                f"message {number} in {queue}, which came back {tries} times: redelivered is {one.redelivered}"
            )
        if queue in LEASED:
            check_lease(world, queue, number, one)
        if queue == world.stream:
            check_offset(world, number, headers[OFFSET_HEADER], at)
    return facts


def check_offset(world: World, number: int, offset: int, at: int) -> None:
    """Offsets have no gaps, and a message keeps its own."""
    if offset != at:
        raise Broken(f"message {number}, number {at} of the stream, has offset {offset}")
    if world.offsets.get(number, offset) != offset:
        raise Broken(f"message {number} had offset {world.offsets[number]} in the stream, now {offset}")


def check_lease(world: World, queue: str, number: int, found: Delivery) -> None:
    """It is as if it had never been delivered, but for its bookmark, which it keeps."""
    headers = properties_in(found.header)["headers"]
    if headers.get(COUNT_HEADER, 1) != 1:
        raise Broken(f"message {number} in {queue} says after a restart: {headers}")
    bookmark = headers["x-bookmark"]
    if world.bookmarks.setdefault(message(queue, number), bookmark) != bookmark:
        raise Broken(f"message {number} in {queue} has another bookmark than before: {bookmark}")


def check_order(world: World, queue: str, numbers: list[int]) -> None:
    """What one connection published comes in that order, by priority first."""
    last: dict[Line, tuple[int, int]] = {}
    if queue == "newest":
        return  # a message takes the place of the one that it replaces
    for number in numbers:
        line, place = world.places[message(queue, number)]
        rank = (-priority_of(number) if queue in PRIORITIZED else 0, place)
        if rank < last.get(line, rank):
            raise Broken(f"message {number} comes too late in {queue}")
        last[line] = rank


def remember(world: World, numbers: dict[str, list[int]], facts: list[Fact]) -> None:
    """What the client needs of all that in the next round."""
    here = world.truth.here
    world.places = {fact: place for fact, place in world.places.items() if fact in here}
    for name in world.heads:
        world.heads[name] = deque(numbers.get(name, ()))
    world.counts = {(str(fact[1]), int(str(fact[2]))): int(str(fact[3])) for fact in facts if fact[0] == "count"}
    world.stream = next((str(fact[1]) for fact in facts if fact[0] == "queue" and str(fact[1]).startswith("log")), "")
    world.times = {fact: times for fact, times in world.times.items() if fact in here}
    world.bookmarks = {fact: bookmark for fact, bookmark in world.bookmarks.items() if fact in here}
    world.newest = {key_of(number): number for number in numbers.get("newest", ())}
    world.offsets = {number: at for at, number in enumerate(numbers.get(world.stream, ()))}
