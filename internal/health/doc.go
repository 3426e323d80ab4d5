// Package health knows how fast a server answers, and decides whether to ask it.
//
// Locks on several servers use it, because they must not wait for a server that hangs:
//
//	an obtain  ── Admit ──► yes ── the call goes out ──► Ended(took, answered)
//	                  └───► no: the server hangs, so it counts as absent in this round
//	a mend     ── AdmitMend ──► yes ── the call goes out ──► MendEnded(took, answered)
//	                      └───► no: a kept lock waits until its Mend is called
//
// # Invariants
//
//   - Each call that was admitted is ended once.
//   - While a server does not answer, one call a second goes out to see whether it does again, apart from calls that need
//     the server and were admitted because it had been silent for less than they allow.
//   - The Mend of a kept lock that waits is called once: when the server answers and has room, and at the latest at the next
//     probe that finds room. No mutex of this package is held then.
//
// decisions.go gives the reasons of what could be otherwise.
package health
