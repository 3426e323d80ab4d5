// Package deadlock finds out whether a waiter in line waits in a circle: whether those who hold what it wants wait for what
// its caller holds, directly or over others.
//
// # Who waits for whom
//
// A waiter waits for the owner of a lock if its key is held by that lock, and the waiter could not hold it beside that. It
// also waits for those ahead of it in line. An owner is known only while it waits: its entry in line names what its caller
// holds. So a search goes against the arrows. It reads the lines of what the caller holds, then those of what the waiters
// found there hold or want, and so on.
//
// Of a key that several may hold, a waiter waits only for as many holders as leave it no room. If one of those whom nothing
// blocks could make room, it does not count as blocked.
//
// # Who gives up
//
// The member of a circle that came last: its ticket is the highest. So a search looks only at waiters with lower tickets,
// and of each circle one member finds it. That member holds something: who waits for it does so for what it holds, because
// nobody waits behind a higher ticket. And it is the one that has closed the circle, because what a waiter wants and what
// its caller holds do not change while it waits.
//
// # Why no circle is a false one
//
// A search reads one line after the other. Each of its arrows was there at some time, but not all at one time. So Search
// reads everything once more, after a pause, and looks for a circle in what both readings have in common. A waiter with the
// same entry has waited all the time between the two, and so has the lock with the same token held its keys. So between the
// two readings all arrows were there at the same time. Nobody in such a circle can go on, except that somebody else
// releases what its caller holds: another goroutine, or another caller with the same token.
//
// The token of a lock is not enough to know who owns a key. Callers may choose one token for locks on different keys, so an
// entry has to name the key as well. Of a lock with more keys than an entry names, Search believes that it has the others
// only if the library has made its token.
//
// # What a search leaves
//
// While it looks, it leaves a note beside each key that the caller holds and somebody waits for: for which keys the caller
// waits. So those who wait for the caller can say that. Nothing else relies on a note, and it ends after six seconds.
//
// # What a search takes
//
// A line of 1,000 waiters may have 500,000 arrows. So no arrow is written down: a queue says of each waiter up to where in
// the line its arrows reach, and a search along the arrows passes each place of the line once.
package deadlock
