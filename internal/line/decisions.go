package line

// # Decisions
//
// One mark an inbox, and one beat an interval. In the first design, each waiter had a mark of its own in each line,
// and each of its tries renewed that. So waiting cost waiters × keys: on a slow machine, 3,000 × 1 took 14 to 19 % of
// the server and 10,000 × 1 took 30 %, and a stopped process with 400 × 500 was passed over after 52 s, because the
// interval had to grow with the line. Waiters of a process live and die together, so the mark of their inbox says as
// much. The idea is the session of ZooKeeper and etcd.
//
// Tries are no signs of life. If a try could stand for a beat, liveness would depend on how often a waiter tries, and
// so on its type, on its RetryStrategy and on messages. With beats alone there is one kind of liveness: also for
// quorums, slots, a Ring and types without Subscribe. A try that is refused writes the mark nevertheless, because it
// must be there from the first entry on.
//
// A script that makes a mark says so, and a script that removes an entry of a dead inbox removes the mark. So a
// missing mark is the only sign that a session needs: without one, nothing was removed. The session knows when the
// server ran each waiter's last try, so a mark that was made at some time calls back exactly those who stood in that
// line before. Nobody lists entries or counts them. The reply and the message both say in which lines marks were made,
// because either can be lost. If both are, the net remains. When they did not name the lines, each newcomer whose own
// key nobody else wanted called back all who shared another key with it. Entry and mark have a ZADD each: one for both
// does not say which of them was new, and then 2,000 waiters whose line was lost made 21,013 tries, and not 2,000.
//
// A beat waits behind no try. In the prototype, a beat waited for a connection behind 10,000 first tries. That
// took 11 s, the line expired, all tried again, and 22 locks were granted in 100 s. For the same reason, the life grows with
// the time that the last beat took, and waiters come back 200 at a time, lowest tickets first: that keeps the server
// busy, no queue of calls grows, and those who are next need not wait for those who are not.
//
// The net is 30 s at least. Messages, beats, ttls and missing marks wake a waiter in all known cases; the net is for
// unknown ones, and for two lost messages. A try each second cost 10,000 × 1 about 30 % of the server. So where many wait
// for many keys, the net is as long as it takes until all these tries cost a four hundredth of the server's time. It is up
// to a quarter earlier at random, so waiters that were refused together do not try together. The first in line does not
// depend on it, because each beat says whether its keys are free. Nor does a hand-off: its validity counts from the last
// answered beat. From a try 30 s ago, the 1 % by which clocks may differ would cost a third of a second.
//
// The interval grows only with the lines of the inbox, by 200 µs a line: about twenty times what the server needs for
// one. What many inboxes cost together is their number, and nobody knows that. Lines are prolonged by each third beat
// only, because PEXPIRE costs as much as the mark. A line lasts 7/3 of a life, so that it still outlasts the marks by
// an interval.
//
// A beat returns when the mark of another inbox ends whose waiter is first. The next beat is due by then. Otherwise a
// dead waiter would stay up to an interval longer.
//
// Waiters that have left may stay in line: a try that was abandoned may be executed late. No search looks for them.
// When one is first, a message or a beat names it, nobody knows its number, and the next beat removes it. Before that,
// it is in nobody's way.
//
// Rejected: measuring what tries cost, which only lengthens the interval: with 400 × 500, a dead waiter would be
// passed over after 80 to 100 s, and TIME stands still in scripts of Valkey 9.1. One script with the marks of all
// waiters: it helps with waiters × 1 only. A beat that goes the way of the tries: see above.
//
// The first refused try takes a position. In the first design it took none while the inbox was not open, and the
// second try took it after the subscription. But a beat follows a new subscription anyway, because messages may have
// been lost before it. So waiting would gain nothing, lose the order of arrival, and block an obtain on SUBSCRIBE.
//
// The waiter carries its ticket and sends it with every try. So its turn survives FLUSHALL, a restart, 3 s of silence
// and a jump of the clock, and a waiter that is passed over loses only time. The script searches the lines for a
// ticket only if the call has none, because the reply to an earlier try may have been lost.
//
// An entry has all that a hand-off needs, as one member of the line: how many keys the waiter wants, its ttl, its
// fence key, and the value of its keys. A second key for each line, or a hash, would add a name to every call of every
// caller. An entry never changes. Metadata is cut at 1 KiB, because each line of a waiter has a copy.
//
// The mark packs the deadline, the life of the waiters and whether the subscription is open into one score: 41, 11 and
// 1 of the 53 bits that a double holds exactly. So a beat is one ZADD for each line. The scripts need the life to tell
// a far deadline from a clock that was set back.
//
// A message without a receiver shows a death. PUBLISH counts receivers anyway, and a pub/sub connection closes as soon
// as its process ends. PUBSUB NUMSUB costs one more command and one more right, so only beats ask it, and a hand-off
// before it gives the keys. Redis replicates messages: a waiter whose subscription stayed on a demoted master believed
// a grant that the new master, which counted no receiver, had taken back. A Cluster node counts only its own
// connections, and slots move. So the marks of a Cluster say that the subscription is open once a beat has found it at
// that node. Since then, releases hand keys over on a Cluster as well.
//
// A waiter that receives nothing is removed only if there is somebody else to serve. It carries its ticket, so it is
// first again when its session misses the mark. A mark "skipped" would have to be undone, and each later script would
// meet it again. When all waiters of a Client had lost their connection and were removed, they came back in the order
// of their tries.
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
// If all keys are free, it looks at every line. A waiter with others ahead is told no ttl: whatever ends, it is not
// its turn.
//
// The names of the lines travel in every call, and one EXISTS covers all lines. This is what callers that never wait
// pay. In the first version, a pair took 1.03 to 1.04 of the time without lines for 1 key, 1.05 to 1.07 for 8 keys and
// 1.22 to 1.25 for 512; the EXISTS is 0.5 µs of that per script, and 45 µs for 512 keys. A common marker ("somebody
// waits") would spare the names, but it would have to be one declared key, in the slot and under the ACL pattern of
// any of the keys: no such name exists. A lock makes the names of its lines once, in one piece. The keys a and a{a}
// would have the same line, and a release of one would hand it to a waiter for the other, so nobody can wait for a key
// like a{a}.
//
// obtain.lua and release.lua begin with the usual case: one key, one line, no waiter. These 12 lines repeat what the
// rest does with more locals and more commands, and save 0.8 of the 10.3 µs that a pair takes the server. Rejected:
// leaving out the EXISTS, which is under 3 % of the time of a caller.
//
// A waiter whose mark has been silent for two of three intervals is probably dead, because a live session beats in
// each. A release wakes it and hands it nothing. Nobody else is woken: the sessions behind it know when its mark ends.
// In the first design, a release also woke a waiter behind it, which learned that by its try.
//
// A waiter abandons a try after a second without an answer, and sends another one: go-redis waits 5 s for a swallowed
// reply, and meanwhile it may be the waiter's turn. It abandons at most four, because each keeps a connection. Where
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
// After a leave was given up, a script that makes a mark first removes the entries of its inbox. A mark that has ended
// five seconds ago is made anew. A leave without an answer is given up ten seconds after the end of the mark. Before
// there was this rule, when the process was back, a beat or a try for its other waiters made the one that had left live
// again: a release handed it the keys, which then blocked all others for a ttl. Rejected: to pursue a leave for longer,
// which needs a goroutine for each, and to remember such waiters, of whom there may be thousands; to remove only where
// a mark had ended, because whoever passes over the dead removes the mark, and leaves those who stand further behind;
// to remove always, because then 8,000 processes with a waiter each took 9.8 s of the server's time to enter a line,
// and not 0.24; to remove once a beat has failed, because the last waiter to leave a line leaves nobody there who
// beats. Without the five seconds, all waiters would have to come back when Redis has hung for three.
//
// A leave reports that Redis refuses all writes. When it did not, 50 waiters that left during a failover of 1.5 s stayed
// in line, because the beats for another one kept their mark, and beats removed one of them each second.
//
// Those who come back and fail are told again, but nobody is told before a beat is answered. When each of them tried once
// a second instead, 5,000 sent 8,000 to 13,000 tries a second while the memory of Redis was full. When each of them rested
// for as long as a round of all takes, 1,330 of 10,000 were not yet back after 32 s, and others passed them over.
//
// After one failed call, the next beat comes at once, and only a beat that was answered as a whole makes that happen
// again. When each error counted as the first one, one slot of a Cluster without a node made ten beats a second in all
// lines. A message about a mark calls back only those in its own lines. When one of a waiter that nobody remembered
// called all back, 2,400 short waits a second made 1,000 others try each second, and so the messages came later.
//
// No two inboxes of a process have one name. When a replica took over on a Cluster, the waiters of its node had a session
// of their own, with the name of the old one, because that name was the first whose channel belonged to the node. Both
// counted their waiters from 1, and a grant to one was taken by the other for another key.
//
// What many waiters cost, on two cores, in four processes (the last two rows: one and four), is in docs/line.md. The marks
// alone, without a look who is first, are two fifths of a beat in 10,000 lines. To look in each second beat only was
// rejected: it would save a quarter there, and then a waiter whose message is lost waits for two intervals.
