// Package line is one waiter in line at one Redis: when it tries, what the messages of the scripts tell it, and what it was
// handed.
//
//	New ──► Admit ──► Begin ── the try ──► Granted ──► QuitInbox
//	          ▲                      └───► Refuse, Bear or TryAgain ──► Await ──┐
//	          └─────────────────────────────────────────────────────────────────┘
//	messages ──► try now · try when a ttl ends · the keys were handed over: Admit returns that
//
// The scripts keep the lines, as line.lua and docs/line.md say. This package keeps what one caller must know of them. A
// release or another script publishes messages to an inbox (package inbox), which belongs to all Clients of one Redis
// client.
//
// # Invariants
//
//   - A waiter whose messages are all lost still tries once per interval. So a message saves time, and nothing depends on
//     it.
//   - A hand-off counts only if it was made after the last try that the server has answered, and only from a time at which
//     the keys had certainly not been handed over yet: see Waiter.Since.
//   - A waiter that leaves the inbox keeps its place in the lines until a script takes it out.
//   - At most two tries with many keys are under way at a time, for all Clients of one Redis client, and two more of waiters
//     that have a place.
//
// # Decisions
//
// A waiter abandons a try that is not answered for a while, at most four of them, because each keeps its connection until
// the Redis client gives it up.
//
// The package does not know for how long a lock is valid, nor that a lock can be at several places. For those, stepback.go
// has what an obtain needs that stands in several lines with one ticket.
package line
