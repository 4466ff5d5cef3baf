"""The connection from a follower to its leader: octets of the journal, acknowledgements, and clients passed on."""
