"""Arguments that many commands have."""

from .command_arguments import NAME, Argument


def vhost(text: str = 'its virtual host (default "/")') -> Argument:
    """A virtual host."""
    return Argument("vhost", NAME, text)


IN_VHOST = vhost()
OF_VHOST = vhost("only in this virtual host")
AS_USER = Argument("as-user", NAME, "with the permissions of this user (default: all)")
OF_USER = Argument("user", NAME, "only of this user")


def named(text: str) -> Argument:
    """The name of what a command is about."""
    return Argument("name", NAME, text, is_required=True, is_first=True)
