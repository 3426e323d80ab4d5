package place

// # Decisions
//
// A Refresh does not outlive its lock. With 400 ms left, a Refresh without a deadline on a hung server returned only
// after go-redis' 5 s. Now it returns ErrLapsed 250 ms after Until, which is enough for an answer from another
// continent. A Refresh that waits for its turn waits until Until, and is sent then; Until promises no more than the
// refresh ahead of it may leave. With context.Background() this costs a goroutine, a timer and ten allocations: 20.7
// instead of 12.8 µs for one key.
//
// An obtain waits 2 ms past the end of ctx for the answer to its call, which a healthy server gives by then. Without
// an answer, the obtain reports how the last sending failed, or "no answer from Redis". Otherwise an outage would look
// like a lock that another holds.
//
// A Release whose ctx has already ended waits for up to a second, and at least 20 ms even past Until. Otherwise nobody
// would learn whether the lock was lost, and a healthy server answers within 1 ms.
//
// After a late grant, the obtain continues with a new random token. Then the late grant can be released in the
// background, and no release can hit the next grant. A custom token cannot change, so its release must be answered
// before the next try.
//
// The second late grant in a row ends the obtain. A ttl of 40 ms and answers that take 60 ms can never work, and each
// try keeps the keys from others. One late answer says little, because the process or the server may have paused; a
// refusal in between that came in time shows that answers can be fast enough. The time in which a connection is made
// does not count. The error is no bare ErrNotObtained, because nobody refused.
//
// A lapsed lock whose obtain was sent twice stays lapsed. An unanswered request of its own obtain may acquire the keys
// after another holder has come and gone, and a Refresh cannot tell: it returned nil, with a fencing token that was
// too low. Now it sends nothing, so that the keys expire.
//
// Explain asks with a script of its own instead of a longer reply of obtain.lua, so callers without it pay nothing.
// The question costs one round trip and 4.5 µs of server time for one key, 5.9 for 8, 82 for 512. Only the first and
// the last refusal ask. The price: the holder may change between the refusal and the question; if nothing blocks the
// call at the end, the error says what blocked it at first. The question has 250 ms, and 20 ms once ctx has ended,
// because only the end of ctx shows which refusal is the last.
//
// What costs connections, goroutines or time of the server belongs to the Redis client, not to the Client, because
// people make a Client for each request. With an inbox for each Client, 20 callers that gave up their waits after 20
// ms had 7,792 connections and as many goroutines after 8 s; now 42. Shared are: inboxes, slots for large tries,
// renewals, pipelines and their counts, goroutines that send, what is known of how the server answers, and the room for
// freeings. Each Client has its own Tracer, its own Close with the waits and contexts that this ends, and its own
// freeings: Close waits for them, and the rules for a custom token know one Client.
//
// Nothing keeps a Redis client alive. The registry has weak pointers by a hash of the Redis client. With the client as
// a key, the map would keep it, and a caller's own type that holds its Client would never be freed. A hash also serves
// types that are structs. A type that cannot be compared shares nothing. New costs 7 allocations, 345 bytes and 0.45
// µs.
//
// A Lock is a part of the public Lock and not a pointer, so a Lock has 480 bytes, exactly a size class. An obtain
// lives on the stack, and what a call seldom needs is allocated when it does. When a pair had 2.6 KB instead of 2.0, 8
// goroutines took 1.07 to 1.11 of bsm's time, because the garbage collector ran more often. A script.Loss is passed by
// value: a pointer to it escaped, which cost each pair 64 bytes and an allocation.
