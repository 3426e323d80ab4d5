package line

// # Decisions
//
// The first refused try takes a position. In the first design it took none while the inbox was not open, and the second
// try took it after the subscription. But a new subscription makes all waiters try anyway, because messages may have
// been lost before it. So waiting would gain nothing, lose the order of arrival, and block an obtain on SUBSCRIBE.
//
// The waiter carries its ticket and sends it with every try. So its turn survives FLUSHALL, a restart, 3 s of silence
// and a jump of the clock, and a waiter that is passed over loses only time. The script searches the lines for a
// ticket only if the call has none, because the reply to an earlier try may have been lost.
//
// An entry has all that a hand-off needs, as one member of the line: how many keys the waiter wants, its ttl, its
// fence key, and the value of its keys. A second key for each line, or a hash, would add a name to every call of every
// caller. An entry never changes, so a sign of life writes only the mark, 8 bytes of score. Metadata is cut at 1 KiB,
// because each line of a waiter has a copy.
//
// The mark packs the deadline, the life of the waiter and whether its subscription is open into one score: 41, 11 and
// 1 of the 53 bits that a double holds exactly. So a sign of life is one ZADD per key. The script needs the life to
// tell a far deadline from a clock that was set back.
//
// The refusing script sets the interval: ten times what one try of each waiter costs, taken as 32 µs plus 8 µs per
// key. This is a constant, not a measurement in the script: os.clock does not exist everywhere, counts other threads,
// and a model could not predict it.
//
// A message without a receiver shows a death. PUBLISH counts receivers anyway, and a pub/sub connection closes as soon
// as its process ends. PUBSUB NUMSUB costs one more command and one more right, so only a hand-off asks it, before it
// gives the keys. Redis replicates messages: a waiter whose subscription stayed on a demoted master believed a grant
// that the new master, which counted no receiver, had taken back. A Cluster node counts only its own connections, so
// only a waiter with a plain client says that its subscription is open. If such a waiter was removed without reason,
// no waiter of its inbox says so until the inbox has subscribed again.
//
// A waiter that receives nothing is removed only if there is somebody else to serve. It carries its ticket, so it is
// first again at its next sign of life. A mark "skipped" would have to be undone, and each later script would meet it
// again. When all waiters of a Client had lost their connection and were removed, they came back in the order of their
// tries.
//
// First the keys, then the message, then the removal from the line. If a command fails before the message, no waiter
// is told of keys that it does not have. A waiter that stayed in line after a hand-off could be handed the lock again
// after its release, so the script tests beforehand whether it may remove at all.
//
// Leaving is a release with the waiter's token. A hand-off or an abandoned try may have taken the keys, a position, or
// both. One script undoes all of it and serves the next waiter. With a custom token it does not touch the keys: they
// may belong to an earlier hold, and such a token is never handed any.
//
// A waiter waits for the answer to a try under way before it accepts a hand-off, because the try finds the keys
// granted. Otherwise a second release would have to follow the first, in case the try arrives after it.
//
// Large tries take turns: at most two of 256 keys or more of waiters that want a position, and two of waiters that have
// one. Otherwise the tries of forty waiters for 10,000 keys wait for each other on the server for longer than the
// ReadTimeout, and are resent.
//
// If a key is blocked, the script looks for waiters ahead in one such line only: those ahead will take that key first.
// If all keys are free, it looks at every line. If the waiter ahead is late, it also looks at the one right before the
// caller, so a thousand waiters behind a dead one do not all come back at the same moment.
//
// The names of the lines travel in every call, and one EXISTS covers all lines. This is what callers that never wait
// pay. In the first version, a pair took 1.03 to 1.04 of the time without lines for 1 key, 1.05 to 1.07 for 8 keys and
// 1.22 to 1.25 for 512; the EXISTS is 0.5 µs of that per script, and 45 µs for 512 keys. A common marker ("somebody
// waits") would spare the names, but it would have to be one declared key, in the slot and under the ACL pattern of
// any of the keys: no such name exists. A lock makes the names of its lines once, in one piece. The keys a and a{a}
// would have the same line, and a release of one would hand it to a waiter for the other, so nobody can wait for a key
// like a{a}.
//
// A waiter that has been silent for two of three intervals is probably dead, because a live one tries in each. A
// release then also wakes one waiter behind it, which learns when the first will certainly count as dead. With 5,000
// late waiters, waking all of them took 0.43 s, and now a release takes 0.09 ms.
//
// A waiter abandons a try after a second without an answer, and sends another one: go-redis waits 5 s for a swallowed
// reply, and the waiter counts as dead after 3 s. It abandons at most four, because each keeps a connection. Where
// answers take long, it waits four times as long as they usually take.
//
// RetryStrategy sets the pace where no message can come: with a Ring, a type without Subscribe, or a refused or broken
// subscription. Elsewhere polling would only add cost. A strategy that stops does not end a wait, which only ctx
// limits.
//
// In line, only an error that does not pass ends the obtain. A first try without a deadline is the exception: a wrong
// address would last for ever, so any error ends it. With a deadline, the caller has said how long a failover may
// take. Before the first refusal there is no position to keep, so the waiter pauses for 50 ms, then twice as long each
// time, up to an interval, and up to a quarter less at random. A quorum gives each server a fraction of a second, so
// there a first try without a deadline lasts 2 s: one pause of the process would end a shorter one. Polling stays as
// in bsm/redislock: an error ends it.
//
// On a Cluster, each node with keys for which somebody waits has a subscription. Messages from another node take the
// cluster bus, where Redis leaves Nagle's algorithm on: when a node publishes twice within a moment, the second
// message waits up to 40 ms. Of 300 pairs of messages, 100 took more than 20 ms to a subscriber at another node, and 1
// to one at the same node. Each inbox has a random name whose channel is in one of its node's slots. Sixteen
// contenders for one key, 1 ms holds, three masters: 720 locks/s instead of 45 to 290; for overlapping sets across
// slots, 590 instead of 170.
//
// What many waiters cost (-bench BenchmarkLine -benchtime 1x), behind a lock of 10 s, beside an unrelated kept lock
// with a ttl of 2 s. All were served in order, and no lock was lost:
//
//	waiters × keys   all in line   server while they wait   all served   server per lock
//	400 × 500        0.8 s         6.2 %                    1.7 s        3.9 ms
//	100 × 5,000      3.4 s         6.6 %                    5.7 s        53 ms
//	40 × 10,000      2.7 s         4.8 %                    4.2 s        105 ms
//	3,000 × 1        0.2 s         4.5 %                    0.15 s       28 µs
//	10,000 × 1       0.3 s         6.9 %                    0.44 s       27 µs
//
// When real processes were killed, in ten runs under -race, the first in line got the lock of a dead holder at most 4
// ms after the end of the ttl; the waiter behind a dead waiter got it at most 3 ms after the release. Restarts and
// FLUSHALL delayed a waiter by at most 1.0 s, an outage of seconds by up to 2 s after its end, a forbidden channel by
// 1.0 s, and the move of a Cluster's slot by 46 ms.
