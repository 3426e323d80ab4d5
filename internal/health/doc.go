// Package health knows how fast a server answers, and decides whether to ask it.
//
// It is for locks on several servers, which must not wait for a server that hangs:
//
//	an obtain  ── Admit ──► yes ── the call goes out ──► Ended(took, answered)
//	                  └───► no: the server hangs, so it counts as absent in this round
//	a mend     ── AdmitMend ──► yes ── the call goes out ──► MendEnded(took, answered)
//	                      └───► no: a kept lock waits, until its Mend is called
//
// # Invariants
//
//   - Each call that was admitted is ended once.
//   - While a server does not answer, one call a second goes out to see whether it does again.
//   - A kept lock that waits has its Mend called, once: when the server answers and there is room for the mend, and at the
//     latest at the next probe. Mend is called while no mutex of this package is held.
//
// # Decisions
//
// One answer says little, because a server may have hung until it gave that answer. So one answer doubles the usual time at
// most, and of calls that were under way together only the first counts.
package health
