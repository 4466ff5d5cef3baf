"""The refusal of a command, in a file that can be imported without the commands."""


class CommandError(Exception):
    """The command failed; the message is for the operator."""
