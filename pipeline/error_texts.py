"""What to say of an exception of Spark's, which is some hundred lines of Java and Python, or of another library's."""

import json
import re
import socket

#: Colours and other orders to a terminal, and the arrows of delta-rs' chain of causes.
_TERMINAL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ARROW = re.compile(r"\s*\n\s*(?:↳\s*)?")
#: How DuckDB begins: `Binder Error: `, `Out of Memory Error: `.
_KIND = re.compile(r"(?:[A-Z][\w-]* )(?:[\w-]+ )*?Error: ")
_INNER = re.compile(r'"exception_message":("(?:[^"\\]|\\.)*")')
#: How Java's exception is told by the library between Python and it; and what a name of a class looks like.
_CALL = "An error occurred while calling"
_CLASS = re.compile(r"(?:[\w$]+\.)+[\w$]+: ")
_STANDALONE = re.compile(r"spark://([^:/,]+):(\d+)")
PROBE_SECONDS = 3
#: Texts of Spark when its cluster is not there, or has gone.
_LOST = (
    "All masters are unresponsive",
    "stopped SparkContext",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "Master removed our application",
    "No active SparkContext",
    "Connection refused",
)


def spark_error_text(error: Exception) -> str:
    """Our own message within Spark's report, or what Java said, or its first line."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    for words in lines:
        if words.startswith("leveret.") and ": " in words:
            return words.split(": ", 1)[1]
    if len(lines) > 1 and lines[0].startswith(_CALL):
        return _CLASS.sub("", lines[1].removeprefix(": "))
    return one_line(lines[0]) if lines and lines[0] else type(error).__name__


def one_line(text: str) -> str:
    """One line without a terminal's colours: `Generic error: the cause: its cause`."""
    return _ARROW.sub(": ", _TERMINAL.sub("", text).strip())


def error_text(error: Exception) -> str:
    """A sentence of ours, or what the system says of a file."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return one_line(str(error))


def sql_error_text(error: Exception) -> str:
    """DuckDB's sentence, without its kind and without the text of the query."""
    text = str(error).strip().partition("\n")[0]
    if inner := _INNER.search(text):
        return str(json.loads(inner[1]))
    return _KIND.sub("", text, count=1) if _KIND.match(text) else text


def lost_cluster_text(error: Exception, master: str) -> str | None:
    """What to say if the cluster is lost; None: this is another failure."""
    text = str(error)
    if not isinstance(error, ConnectionError) and not any(words in text for words in _LOST):
        return None
    return (
        f"the cluster {master} is lost: {_answers(master)}{spark_error_text(error)} Its master's page and logs (in"
        " SPARK_HOME/logs) and its workers' (in SPARK_HOME/work) say more, LEVERET_TRACEBACK=1 shows what Spark says"
    )


def _answers(master: str) -> str:
    """Whether a standalone master listens now, since Spark says only that it has stopped."""
    named = _STANDALONE.match(master)
    if named is None:
        return ""
    try:
        socket.create_connection((named[1], int(named[2])), timeout=PROBE_SECONDS).close()
    except OSError as error:
        return f"nothing answers at {named[1]}:{named[2]} ({error.strerror or error}). "
    return f"{named[1]}:{named[2]} answers now. "
