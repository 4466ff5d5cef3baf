"""What a broker does not need to start is imported by whoever needs it: start-up time is for every start."""

import subprocess
import sys

import pytest

from leveret.__main__ import COMMANDS

#: Starts a broker up to the point where it would listen, and prints what has been imported.
UP_TO_LISTENING = """
import sys
from leveret.__main__ import main
from leveret.serving import app
def _serve(*arguments):
    print(*sorted(sys.modules), sep="\\n")
    raise KeyboardInterrupt
app.ServingProcess.run = _serve
sys.exit(main(["serve", "--memory", "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0"]))
"""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules of a broker that keeps everything in memory and has no configuration files."""
    done = subprocess.run([sys.executable, "-c", UP_TO_LISTENING], capture_output=True, text=True, timeout=60)
    return set(done.stdout.split())


def test_a_broker_has_its_parts_from_the_start(imported: set[str]) -> None:
    """The first connection and the first message wait for no import."""
    parts = {
        "engine.clients.session",
        "amqp_frontend.edge.server",
        "amqp_frontend.session.handling",
        "configured.configured",
    }
    assert {f"leveret.{part}" for part in parts} <= imported


@pytest.mark.parametrize(
    "module, who_needs_it",
    [
        ("leveret.operator.command_table", "the first control command"),
        ("leveret.operator.topology", "the first control command"),
        ("leveret.operator.definitions", "the first control command"),
        ("leveret.settings.explain", "`ctl explain`"),
        ("leveret.settings.difference", "`leveret diff`"),
        ("leveret.cli.ctl_command", "`leveret ctl`"),
        ("leveret.cli.journal_commands", "`leveret journal`"),
        ("leveret.settings.files.builder", "configuration files"),
        ("leveret.journal", "brokers with a directory"),
        ("leveret.settings.leases.checks", "configuration files"),
        ("leveret.engine.stores.topic_log", "leased queues"),
        ("leveret.engine.leases.kind", "leased queues"),
        ("leveret.settings.foreign", "files of other systems"),
        ("leveret.settings.lint", "configuration files"),
        ("tomllib", "configuration files"),
        ("difflib", "misspelled names"),
        ("email", "the search for other frontends"),
        ("encodings.idna", "names of hosts that are not ASCII"),
    ],
)
def test_a_broker_in_memory_starts_without(imported: set[str], module: str, who_needs_it: str) -> None:
    """Only those named need it."""
    assert module not in imported, who_needs_it


@pytest.mark.parametrize("word, besides", [("check", set()), ("diff", set()), ("ctl", {"cli.explain"})])
def test_only_the_module_of_the_word_is_imported(word: str, besides: set[str]) -> None:
    """Of all that the command line has; `ctl` prints explanations."""
    code = f"""
import sys
from leveret.__main__ import COMMANDS, main
try:
    main([{word!r}, "--help"])
except SystemExit:
    pass
print(*(name for name, _ in COMMANDS.values() if f"leveret.{{name}}" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert set(done.stdout.splitlines()[-1].split()) == {COMMANDS[word][0], *besides}


#: Reads a configuration, and prints what has been imported.
READ = "import sys; from leveret.settings import load_configuration; load_configuration([('f', {text!r})])"


@pytest.mark.parametrize(
    "text, has_foreign",
    [
        ("[broker]\nproduct = 'p'\n", False),
        ("broker.product = 'p'\n", False),
        ("idCacheSize=5\n", True),
        ("<core/>", True),
    ],
)
def test_formats_of_others_are_imported_with_the_first_such_file(text: str, has_foreign: bool) -> None:
    """A broker with files of TOML does without them."""
    script = READ.format(text=text) + "; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    modules = done.stdout.split()
    assert "leveret.settings.files.builder" in modules
    assert ("leveret.settings.foreign" in modules) is has_foreign
