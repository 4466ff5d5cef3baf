"""A broker that serves: composition root, addresses, TLS files, supervisor of the journal, and the runtime (turns and
deadlines) of all frontends.
"""
