"""The connection between a follower and its leader: octets of the journal, acknowledgements, and clients passed on."""
