// Package life is what a handle knows of its lock, wherever the keys are: whether the lock is still held, for which contexts
// it is kept alive, and how it ended.
//
//	            Refresh confirmed: Revive
//	        ┌──────────────────────────────┐
//	        ▼                              │
//	held, valid ── FoundLost, Lose ──► found lost ──┐
//	   │    └───── the time passes ──► lapsed ──────┤
//	   └────────── Release ────────────────────────►┴─► released, for ever
//
// When a lock is no longer valid, the contexts for which it was kept alive end, and their cause is the reason. The owner of
// the Client gets one event about the end of each hold.
//
// A Life belongs to an Owner: a lock at one Redis, or a lock at several places. It says until when the lock is valid, and
// renews it.
//
// # Invariants
//
//   - A kept context is exact: each call of its Err, Done or Value checks the clocks. So a caller who asks never sees a
//     lapsed lock as held, even if no timer has run.
//   - Each end of a hold is reported at most once. A Release that follows a loss does not report another loss.
//   - Events are sent, and contexts ended, while Life.Mu is not locked, because both run code of the caller.
//   - A released lock stays released.
//
// The package knows neither Redis nor requests. It does not decide for how long a lock is valid.
//
// decisions.go gives the reasons of what could be otherwise.
package life
