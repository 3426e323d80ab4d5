// Package tree finds out who waits for whom, and which callers wait for each other in a circle. It makes a graph of what
// Inspect has found:
//
//	Lock ── Hold ──► Key       a lock holds a key
//	Waiter ── Place ──► Key    a waiter stands in the line of a key
//	Waiter ── Holds ──► Lock   the caller of a waiter holds a lock meanwhile
//
// The graph is shown as trees: below a lock the waiters in the lines of its keys, below a waiter the locks that its caller
// holds, and so on. Build chooses the roots. Most of them are locks whose callers wait for nothing: these can go on, and all
// below wait for them.
//
// # Who is stuck
//
// A waiter is stuck if it cannot be served, whatever the callers do that are not stuck: whether they release, are served or
// give up. So a waiter for a permit is not stuck while somebody who can go on has another permit of the key. stuck.go begins
// with all waiters, and takes out, until nothing changes, those who get all their keys when the others have gone. A lock is
// stuck if a waiter of its caller is.
//
// # Circles
//
// A circle is a round trip among what is stuck: each waiter waits for a key that the caller of the next one holds, or is
// behind the next one in a line. Many circles can overlap, so circles.go does not list all: each stuck lock that is in a
// circle is in one that is listed, a shortest one.
//
// A waiter that wants keys at several places may hold some of them already. That leads to no circle, because the library
// steps back by itself.
//
// Build is pure. Nothing in this package is safe for concurrent use.
package tree
