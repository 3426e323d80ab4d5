// Package place is a lock at one Redis, complete: it is obtained, held, refreshed, kept alive, released, and looked at.
//
//	caller ── Obtain ──► Single ── try by try ──► Attempt ── script.Obtain ──► transport ──► Redis
//	                        │ won                    │ not wanted any more
//	                        ▼                        ▼
//	                      Hold = Claim + Life + Lease    Withdraw ──► undo, in the background
//	                        │ Refresh, TTL, KeepAlive (Renewals)
//	                        └ Free ──► Claim.Free ──► answered, or pursued in the background
//
// A Place is one Redis, as the locks of one Client see it. What costs connections, goroutines or time of the server is
// shared by all Clients of one Redis client (shared.go), and kept alive by none but those who use it.
//
// What a token has at one place is a Claim: keys, until it gives them back. A Hold is the lock of a caller: a Claim, what
// its handle knows (package life), and for how long it is certainly valid (package lease). A lock at several places has a
// Claim for each of them, and asks by Attempt.TryHere. This package does not know that.
//
// # Invariants
//
//   - Whatever an obtain may have acquired belongs to a Hold or is given back. The Attempt is withdrawn
//     at the end of every obtain that made no lock.
//   - A random token is used for one grant only. So a release in the background never frees what a later try was granted.
//   - The validity counts from before the request was sent, and never from its answer.
//   - At most one release of a Claim is under way at a time: a second one joins the first.
//   - Life.Mu protects the Lease of a Hold. Claim.mu is a leaf: nothing else is locked while it is.
//
// The package does not know that other places exist, nor Options, nor the Tracer. Of go-redis it knows the type that New
// takes.
package place
