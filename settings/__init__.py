"""What an operator may choose: configuration and, for each address, settings. Pure: text in, frozen objects out."""

from .configuration import Configuration, Fault, load_configuration

__all__ = ["Configuration", "Fault", "load_configuration"]
