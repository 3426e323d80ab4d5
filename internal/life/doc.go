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
// A Bearer bears the lock: a hold at one Redis, or a lock at several places. It says until when the lock is valid, and
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
// # Decisions
//
// A kept context wraps one of package context, so contexts that are derived from it need no goroutine. Its Err, Done
// and Value check the clocks first; context.Cause goes through Value. When replies stayed away, the context ended at
// Until to the nanosecond of fake time, with the key still there, in 1,000 of 1,000 runs at ttls from 10 ms to 30 s. A
// process that was stopped for 1.5 s found all of its 1,000 contexts, at ttls of 1 s, ended at the first look.
//
// The cause of a kept context tells a loss from a lapse. After a loss it matches ErrLockNotHeld. If the validity ended
// without a renewal, it matches ErrLapsed and wraps the error of Redis: then nobody knows who holds the keys.
// ErrLapsed is a sentinel of its own because otherwise only the text would tell a lapse from a deadline of the caller.
// After Release or stop, the cause is context.Canceled.
//
// A lapse is reported in a goroutine of its own. A Tracer may then ask Redis what has become of the keys, and Redis is
// often down at that moment. In the goroutine that ends the contexts, it would keep the contexts of other locks from
// ending at their Until.
//
// After Release, Refresh fails without asking Redis: the holder has given up the lock, whatever the answer to the
// release was.
package life
