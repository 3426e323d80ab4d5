package schedule

// # Decisions
//
// All Clients of one Redis client share one heap, one timer and one goroutine. A scheduler for each Client made the
// limits on hanging pipelines useless, and with common limits, the fifth renewal that is due at the same moment would
// have had to wait. The schedule looks at a lock when its renewal is due, when an answer is overdue, and at Until.
// Locks that are due within a twentieth of their validity join the same round. A round leaves in one pipeline per
// server, straight to the node, because a pipeline of a ClusterClient waits for its slowest node.
//
// 10,000 kept locks with a ttl of 2 s, in one process for a minute (-bench KeepAlive): no lock was lost, each took 697
// to 762 bytes of heap, a round trip carried 2,500 to 5,400 renewals, and there was never more than one goroutine more
// than before the first lock.
