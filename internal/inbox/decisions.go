package inbox

// # Decisions
//
// A subscription through which no messages arrive is replaced. When the name of a server leads to another one, the
// pool of connections follows, because its connections end. The subscription stays, without an error: 2 to 8
// contenders got 1 to 3 locks a second for ever, where they had got 800. A beat runs where the scripts run, and counts
// there who listens to the inbox, with PUBSUB NUMSUB. If nobody does, although the subscription was open when the beat
// was sent, no message arrives, so one such beat is enough. In the first design, waiters collected evidence instead: a
// removal without reason, or three turns in a row that no message had brought. NUMSUB in each try would have cost every
// try a command; in a beat it is one an interval. A false alarm costs one SUBSCRIBE and a try of each waiter. An alarm
// that does not help costs that 12 times in the first 20 minutes, and then once in 5 minutes. Rejected: distrust by
// each waiter beside the replacement, because the two rules would have to agree.
//
// The owner hears of a subscription once, and not each member. When an inbox begins to listen, one beat of the owner
// makes up for the messages that nobody has received; when it listens again after a gap, the owner lets its waiters try
// in order. In the first design, each member was notified, and all of them tried at the same moment.
//
// Messages for members that have left go to the owner. Such a member was still in line, and first there, so somebody
// must remove it. Only the inbox knows that it has left.
//
// A subscription lingers while a Client that has waited on it is open. The functions of the root package must leave
// nothing behind when they return, so they do not count. When the last such Client is closed, the subscription ends at
// once. A Client that was never closed makes one subscription linger, but not the next one.
//
// All names of inboxes in a process begin with the same 128 random bits. On several servers, the names of two waiters
// with the same ticket decide who is first, and all servers must decide alike. The rest of the name differs between
// Redis clients: otherwise two clients of one server would hear each other's messages, and nobody would notice a
// broken connection. Within a process, no two waiters at several places have the same ticket: if one is taken, the
// waiter takes the next, a microsecond later.
