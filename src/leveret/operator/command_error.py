"""The refusal of a command, in a file that is importable without the commands."""


class CommandError(Exception):
    """The command failed; the message is for the operator."""
