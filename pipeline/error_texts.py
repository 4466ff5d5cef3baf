"""Short texts of exceptions of Spark, which have a hundred lines of Java and Python, and of other libraries."""

import json
import re
import socket

#: Escape sequences of terminals.
_TERMINAL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Ends of lines, with the arrows that delta-rs puts before causes.
_ARROW = re.compile(r"\s*\n\s*(?:↳\s*)?")
#: The beginning of DuckDB's texts: `Binder Error: `, `Out of Memory Error: `.
_KIND = re.compile(r"(?:[A-Z][\w-]* )(?:[\w-]+ )*?Error: ")
#: The message in those texts of DuckDB that are JSON.
_JSON_MESSAGE = re.compile(r'"exception_message":("(?:[^"\\]|\\.)*")')
#: The parts of pyarrow's texts about files: `[Errno 20] what failed. Detail: [errno 20] why`.
_ERRNO = re.compile(r"\[Errno \d+\] (.*)\. Detail: \[errno \d+\] (.*)", re.DOTALL)
#: The beginning of py4j's texts about exceptions of Java.
_CALL = "An error occurred while calling"
#: The name of a Java class before its message.
_CLASS = re.compile(r"(?:[\w$]+\.)+[\w$]+: ")
_STANDALONE = re.compile(r"spark://([^:/,]+):(\d+)")
PROBE_SECONDS = 3
#: Parts of Spark's texts when its cluster does not answer or is lost.
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
    """The text of Leveret's exception inside Spark's; else of Java's inside it; else its first line."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    for words in lines:
        if words.startswith("leveret.") and ": " in words:
            return words.split(": ", 1)[1]
    if len(lines) > 1 and lines[0].startswith(_CALL):
        return _CLASS.sub("", lines[1].removeprefix(": "))
    return one_line(lines[0]) if lines and lines[0] else type(error).__name__


def one_line(text: str) -> str:
    """A text in one line, without escape sequences: `Generic error: the cause: its cause`."""
    return _ARROW.sub(": ", _TERMINAL.sub("", text).strip())


def error_text(error: Exception) -> str:
    """The text of an exception; for one about a file, the path and the system's text."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return one_line(_ERRNO.sub(r"\1: \2", str(error)))


def sql_error_text(error: Exception) -> str:
    """The text of DuckDB's exception, without its kind and the query."""
    text = str(error).strip().partition("\n")[0]
    if inner := _JSON_MESSAGE.search(text):
        return str(json.loads(inner[1]))
    return _KIND.sub("", text, count=1) if _KIND.match(text) else text


def lost_cluster_text(error: Exception, master: str) -> str | None:
    """A sentence about the lost cluster; None: the error is another failure."""
    text = str(error)
    if not isinstance(error, ConnectionError) and not any(words in text for words in _LOST):
        return None
    return (
        f"the cluster {master} is lost: {_probe_text(master)}{spark_error_text(error).rstrip('.')}. The page and the"
        " logs of its master (in SPARK_HOME/logs) and of its workers (in SPARK_HOME/work) say more,"
        " LEVERET_TRACEBACK=1 shows what Spark says"
    )


def _probe_text(master: str) -> str:
    """A sentence about whether a standalone master listens now; Spark says only that the context has stopped."""
    named = _STANDALONE.match(master)
    if named is None:
        return ""
    try:
        socket.create_connection((named[1], int(named[2])), timeout=PROBE_SECONDS).close()
    except OSError as error:
        return f"nothing answers at {named[1]}:{named[2]} ({error.strerror or error}). "
    return f"{named[1]}:{named[2]} answers now. "
