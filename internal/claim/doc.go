// Package claim says how what a token may have at one Redis is freed.
//
// A claim is all that a token may have at one Redis, from before its first request until nothing of it can be there. It has
// one freeing, which sends releases in rounds:
//
//	live ── free, drop ──► sending ── answered ──► settling: are asks under way, or was one taken or in doubt? ── no ──► freed
//	                       ▲  ▲  │                    │ yes: when they have ended, and in doubt a second later
//	                       │  └──┼────────────────────┘
//	                       │     └─ failed ──► resting ── expired ──► givenUp ◄── refused ── sending
//	                       └─ due, hurry ───────┘
//
// An ask is a request that may take keys: an obtain, a mend, a refresh that puts keys back under a guard. It may be executed
// before, between or after the rounds, also when nobody waits for it any more.
//
// # Rules
//
//   - A claim that is being freed asks for nothing more.
//   - The first round goes out at once: a waiter's position and most keys are free before anything else is known.
//   - The freeing does not end while asks are under way.
//   - What an ask has taken although nobody relies on it is freed by a round that is sent after its end.
//   - If an ask has ended without an answer, another round follows a second later. Nobody can hurry that second.
//   - A round that has failed is followed by others until the keys can last no longer. Releases that join, and Close, hurry
//     the next one.
//   - With a token of the caller's own, an obtain that ends without a lock frees only what late replies say it has taken.
//
// The search of the tests plays all interleavings of three asks against these rules, and shows for each rule what breaks
// without it. The transcripts show single freeings. promises.md lists what the library promises about freeing, by which
// rule, and which spec holds it.
//
// So far, this package is only the rules: next, a pure function. Packages place, several and undo still free keys in ways of
// their own, which are to end here.
package claim
