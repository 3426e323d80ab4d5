// Package several is a lock at several places, of which enough must agree: a majority of the servers of a quorum, or
// every slot that holds some of its keys.
//
//	caller ── Obtain ──► Tries ── ask: each place, side by side ──► attempt ──► place.Attempt.TryOnce
//	                       │ ▲                                         │
//	                       │ └───────────────── land ◄─────────────────┘
//	                       │ judge: won, refused or undecided
//	                       ├── refused, undecided ──► stepBack at each place, and perhaps the next round
//	                       │ won: makeLock, and later grants join
//	                       ▼
//	                     Lock = Life + majority.Lock + a record for each place (a place.Claim, and what it has answered)
//	                       │ Refresh, renewals, Mend ──► each place ──► apply ──► majority.Lock decides
//	                       │ TTL ──► each place ──► poll
//	                       └ Free ──► Claim.Free at each place ──► poll
//
// Package majority has the rules of what such a lock has, and until when. Its doc.go also lists the duties of the owner
// of a majority.Lock, which is this package. The verdict on a round is a pure function with a table: see tally.judge. The
// idea of locking a majority of independent servers is that of Redlock
// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with the holes closed that package majority
// describes.
//
// # Invariants
//
//   - Each request of the majority.Lock gets exactly one Answer, also after a panic of a hook, and if it was never sent.
//   - No key is released while the lock lives. What a round was granted is released, unless that round made the lock.
//   - A Release frees the keys at each place that has ever had them, whatever that place has answered since: an answer may
//     be older than what another request has acquired. If a place has not answered the obtain yet, the Release waits for
//     that for a moment, and frees what it grants as well. What a place grants after that is given back.
//   - The order of mutexes is: Tries.mu, that of the schedule of renewals, Life.Mu, Lock.mu, and then those of a place, of
//     health and of tickets. No goroutine locks one while it holds a later one.
//   - A call returns when enough places have answered. Obtains, mends and releases that go on at other places are counted
//     in Place.DetachedCalls until they end.
//
// Files of an obtain, from the top: tries.go, line.go and grant.go use verdict.go and attempt.go. Files of a lock:
// refresh.go, ttl.go, release.go, kept.go and mend.go use lock.go, which has apply, and poll.go. look.go reads the servers
// without a lock. All use group.go and sidebyside.go.
//
// The package does not know what a script replies, nor how messages arrive, nor Options, nor the Tracer.
//
// decisions.go gives the reasons of what could be otherwise.
package several
