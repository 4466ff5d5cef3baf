"""The tour of the demo: the sights, and the pages and commands that show them."""

from typing import NamedTuple


class Stop(NamedTuple):
    """A stop of the tour. `page`: in the console; `command`: the command of ctl that shows the same."""

    title: str
    text: str
    page: str
    command: str


STOPS = (
    Stop(
        "A ring",
        "50 quotes a second come, the reader takes 5: the queue has the newest 100, the others are replaced.",
        "#/queues/%2F/quotes.last",
        "queues",
    ),
    Stop(
        "Retries without client code",
        "Each third mail is given back at once: it waits 1 s, then 2, then 4, and then it is a dead letter.",
        "#/scheduled",
        "scheduled list jobs.mail",
    ),
    Stop(
        "A consumer that is too slow",
        "Robot 2 takes 7 s for a parcel: its leases end after 5 s, and robot 1 gets the parcels.",
        "#/leases",
        "leases parcels",
    ),
    Stop(
        "A blocked publisher",
        "The import is faster than the order book: at 500 orders its publishes wait, and nobody else's.",
        "#/blocked",
        "connections",
    ),
    Stop(
        "A storm of dead letters",
        "1,000 readings come each 10 s, and expire after 3 s: see by cause and queue where they come from.",
        "#/dead-letters",
        "dead-letters",
    ),
)


def tour_text(console: str, amqp: str, control: str) -> str:
    """The tour for the terminal. `control`: the words before each command of ctl."""
    lines = [f"The console is {console} (user guest, password guest); AMQP clients connect to {amqp}", ""]
    for number, stop in enumerate(STOPS, 1):
        lines += [f"{number}. {stop.title}", f"   {stop.text}", f"   {console}{stop.page}"]
        lines += [f"   {control} {stop.command}", ""]
    return "\n".join([*lines, "Ctrl-C ends the demo; nothing of it is kept."])
