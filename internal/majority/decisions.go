package majority

// # Decisions
//
// The numbers in brackets are those of the rules in doc.go.
//
// A call has an end, not a place. First, each place had a lease of its own with its own renewals, and Until was the
// need-th largest of their ends. So two Refresh calls that failed, confirmed by one server each, made a majority
// together, and so did renewals of two rounds. Each fix for such a hole opened another one, because a place had to
// guess from nine flags which of several calls had made or freed its keys. The price of one end per call: all renewals
// of a lock are sent at once, a Refresh voids the rounds under way, and a key that one place has lost costs one more
// round before it is acquired again. It costs nothing else: a pair on a quorum of 3 took 0.91 of the time with one
// goroutine and 0.99 with 16, and 2,000 kept locks took 0.86 of the processor time.
//
// The stored values do not tell the calls of one lock apart. A number in each value was tried, by which a call could
// tell its own keys from those of another call; the simulation showed that no rule needs it. Nothing is given back
// while a lock lives, so it does not matter which of its calls has acquired a key.
//
// A lapse is final (6c, 8). Before, on real servers, a lock of 1 s became valid again beside another holder in 3 of 3
// runs, because an older, longer hold at a server that had forgotten it still counted; and in 10 of 10 runs when a
// Refresh that had begun before the lapse counted after it. A lock that has lost keys at one server has not lapsed
// (4c): otherwise a Refresh of an attached lock that a majority confirmed failed in 21 of 40 runs, whenever the answer
// of the server that had forgotten came first.
//
// Nothing is given back while the lock lives (10). Before, what a late mend was granted was released, although a
// renewal could have acquired the same keys meanwhile: two valid holders, with no server failing, in 20 of 20 runs of
// that schedule.
//
// The rules are simulated, without Redis and in virtual time, because nearly every round of work on several places had
// found new ways to two valid holders. TestQuorumModel of package several runs the whole library against in-memory
// servers on fake time, and TestQuorumModelOnServers against real ones: 500 schedules had no violation. With one
// protection switched off (validity from the sending, the need-th largest end, a majority, a token for each round, mends,
// mends only after a confirmation, raised fence counters), it found a violation after 1 to 26 schedules.
