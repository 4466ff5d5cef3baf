"""A command is one function: its help, its arguments, its AMQP request and its route come from that alone."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import pytest
from api_client import ApiClient

from leveret.__main__ import main
from leveret.cli.control_client import ControlFailed, request
from leveret.console import routes
from leveret.console.dispatcher import Http, Level
from leveret.operator import command_table  # all of them, before the one that is added here
from leveret.operator.command import COMMANDS, command
from leveret.operator.control import ControlTable
from leveret.operator.kinds import JSON, AsUser, QueueName, VhostName
from leveret.operator.operator import Operator
from leveret.serving.console import Commands
from leveret.testing import RunningBroker, start_broker

USAGE = "usage: greet QUEUE [TIMES] [loud=BOOLEAN] [words=JSON] [vhost=NAME] [as-user=NAME]"


@dataclass(slots=True, frozen=True)
class How:
    """Arguments that several commands could share."""

    times: int = 1
    _: KW_ONLY
    loud: bool = False
    words: Annotated[Any, JSON, "a list"] = None


def greet(
    operator: Operator, queue: QueueName, how: How, *, vhost: VhostName = "/", as_user: AsUser | None = None
) -> dict[str, Any]:
    """Greet the consumers of a queue.

    times: how often;
        a second line of the same help
    loud: true: in capitals
    """
    with operator.client(vhost, as_user) as (client, host):
        found = host.queues.named(queue)
    text = " ".join([found.name, *(how.words or [])] * how.times)
    return {"said": text.upper() if how.loud else text, "by": client.user.name}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """Started after the command was added."""
    assert command_table.COMMANDS is COMMANDS
    command("greet", http=Http("POST", "leveret/queues/V/Q/greet", Level.VHOST), reads=True)(greet)
    with start_broker(management=True) as running:
        ApiClient(running.management_url).ask("PUT", "queues/%2F/q", {})
        yield running
    del COMMANDS["greet"]


def test_help(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """With those of all others, and alone."""
    assert main(["ctl", "--help"]) == 0
    assert "  greet QUEUE [TIMES]" in capsys.readouterr().out
    assert main(["ctl", "greet", "--help"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        USAGE.replace("usage: ", "usage: leveret ctl "),
        "  Greet the consumers of a queue",
        "    queue    the queue's name",
        "    times    how often; a second line of the same help",
        "    loud     true: in capitals",
        "    words    a list",
        '    vhost    its virtual host (default "/")',
        "    as-user  with the permissions of this user (default: all)",
    ]


def test_the_command_line_calls_it(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """By position and by name."""
    assert main(["ctl", "--url", broker.url, "greet", "q", "2", "loud=true", 'words=["hello"]']) == 0
    assert capsys.readouterr().out == "said: Q HELLO Q HELLO\nby: leveret.control\n"
    assert main(["ctl", "--url", broker.url, "greet", "q", "often"]) == 1
    assert capsys.readouterr().err == "leveret ctl: greet: times must be a number, not 'often'\n"


@pytest.mark.parametrize(
    "given, error",
    [
        ({}, f"greet: expected queue=NAME\n{USAGE}"),
        ({"queue": 3}, f"greet: expected queue=NAME\n{USAGE}"),
        ({"queue": "q", "times": True}, "greet: times must be a number, not True"),
        ({"queue": "q", "loud": "yes"}, "greet: loud must be true or false, not 'yes'"),
        ({"queue": "q", "words": "[" * 9999}, "greet: words: is not JSON"),
        ({"queue": "q", "words": "[NaN]"}, "greet: words: is not JSON"),
        ({"queue": "q", "words": "[1e999]"}, "greet: words: is not JSON"),
        ({"queue": "q", "words": f"[{'1' * 31}]"}, "greet: words: is not JSON"),
        ({"queue": "q", "worsd": 1}, f"greet: unknown argument 'worsd', did you mean 'words'?\n{USAGE}"),
        ({"queue": "p"}, "no queue 'p' in vhost '/'"),
        ({"queue": "q", "as-user": "nobody"}, "no user 'nobody'"),
        ({"queue": "q", "vhost": "none"}, "no virtual host 'none'"),
    ],
)
def test_requests_of_amqp_are_refused(broker: RunningBroker, given: dict[str, Any], error: str) -> None:
    """Each argument by its type."""
    with pytest.raises(ControlFailed) as refused:
        request(broker.url, "greet", given)
    assert str(refused.value) == error


@pytest.mark.parametrize(
    "queue, body, status, reason",
    [
        ("q", {"times": 2, "loud": True, "words": ["a"]}, 200, None),
        ("q", {"times": "2", "vhost": "none", "as_user": "nobody"}, 200, None),
        ("q", {"times": "x"}, 400, "greet: times must be a number, not 'x'"),
        ("q", {"times": -1}, 400, "greet: times must be a number, not -1"),
        ("q", {"loud": "no"}, 400, "greet: loud must be true or false, not 'no'"),
        ("p", {}, 404, "Not Found"),
    ],
)
def test_http_calls_it(broker: RunningBroker, queue: str, body: dict[str, Any], status: int, reason: Any) -> None:
    """As the user of the login, whatever the body says; arguments are read and refused by type."""
    answer = ApiClient(broker.management_url).ask("POST", f"leveret/queues/%2F/{queue}/greet", body)
    assert answer.status == status
    if status == 200:
        assert answer.json["by"] == "guest" and answer.json["said"].lower() in ("q a q a", "q q")
    else:
        assert answer.reason == reason


def test_its_level_is_asked(broker: RunningBroker) -> None:
    """Only users who may see the virtual host."""
    api = ApiClient(broker.management_url)
    api.ask("PUT", "users/outside", {"password": "outside", "tags": "management"})
    assert api.ask("POST", "leveret/queues/%2F/q/greet", {}, user="outside").status == 401
    assert "/api/leveret/queues/V/Q/greet" in api.ask("GET", "/api/index.html").body.decode()


def test_a_parameter_without_help_is_refused_at_once() -> None:
    """When its module is imported."""

    def silent(operator: Operator, queue: QueueName, count: int) -> None:
        """Say nothing."""

    with pytest.raises(KeyError, match="count"):
        command("silent")(silent)

    def untyped(operator: Operator, queue: list[str]) -> None:
        """Say nothing.

        queue: of no kind
        """

    with pytest.raises(TypeError, match="no kind of argument"):
        command("untyped")(untyped)


def test_what_stands_beside_the_routes_is_for_a_command_that_has_one() -> None:
    """A command that is renamed loses nothing in silence."""
    with_route = {one.words for one in Commands(ControlTable()).routes()}
    assert routes.ADAPTERS.keys() <= with_route
