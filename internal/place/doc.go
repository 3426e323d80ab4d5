// Package place is a lock at one Redis, complete: it obtains, holds, refreshes, keeps, releases and inspects the lock.
//
//	the caller ── Tries ── try by try ──► Attempt ──► script ──► transport ──► Redis
//	                 │ a try was granted     │ the obtain ended without a lock
//	                 ▼                       ▼
//	               Lock = Hold + Life + Lease     Withdraw ──► claim, in the background
//	                 │ Refresh, TTL; Keeper while the lock is kept
//	                 └ Free ──► claim
//
// A Place is one Redis, as the locks of one Client see it. All Clients of one Redis client share what costs connections,
// goroutines or time of the server (resources.go). Only their users keep these things alive.
//
// A Hold is what a token has at a place: keys, until package claim has freed them. A Lock is the lock of a caller: a Hold,
// what its handle knows (package life), and for how long it is certainly valid (package lease). A caller that does without
// Tries and Lock makes single tries with Attempt.TryOnce, and keeps a Hold itself.
//
// # Invariants
//
//   - What an obtain may have acquired belongs to a Lock or is given back. Its Attempt says what that is. Every obtain
//     that ends without a lock withdraws its Attempt.
//   - A random token is used for one grant only. So a release in the background never frees what a later try was granted.
//   - The validity counts from before the request was sent, and never from its answer.
//   - Life.Mu protects the Lease of a Lock.
//
// The package does not know that other places exist. It knows neither Options nor the Tracer, and of go-redis only the type
// that New takes.
//
// decisions.go gives the reasons of what could be otherwise.
package place
