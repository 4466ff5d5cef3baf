"""Refusal of gevent and eventlet: with their sockets and threads no trio loop can run in the process."""

import sys

#: A module that patches others, its function that tells whether it has, and the argument of that function.
PATCHING = (("gevent.monkey", "is_module_patched", "select"), ("eventlet.patcher", "is_monkey_patched", "select"))


def refuse_green_threads() -> None:
    """Raises: ImportError with a remedy, because trio's error would name neither the cause nor a remedy."""
    for name, question, module in PATCHING:
        patcher = sys.modules.get(name)
        if patcher is not None and getattr(patcher, question)(module):
            library = name.partition(".")[0]
            raise ImportError(
                f"{library} has replaced the sockets and threads of this process, in which no broker can run: "
                "start `leveret test-server` beside the tests and connect to it (docs/test-server.md)"
            )
