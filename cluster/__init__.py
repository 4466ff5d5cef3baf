"""One broker on several machines: a leader writes the journal, followers copy it, and etcd says who leads.

Each folder imports only those before it in this list: `agreement/` (who leads and what is agreed: pure), `coordinator/`
(etcd), `copying/` (joining a leader, full copies), `link/` (the connection between two nodes). A broker without
`[cluster]` in its configuration imports nothing of this room.
"""
