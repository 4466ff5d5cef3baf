"""The refusal of a command. Modules import it without the commands."""


class CommandError(Exception):
    """The command failed; the message is for the operator."""
