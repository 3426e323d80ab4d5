// Package line is one waiter in line at one Redis: when it tries, what the messages of the scripts mean for it, and which
// keys were handed to it.
//
//	New ──► Admit ──► Begin ── the try ──► Granted ──► QuitInbox
//	          ▲                      └───► Refuse, Bear or TryAgain ──► Await ──┐
//	          └─────────────────────────────────────────────────────────────────┘
//	messages ──► try now · try when a ttl ends · the keys were handed over: Admit returns the hand-off
//
// The scripts keep the lines, as internal/script/line.lua and docs/line.md say. This package keeps what one caller must know
// of them. Scripts publish messages to an inbox (package inbox), which all Clients of one Redis client share.
//
// # Invariants
//
//   - A waiter whose messages are all lost still tries once per interval. So a message only saves time.
//   - A hand-off counts only if the server made it after the last try that it has answered. Its validity counts from a time
//     before the keys were handed over: see Waiter.Since.
//   - A waiter that leaves the inbox keeps its position in the lines until a script takes it out.
//   - All Clients of one Redis client together have at most two tries with many keys under way, and two more of waiters that
//     have a position.
//
// The package does not know for how long a lock is valid, nor that there are other places. An obtain that has several
// waiters with one ticket needs the methods of stepback.go.
//
// decisions.go gives the reasons of what could be otherwise.
package line
