package transport

// # Decisions
//
// Figures are from redis 7.0.15, go-redis v9.23.0 and Go 1.26.8 on two shared cores. A pair is one obtain and one
// release.
//
// One place resends. The library sends a call again as often as the client's MaxRetries allows (on a Cluster,
// MaxRedirects), and go-redis resends nothing (NoRetry, from v9.19 on). If go-redis resent a release whose key is then
// gone, nobody could tell whether its first sending had deleted the key.
//
// A client is known by one interface, Conn, and its servers by another, Node. So this package, and all above it, compile
// without go-redis, and another client is one more Conn. A call by itself and a pipeline have each a method: the first goes
// through the caller's client, with the values of the caller's ctx for its hooks, and the second through the client of a
// server. A Conn builds commands from the Call itself, so that no list in between costs an allocation. Compared with the
// package that named go-redis, a pair has the same 21 allocations (26 with a ctx that can end, 14 with 256 goroutines), and
// takes 1.01 of the time with one goroutine, 0.99 with such a ctx, 0.99 with 16 goroutines and 0.97 with 256, on one server.
//
// A request counts as sent when go-redis writes it, not when the library calls go-redis. So the wait for a connection
// does not shorten the validity. The token among the arguments is a value whose MarshalBinary go-redis calls while it
// writes: this is the only place where go-redis shows that moment. There the library takes the time, and drops a call
// that nobody wants any more. An error before that moment leaves no doubt, so nothing needs a cleanup.
//
// A client is asked what it can do; only go-redis' own types are known by name. People pass structs that embed a
// client, to count calls or to put a prefix before keys. When types were compared, 200 waiters behind a holder got 37
// to 50 locks in 20 s through such a struct, because no message could wake them. With abilities, all 200 are served
// within 8 to 23 ms, as with the client itself.
//
// Go does not say whether a type declares a method or has it from what it embeds. So the library calls Process, which
// would bypass an overridden EvalSha, only on go-redis' own types. The price: calls through other types share no
// pipelines. With 64 goroutines a pair then takes 28.5 µs instead of 9.5 µs; with one or eight goroutines both take
// the same.
//
// The library also looks at what a type embeds, because redis.UniversalClient hides a Ring or a Cluster. Only a call
// shows whether a type uses a nil that it embeds (stubs in tests do not), so the panic of such a call becomes an
// error.
//
// A call whose ctx can end gets a goroutine; other calls do not. go-redis does not interrupt a read when ctx ends, so
// the caller waits beside a goroutine that sends. This costs 5 allocations per pair, and 18 µs per call on cores that
// are kept awake. Only a net.Conn whose read can be interrupted would spare it. As an option for those who ask for it
// (redis.Options with another Dialer), this was given up: go-redis 9.23 dials under a context of its own, and says HELLO
// before it writes anything of a call. So while a new connection waits for the reply to HELLO, nobody knows which ctx
// should end that read. Against a server that accepts connections and does not answer, a GET whose ctx ended after
// 100 ms returned after 5.0 s. A call cannot tell beforehand whether it will need a new connection, and while it is in
// go-redis without a second goroutine, nobody can return for it. Who needs cheap calls with a ctx that can end takes
// rueidis: there they cost no goroutine.
//
// Such a goroutine first grows its stack to what go-redis needs, in one step while nothing is on it, and then waits
// for the next call while any other goroutine is sending. In units of bsm's client CPU, growing lowered a pair from
// 1.53 to 1.27 with one goroutine; waiting lowered it from 1.58 to 1.43 with two, and from 1.32 to 1.19 with four.
// Rejected: keeping goroutines for a fixed time (synctest forbids goroutines that still wait for a timer when a test
// ends), and a coroutine of iter.Pull (Go ends the process if the caller is locked to its thread).
//
// Many calls at a time share pipelines: see lane for the rule. It has no timer, so a lone call is never delayed. Redis
// serves up to eight connections in one turn of its event loop anyway, so up to eight calls go by themselves. Where an
// idle core takes long to wake, a pipeline of two calls is slower than two calls. Time for a pair in units of bsm's,
// by the number of calls that go by themselves:
//
//	goroutines   five          eight         ten
//	6            1.20          1.03
//	8            1.23 to 1.34  1.00 to 1.06  as with eight
//	10           1.14 to 1.19  1.11 to 1.31  0.98 to 1.15
//	12           1.03          1.00 to 1.15  1.02 to 1.14
//	16           0.95          0.91 to 0.99  0.94 to 1.02
//
// go-redis' AutoPipeline was tried: it is experimental, refuses a Ring, and did 37.7 and 44.5 thousand pairs per
// second with 16 and 256 goroutines, where this package did 64.4 and 213.
//
// Simple calls in one pipeline share a script. That saves the server one EVALSHA per call (1.5 µs before any Lua).
// With 16, 256 and 1,024 goroutines it raised 52, 128 and 117 thousand pairs per second to 64, 202 and 212. The script
// is sent only to a server that says in its reply to HELLO that it is standalone: nodes of a Cluster refuse keys of
// several slots, and a proxy may look at the first key only. Limits of 50 to 1,000 calls per script measured the same.
// A simple call leaves out arguments that always have the same value: a pair takes 0.98 of the time.
//
// A call by itself compares its arguments while they are written. Hooks rewrite keys in place, some restore them
// afterwards, and go-redis does not say which hooks there are. A shared round trip carries no caller's ctx. With a
// hook that took a key prefix from ctx, and without the check, 16 goroutines of two tenants had two holders of one key
// within half a second, in every run. The comparison costs under 1 % of a call. The first call of each Client goes by
// itself, even if earlier Clients have seen no such hook: a program may add hooks between two Clients.
//
// A call in a pipeline cannot be dropped at the last moment, because in go-redis an error of one command ends the
// whole pipeline. Unwanted calls are left out when the pipeline is built. A call that is abandoned later is sent, and
// cleaned up afterwards.
//
// Cancelling, not a deadline, limits the wait for a connection. With ContextTimeoutEnabled, go-redis also applies the
// deadline of ctx to reading replies: a kept lock of 200 ms expired although every renewal was answered within 60 ms.
//
// A panic in a hook reaches the caller. The goroutine that sends stores the panic, and the caller panics with the same
// value. In a shared trip, the callers of all its calls panic. A renewal or a cleanup has no caller, so there the
// panic is only an error.
//
// Pipelines of renewals that hang do not hold up the others. WithTimeout returns a client without the caller's hooks,
// on which the keys may depend, so a pipeline that hangs keeps its connection for the ReadTimeout. From the fifth one
// on, pipelines follow one another at intervals of 250 ms, or of the patience of a renewal if that is less; from the
// 16th on, always of 250 ms. go-redis has ten connections for pipelines, and the usual pool lends more. Each pipeline
// counts for 5 s, because without a ReadTimeout it may hang for ever.
//
// Connections that have died without a sign are found by a question on a new one, and not by a shorter ReadTimeout: a
// server that hangs must not cost a program its connections. The question goes by a subscription, because that has a
// connection outside of the pool, from the caller's own dialer and through the caller's hooks for dialling. With 20
// idle connections that were dead, Obtain and Release failed after 20 s (four sendings, each with the next dead
// connection) and kept locks of 1 and 6 s were lost. Now no kept lock is lost, and these are the medians of ten calls and
// the slowest of them: Obtain 124 and 148 ms, Refresh 141 and 223, Release 189 and 401, TTL 148 and 281, Attach and
// Inspect 430 and 453, because nobody knows when a call without a token was written.
//
// A call that was lost goes on as an abandoned one, and another goes in its place (DoAnew). A single lost packet delays a
// connection by 200 ms, so a call may count as lost and be executed all the same, after the other. Only callers for whom
// that does no harm use DoAnew, and they treat the lost call as they treat one that was abandoned when its ctx ended. A
// version in which transport itself sent every call again, and kept the lost sendings beside it, was broken by a reader:
// with one packet 1.5 s late, a Release with a token of the caller's own freed what another Client had acquired with that
// token, and a Refresh for 2 s shortened what another handle had prolonged. The library can wait for a late request, but
// other Clients do not know of it.
//
// A call is lost twice at most. During CLIENT PAUSE WRITE, a server answers a PING and no script: seven sendings, all of
// them lost, failed after 1.3 s and took all connections of the pool.
//
// A caller whose ctx never ends sends its call itself if an answer has just come. Nothing can interrupt a read in go-redis,
// so such a call cannot be lost. To hand every call to another goroutine cost 33 µs a call.
//
// If as many calls were under way as the pool has connections, the next ones wait for the ReadTimeout: the library cannot
// take a connection from go-redis.
//
// Servers are known by weak pointers. A Ring that replaces its shards closes their clients, and a map of strong
// pointers kept 27 KB for each of them for ever.
//
// One receiving loop replaces go-redis' Channel. A message passes one goroutine less, and the loop notices a
// subscription that was refused or is silent. Channel pings, but does not check the answer.
//
// With the server stopped by SIGSTOP and a ctx of 100 ms, all calls returned 0.4 to 1.1 ms after the end of ctx.
