package claim

// # Decisions
//
// What gives a lock up goes on until the ttl is over. The tries end with a success, with an error that does not pass,
// or with the ttl; nothing that the caller did matters. When only a ctx that ended during Release started them, keys
// blocked everybody for 9m55s of 10 minutes after one second without replicas, and for 591 of 600 s after a failover.
//
// There is room for 10,000 freeings per Redis client. With room for 1,000, a Client that released 10,000 locks during
// 3 s without replicas left 9,000 behind. With 10,000, all were free 4 s after the outage, at one goroutine for each.
//
// A claim has one freeing, and next says what it does. Before, Release, its pursuit in the background, the sweep after an
// obtain, that after a resent obtain, that after a refresh under a guard, the leaving of a line, the giving back of a late
// grant and the second Release each had a way of their own, in three packages: eleven entrances, about 30 function names,
// and every defect of two rounds of hostile reading.
//
// All Releases of a lock share what the one freeing finds. When a second one sent its own request, it took for lost what
// the first had just freed. A Release that begins when another one has returned the finding sends nothing: it returns
// that the lock is lost, and cannot free what somebody else has taken with the same token since.
//
// A release that finds nothing while asks are under way decides nothing for 250 ms, because it may have overtaken the
// lock's obtain at a server of a quorum: then the next release finds the keys, and the lock was not lost. What an earlier
// release without a reply may have freed stays in doubt until then: else a lock counted as lost that its own Release had
// freed. Where another round follows, that one decides: an ask has taken keys meanwhile.
//
// What an unanswered release may have done is unknown, unless the keys were known to be there when it was sent, or were
// taken since. A place says until when they were known: its hold's own end. Three flags that guessed this from what the
// last round had found were wrong in six schedules of one reading: each took for freed, or for lost, what nobody knew. A
// lock at one place takes such keys for lost, because only a release after Until can be in doubt there.
//
// A call that was copied because its connection had died says nothing alone: its copy finds nothing if it was executed, and
// also if the keys were lost before. So whatever ends the round waits up to a second for the lost calls.
//
// Whatever a claim still sends is in the Ledger before anybody but the caller of the first release can know of it. When
// only the background was, who joined that release and left, or was told its finding, could obtain with the same token, and
// lost the new lock to the next release of the old one.
//
// The phase is all that the owner of a freeing looks at. When next also returned what to do, and a claim had a channel for
// each kind of news, five mends of one reading concerned news that came while nobody, or somebody else, waited for it.
//
// What is taken by an ask that ends without an answer is freed at once, and once more a second later. With the second
// release alone, a key whose obtain was given up was locked for a second more.
//
// An obtain with a custom token waits for that token's own earlier calls, under its ctx. Before, it superseded them: it
// dropped cleanups, took over what they had to release, and other cleanups took over the keys that it did not want. That
// was 160 lines and nine fields, was wrong four times, and saved a wait of a few milliseconds. Then it hurried their
// pauses, every 50 ms, which took 60 lines more and saved a wait of up to 4 s after an outage. It does not wait for a
// Refresh that begins meanwhile, because two goroutines that refreshed a lock in turn kept it waiting until its ctx
// ended.
