package several

// # Decisions
//
// A quorum and a lock across slots are one mechanism: a number of places that must agree. This package sends by the
// calls, resends and releases of a lock at one place, so nothing of that is written twice, and a lock at one place
// takes a path that knows nothing of several.
//
// Obtain asks all places at once and returns when enough have decided. The calls that are left go on, and a late grant
// joins the lock, so a server that is a little slow holds the lock as well. Cancelling them would leave bare
// majorities, which one server that forgets can break.
//
// Before it counts a server as absent, the library looks once more at what has arrived, 2 ms after the time is up. If
// the process itself has stood still, the timer and the answers have waited together. With stops of 150 ms, 9 to 11 of
// 20 obtains under way failed without this, and 3 to 6 with it.
//
// If there is no majority without a server, it has 250 ms and not 100 ms, and is asked until it has been silent for so
// long, because only an error can come of a round without it. In the torture run, with two processors for five servers
// and six programs, all servers took 100 to 150 ms now and then, and obtains without a strategy failed. A server that
// has never answered has 2 s then, also if others were fast: six programs that began at once made their first
// connections in 250 to 270 ms, and an obtain that had heard two of five servers failed. A refusal by a majority waits
// for the others for 100 ms. With one of three servers hung, 16 callers that are granted one lock after the other would
// have twice as many calls at that server if all callers waited for 250 ms (5,301 goroutines instead of 2,320).
//
// A round that nobody wins is asked again. Two callers at the same moment can get one server each, with the third
// hanging. No holder has refused then, and a caller without a strategy would see a free key as taken. Up to three more
// rounds follow, after random waits below 2, 4 and 8 ms.
//
// A round that a majority has answered is decided, even if others are missing. With one of three servers hung, 16 callers
// that polled for one key split the votes of the other two, and within two seconds one of them had an error that named
// the hung server. A strategy also goes on after a round that fewer than a majority have answered, because a server of a
// quorum is given only a fraction of a second. An error that stays still ends the obtain, if too many servers answer with
// it.
//
// Nobody waits for a slow server while holding what the fast ones have granted: in a split round, nobody else can have
// the lock until the slow answer comes. So the round waits for 5 ms at most, or four times as long as a majority
// usually takes, and not at all for a server that usually takes longer. Grants in 4 s to 16 callers, each holding the
// lock for 1 ms, without this rule and with it:
//
//	third server              polling every 5 ms   in line
//	as fast as the others     2,192  2,033         2,185  2,223
//	20 ms late                  272  1,808         1,803  1,989
//	120 ms late                  92  2,240           369  2,080
//	400 ms late                 178  1,997           102  1,986
//	hung                      1,029  1,882           954  2,255
//
// If another server holds a key that nobody will release, only the slow one can decide. So the time doubles after four
// split rounds in a row (growing fourfold with each round gave 225 grants instead of 2,114), the last round of a call
// waits in full, and so does a waiter in line, because its ticket keeps the others away. A call without a strategy
// also waits for the slow server after a refusal, when it has given back what it held: without that, eight callers in
// a loop had 7,472 goroutines at a server 400 ms late, instead of 136.
//
// A call that has landed too late for its round is followed by another. Otherwise a poller that wins a later round
// leaves the slow server to the next round of renewals, which comes too late: a lock of 1 s was never on a server 400
// ms late, in 20 of 20 cases, and one server that forgot broke exclusion.
//
// Refresh, TTL and Release wait up to 250 ms for a grant that is on its way, and no longer than they need it. When
// they asked only the majority that had granted, and one of it hung right then, a Refresh of a lock of 2 s returned
// after 2.2 s with an error.
//
// A Release frees that place like the others, at once and again after the grant: see package claim. When the grant alone
// counted, and a cleanup gave it back, Release returned nil while a majority still had the keys, in 3 of 13 schedules of
// the quorum model. When Release waited for the cleanup, it blocked for as long as that tried, which is the ttl. When it
// sent nothing before the grant, it took three fields, a goroutine and 60 lines to share what it did then.
//
// Release does not conclude from the last answers what a place has. It releases each place that has ever had the keys, they
// last for the longest ttl that was sent there, and what a Release has found lost stays lost. Finer rules saved a request
// here and there. But requests overtake each other, and four hostile readings found some twenty schedules in which such a
// rule left a key for its ttl, or made a second Release contradict the first.
//
// All Releases share the freeing of each place, also one that is late: see package claim. When each sent its own request,
// the second took for lost what the first had just freed, in 7 of 16 runs. When they took turns at every place, eight of
// them at once at a server that hung returned after 8, 16, … 64 s.
//
// What the first Release to find out has found is returned by all. Each counts the servers that have answered it, and two
// that began together decided differently in 151 of 1,500 random runs.
//
// A place that has not answered in time counts neither as one that has freed the keys nor as one without them. When it
// counted as one without them, a Release returned ErrLockNotHeld although a majority had the keys, for each late answer to
// a mend or an obtain. A mend under way changes nothing at a place that has lost no key: when such a place did not count, a
// Release that had freed a majority said that the lock was lost. A lock that was found lost stays lost, because its caller
// was told.
//
// At a server that hangs, one Refresh waits for its turn, and gives way to the next one. When all waited, each left a
// goroutine there until the Redis client gave the first one up, and a server slower than the Refreshes never caught up.
//
// A server that has missed a Refresh, or executes a mend late, keeps older metadata until the next Refresh with metadata.
// Nobody writes it again: Inspect and Attach take what most servers have, and it is of the same holder.
//
// A server whose fence counter lags may take 100 ms to raise it, as for any answer that a majority does not need. The
// servers raise side by side, and an obtain waits only as long as it lacks one of them.
//
// Close waits for calls that outlast an Obtain or a Release. Without that, a process that ended right after Close left
// a key on one of three servers in 4 of 300 runs of redislock run; with it, in none of 1,300. The price: Close takes
// its whole second while a server hangs or is down.
//
// Missing keys are acquired again right after the grant and after each round of renewals that a majority has
// confirmed. With it, one server that forgets broke no lock in 1,333 bursts; without it, there were 1,538 violations.
// It comes after the confirmation, because a lock that an operator has deleted everywhere must not come back. A place
// that refuses a mend is asked again five times, within 155 to 310 ms: mostly another caller holds the key there for a
// moment. With one try at each renewal, three refusals in a row left a lock without that server for a ttl.
//
// Fencing tokens are proposed by the client. Each server mints the larger of its counter plus one and the proposal,
// the client's time, which it clamps to its own time ± 1 s. If a majority has minted the same token, one round trip
// was enough; otherwise the counters are raised to the largest. A plain maximum of a majority gave 90 inversions in
// 6,000 schedules, and this gave none. Each round makes a new proposal, because with that of the first round, every
// grant after a second in line cost a second round trip. A server whose counter is behind has missed a grant: it is
// raised in the background, or one server that forgets, while another is away, would make the tokens fall. Across
// slots, the token is minted after all holds: before that, one caller's token could be lower than that of an earlier
// holder.
//
// A hold that joins later counts, whatever its server has minted since. The first design did not count it if the
// server had seen a larger token. But a lapsed lock takes no more holds, and while it is valid, nobody else gets a
// majority. With that rule, most locks that shared one FenceKey rested on the servers that had granted first, and kept
// locks lapsed in 3 of 10 schedules in which servers forget; without it, in none of 200.
//
// All lines have one ticket for a waiter. Otherwise two waiters can split the servers between them for ever. The first
// round proposes the client's time, so the servers mostly give the same ticket; otherwise the largest counts.
// Proposing saves 4 of 25 messages a lock (16 contenders). A waiter that gets only some places steps back: one script
// gives the keys up and puts it back into the line, so nobody overtakes it. At most one call of a waiter is under way
// to a place: two stalled places for 3 s in a simulation. A woken waiter waits up to 1 ms for the messages of the
// other servers, which a release reaches at about the same time.
//
// A waiter that cannot get further does not spin. Three conditions made the next round due at once, for ever, at 5,000
// to 14,000 tries in 4 s: a place that hangs is not asked, so what is due there stays due; a message for it stays noted;
// and a place that grants and is given back was never refused. So a place that is passed over forgets its messages, and
// its next try is an interval later. A waiter that must come back into a line makes a round due by itself, because the
// other places may never call it.
//
// Across slots, retries ask in the order of the slots. All at once is one round trip, but two callers with overlapping
// sets can refuse each other for ever. In order, the caller with the first common slot goes on, and the other has
// taken nothing that the first one needs.
//
// Calls without a caller have the values of the ctx that obtained the lock. A hook that takes a prefix from ctx would
// otherwise make a mend lock another key.
