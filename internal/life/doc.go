// Package life is what a handle knows of its lock, wherever that is held: whether it is still held, for which contexts it is
// kept alive, and how it ended.
//
//	            Refresh confirmed: Revive
//	        ┌──────────────────────────────┐
//	        ▼                              │
//	held, valid ── FoundLost, Lose ──► found lost ──┐
//	   │    └───── the time passes ──► lapsed ──────┤
//	   └────────── Release ────────────────────────►┴─► released, for ever
//
// Whenever a lock is no longer valid, the contexts for which it was kept alive end, with the reason as their cause; and the
// owner of the Client is told once of the end of each hold.
//
// A Bearer bears the lock: a hold at one Redis, or holds at several places. It says until when it is valid, and renews it.
//
// # Invariants
//
//   - A kept context is exact: each call of its Err, Done or Value checks the clocks. So nobody who asks sees a lock that
//     has lapsed as held, even if no timer has run.
//   - Each end of a hold is told at most once, and a Release that follows a loss does not tell another one.
//   - Events are told, and contexts ended, while Life.Mu is not locked: both run code of the caller.
//   - A released lock stays released.
//
// The package knows neither Redis nor requests. It does not decide for how long a lock is valid.
package life
