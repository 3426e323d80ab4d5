// Package several is a lock at several places, of which enough must agree: a majority of the servers of a quorum, or
// every slot that holds some of its keys.
//
//	caller ── Obtain ──► Spreading ── rounds: launch ──► parts, side by side ──► place.Attempt.TryHere
//	                        │ judge: won · refused · undecided       ▲ land
//	                        │ won                                    └── undo, step back, settle
//	                        ▼
//	                      Lock = Life + majority.Lock + for each place a standing = Claim + what may still be executed there
//	                        │ Refresh, TTL, renewals, Mend ──► ask each place ──► answer ──► majority.Lock decides
//	                        └ Free ──► Claim.Free at each place
//
// The rules of what such a lock has, and until when, are in package majority: see its doc.go, which also lists what this
// package owes it. The rules of a round are pure as well: see tally.judge and its table. The idea of locking a majority of
// independent servers is that of Redlock (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with the
// holes closed that docs/decisions.md describes.
//
// # Invariants
//
//   - What a place answers is told to the majority.Lock exactly once, also after a panic of a hook, and for a request that
//     was never sent.
//   - No lock at a place is released while the whole lock lives. What a round was granted that made no lock is given back.
//   - Locked in this order: Life.Mu, Spreading.mu, Lock.mu. Of these, only Lock.mu is locked while the mutexes of a place or
//     of health are, and never the other way round.
//   - A call returns when enough places have answered. What goes on at the others is counted in Place.Calls until it ends.
//
// Files: group.go (the places), spread*.go and verdict.go (an obtain), lock.go, standing.go and calls.go (the lock),
// refresh.go, kept.go (renewals), mend.go, look.go (what reads the servers without a lock).
//
// The package knows neither scripts' replies nor subscriptions: it uses what package place exports.
package several
