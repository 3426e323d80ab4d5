// Package line is the waiters in line at one Redis: what keeps them live, when each of them tries, what the messages of the
// scripts mean for it, and which keys were handed to it.
//
//	New ──► Admit ──► Begin ── the try ──► QuitInbox (granted)
//	          ▲                      └───► Refuse, Bear or TryAgain ──► Await ──┐
//	          └─────────────────────────────────────────────────────────────────┘
//	messages ──► try now · try when a ttl ends · the keys were handed over: Admit returns the hand-off
//
//	Refuse ──► session.join ──► beats: one an interval, for all lines of the session
//	              ▲ the next try      │ first, and the keys are free ──► remind: try
//	              └───────────────────┴ the mark is missing ──► called ──► told, 200 at a time: try
//
// The scripts keep the lines, as internal/script/line.lua and docs/line.md say. This package keeps what callers must know of
// them. Scripts publish messages to an inbox (package inbox), which all Clients of one Redis client share. A session owns an
// inbox, and keeps the waiters of that inbox live with beats: session.go says who stands in line and who must come back,
// beat.go sends the beats, and answers.go says what their answers mean.
//
// # Invariants
//
//   - A session beats as long as one of its waiters stands in line. A try of a waiter is no substitute for a beat.
//   - A beat waits for no try, and no try waits for a beat.
//   - If the mark of the session was made, or was missing, after a waiter's last try in some line, that waiter tries again.
//   - A waiter whose keys are free and that has nobody ahead tries within an interval, even if all messages are lost. A
//     waiter that nothing wakes tries after 30 s, or later where many wait. So a message only saves time.
//   - At most atOnce waiters that were called back have a try that has not ended. Those with the lowest tickets come first.
//   - A hand-off counts only if the server made it after the last try that it has answered. Its validity counts from a time
//     before the keys were handed over: see Waiter.Since.
//   - A waiter that leaves the inbox keeps its position in the lines until a script takes it out.
//   - All Clients of one Redis client together have at most two tries with many keys under way, and two more of waiters that
//     have a position.
//   - The order of mutexes is: Inbox.mu, session.mu, Waiter.mu. The inbox calls its owner, which is the session, while it
//     holds Inbox.mu.
//
// The package does not know for how long a lock is valid, nor that there are other places. An obtain that has several
// waiters with one ticket needs the methods of stepback.go.
//
// decisions.go gives the reasons of what could be otherwise.
package line
