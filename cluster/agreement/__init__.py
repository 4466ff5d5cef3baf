"""Who leads, who is in sync, and up to where the journal is agreed: events in, decisions out. No I/O, no clock.

Comments and tests cite these rules, by which no confirmed message is lost:

- R1: Everything that waits for the journal to be safe, such as a confirm, waits for the agreed LSN.
- R2: Only a node of the in-sync set becomes leader.
- R3: Shrink first: the leader awaits a node until it has read that etcd removed it from the set. A transaction without
  an answer is in doubt, and the node is still awaited.
- R4: Grow last: a node enters the set when it has fsynced everything agreed. The leader awaits it before it sends the
  transaction.
- R5: The set never has fewer than `min-in-sync` nodes. A leader that would have to shrink it further blocks publishers.
  It resigns if a node that it cannot reach reaches another one.
- R6: A node takes records only from the leader whose term it read in etcd, and of no lower term than its own table has.
  It stops acknowledging before it sends a campaign.
- R7: A term is in the term table, fsynced, before the first record of that term is written or taken.
- R8: A node that joins cuts its journal at the common end of both term tables, and never merges.
- R9: Nothing beyond the agreed LSN is given away: it frees no segment, and clients and readers do not get it.
- R10: A node whose journal ends below the agreed LSN in etcd, or that sees etcd's revision fall, does not campaign: its
  disk, or etcd, was put back.
"""
