package inbox

// # Decisions
//
// A subscription through which no messages arrive is replaced. When the name of a server leads to another one, the
// pool of connections follows, because its connections end. The subscription stays, without an error: 2 to 8
// contenders got 1 to 3 locks a second for ever, where they had got 800. The server cannot tell, so the evidence comes
// from the waiters: a removal without reason counts at once, and turns that waiters find out by themselves count three
// in a row. A turn counts only if nothing but a message could have brought it, and any message to the inbox ends the
// row, so a late message or a lock that ends with its ttl is no evidence. A false alarm costs one SUBSCRIBE and a try
// of each waiter. An alarm that does not help costs that 12 times in the first 20 minutes, and then once in 5 minutes.
// Rejected: distrust by each waiter beside the replacement, because the two rules would have to agree; and PUBSUB
// NUMSUB in each try, which costs every try a command and says nothing on a Cluster.
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
