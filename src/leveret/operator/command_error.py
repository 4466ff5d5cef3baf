"""The refusal of a command: apart from the commands, so that who only catches it does not import them all."""


class CommandError(Exception):
    """The command failed; the message is for the operator."""
