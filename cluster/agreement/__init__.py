"""Who leads, who is in sync, and up to where the journal is agreed: events in, decisions out. No I/O, no clock.

Comments and tests cite these rules, by which no confirmed message is lost:

- R1: Everything that waits for the journal to be safe, such as a confirm, waits for the agreed LSN.
- R2: Only a node of the in-sync set becomes leader.
- R3: Shrink first: before a node is removed from the set, nothing is agreed without it. The leader stops awaiting the
  node when it reads in etcd that the node is removed. Until then a removal without an answer is in doubt.
- R4: Grow last: a node enters the set when it has fsynced everything agreed. The leader awaits the node before it sends
  the transaction that adds it.
- R5: The set never has fewer than `min-in-sync` nodes. A leader that would have to shrink it further blocks publishers.
  It resigns if two other nodes reach each other and one of them is out of its own reach.
- R6: A node copies records only from the leader whose term it read in etcd, and only if its own term table has no
  higher term. It stops acknowledging before it sends a campaign.
- R7: A term is in the term table, fsynced, before the first record of that term is written or copied.
- R8: A node that joins cuts its journal at the common end of its and the leader's term tables. It never merges.
- R9: Nothing beyond the agreed LSN has an effect outside: no segment is freed by it, and neither clients nor readers
  get it.
- R10: A node does not campaign if its journal ends below the agreed LSN in etcd, or if it sees etcd's revision fall:
  its disk, or etcd, was rolled back, that is, restored from an older copy.
"""
