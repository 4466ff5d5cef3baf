"""Leased queues, as in AMPS, in configurations: their arguments, checks of them, and the XML files of AMPS."""
