"""A broker that serves: composition root, addresses, TLS files, supervisor of the journal, the edge of all
frontends.
"""
