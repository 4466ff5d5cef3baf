"""Refusal of gevent and eventlet: they replace sockets and threads of the whole process, so that no trio loop can
run.
"""

import sys

#: The module that patches, its function that tells whether it has patched, and the argument of that function.
PATCHING = (("gevent.monkey", "is_module_patched", "select"), ("eventlet.patcher", "is_monkey_patched", "select"))


def refuse_green_threads() -> None:
    """Raise an ImportError with a remedy; errors of trio would name neither the cause nor a remedy."""
    for name, question, module in PATCHING:
        patcher = sys.modules.get(name)
        if patcher is not None and getattr(patcher, question)(module):
            library = name.partition(".")[0]
            raise ImportError(
                f"{library} has replaced the sockets and threads of this process, in which no broker can run: "
                "start `leveret test-server` beside the tests and connect to it (docs/test-server.md)"
            )
