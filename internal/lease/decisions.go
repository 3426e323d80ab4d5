package lease

// # Decisions
//
// The margin is 1 % of the ttl and 1 ms. Redis keeps whole milliseconds. Quartz clocks are accurate to 0.01 %, and NTP
// slews by 0.05 %; the rest is room for virtual machines.
//
// A third clock is asked only when the other two disagree, so nobody else pays for it. Before, a clock that was set forward
// by an hour ended all kept locks at once, although Redis had them. CLOCK_BOOTTIME and its like say for how long the machine
// was suspended since the process began, and not when; so after a suspend a step may still end a lock. Package
// golang.org/x/sys is only for macOS, where the system call has no other stable way: on Linux, its compilation would cost
// more than that of this library.
//
// Refreshes take turns, but do not wait for a lost one. With one refresh on the wire at a time, a caller that
// refreshed every 150 ms under a ctx of 150 ms lost a healthy lock of 3 s: a single lost reply blocked all refreshes
// for go-redis' ReadTimeout (4.95 s). So a refresh waits for an abandoned one only if that one was for a shorter ttl.
// Any other late refresh can only lengthen the ttl.
//
// A Refresh that does not shorten the ttl, as far as the handle knows, is sent like a renewal: it leaves a key alone that
// lasts longer. Then nothing is in doubt when it is executed late, so another can be sent at once if its connection has
// died. It costs that a handle no longer shortens what another handle has prolonged meanwhile.
//
// An unanswered short refresh limits the handle. Redis may execute it after a longer one that has succeeded, and
// cannot tell the two apart without a second value in the key. So Until assumes the worse case.
//
// A refresh promises no more than those beside it. The server may execute an abandoned refresh last and yet answer it
// first. So each refresh remembers the least ttl of all that were under way beside it, even if they have ended since.
// A refresh that was never sent gives back the validity that it took when it began, but only if no other refresh has
// begun since, and never after a loss. Without each of these three rules, two callers had a valid lock. The random
// model (TestModel) found the first of them once in 37,000 runs, so it makes 40,000.
//
// A renewal moves Until only if no Refresh came between. Otherwise nobody knows which of the two Redis executed first,
// so Until stays as the Refresh has left it.
//
// An unanswered renewal is followed by another after a quarter of the validity that is left, but no sooner than 50 ms,
// or than a fortieth of the validity (at least 1 ms) if that is less. With 50 ms for every ttl, one lost reply lost a
// lock of 50 ms in 10 of 10 runs. Now, 200 locks of 20 to 420 ms survived three losses of replies in a row, each for
// up to 0.8 of the remaining validity. With replies lost for a random part of the remaining validity, at ttls from 1
// to 21 s, no lock was lost in 743 of 743 runs in which that part was under 95 %.
