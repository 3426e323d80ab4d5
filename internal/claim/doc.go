// Package claim says how what a token may have at one Redis is freed.
//
// A claim is all that a token may have at one Redis, from before its first request until nothing of it can be there. It has
// one freeing, which sends releases in rounds:
//
//	live ── free, drop ──► sending ── answered ──► are asks under way, or was one taken or in doubt? ── no ──► freed
//	                       ▲  ▲  │                   │ yes: waiting until they have ended, and lingering in doubt
//	                       │  └──┼───────────────────┘
//	                       │     └─ failed ──► resting ── expired ──► givenUp ◄── refused ── sending
//	                       └─ due, hurry ───────┘
//
// An ask is a request that may take keys: an obtain, a mend, a refresh that puts keys back under a guard. It may be executed
// before, between or after the rounds, also when nobody waits for it any more.
//
//	next.go      the rules: a pure function from a state and an event to a state
//	claim.go     what a claim knows, and its asks
//	free.go      Free: the first round in the goroutine of its caller, and what all callers share
//	freeing.go   Drop and StepBack, and what goes on in the background: one goroutine for each claim, and none at rest
//	ledger.go    what goes on for the tokens of one Client, for Close and for obtains with a custom token
//
// # Rules
//
//   - A claim that is being freed asks for nothing more.
//   - A Free sends its first round at once. So does a Drop if something was taken: a waiter's position and most keys are
//     free before anything else is known.
//   - The freeing does not end while asks are under way.
//   - What an ask has taken although nobody relies on it is freed by a round that is sent after its end.
//   - If an ask has ended without an answer, a round follows at once, and another one a second later. Nobody can hurry that
//     second.
//   - A round that has failed is followed by others until the keys can last no longer. Releases that join, and Close, hurry
//     the next one.
//   - With a token of the caller's own, an obtain that ends without a lock frees only what late replies say it has taken.
//   - What the first answered round finds is found for all. But a round that finds nothing while asks are under way may have
//     overtaken the lock's obtain. It does not decide before these have ended, or 250 ms have passed.
//   - A round that finds nothing after a release without an answer has freed the keys if these were known to be there when
//     that one was sent, or were taken since. Otherwise nobody knows what became of them.
//
// The search of the tests plays all interleavings of three asks against these rules, and shows for each rule what breaks
// without it. The transcripts show single freeings. promises.md lists what the library promises about freeing, by which
// rule, and which spec holds it.
//
// # Invariants
//
//   - Claim.mu protects what a claim knows. The code that holds it locks nothing else.
//   - Each goroutine ends with the freeing, and that ends soon after the keys can last no longer.
//   - Work is in the Ledger from before its first request in the background until after its last one has ended. So an
//     obtain with the same token that has waited for it meets none of its requests on the server.
//   - Report is called while no mutex of this package is held.
//
// This package knows neither for how long a lock is valid nor what a line is.
//
// decisions.go gives the reasons of what could be otherwise.
package claim
