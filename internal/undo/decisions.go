package undo

// # Decisions
//
// What gives a lock up goes on until the ttl is over. The tries end with a success, with an error that does not pass,
// or with the ttl; nothing that the caller did matters. When only a ctx that ended during Release started them, keys
// blocked everybody for 9m55s of 10 minutes after one second without replicas, and for 591 of 600 s after a failover.
//
// There is room for 10,000 cleanups per Redis client. With room for 1,000, a Client that released 10,000 locks during
// 3 s without replicas left 9,000 behind. With 10,000, all were free 4 s after the outage, at one goroutine for each.
//
// An obtain with a custom token waits for that token's own earlier calls, under its ctx, and shortens the pauses of
// what it waits for. Before, it superseded them: it dropped cleanups, took over what they had to release, and other
// cleanups took over the keys that it did not want. That was 160 lines and nine fields, was wrong four times, and
// saved a wait of a few milliseconds. Pauses are short only while an obtain waits: when they stayed short, each
// cleanup sent 16 to 20 requests a second for a whole ttl while Redis refused them. An obtain does not wait for a
// Refresh that begins meanwhile, because two goroutines that refreshed a lock in turn kept it waiting until its ctx
// ended. If cleanups only fail, it returns their error after a second, because a caller without a deadline would hang.
