// Package majority decides what a lock at several places has, and until when. A place is a server of a quorum, or a
// slot of a Cluster. A majority is so many places that they decide: more than half of a quorum, or all slots. The code
// calls this number need.
//
//	owner ── Acquiring, Attaching, Refresh, Renew, Mend ──► Lock ──► requests
//	owner ── sends the requests to the places ──► answers
//	owner ── Answer ──► Lock: what a place has, whether a majority has confirmed the call ──► Outcome, Until, Missing
//	owner ── End ──► Lock: every place is freed
//
// A [Lock] is one handle of such a lock. Its owner sends the requests that the Lock returns, and passes the answers to
// the Lock. The Lock knows nothing about Redis, starts nothing, and waits for nothing. The duties of the owner are
// listed below.
//
// The tests simulate owners, servers and a network in virtual time. They check that the rules suffice, and show what
// each rule is for. For each rule or part of a rule, TestControls plays the interleaving that is printed with it. Without
// the rule, that interleaving breaks a promise. In TestSchedules, callers compete at random, over a network that loses
// and delays messages, on servers that hang and forget. TestTranscripts shows a Lock step by step.
//
// decisions.go gives the reasons of what could be otherwise.
//
// # Promises
//
//   - No two callers count on the lock at the same time.
//   - If an operator deletes the keys of a lock on a majority of the servers, the lock does not become valid again.
//   - A lock that has lapsed does not become valid again after another caller has had it.
//   - A lock that has ended leaves no key for longer than one ttl after its last request was executed. If no request is
//     late, the lock leaves no key.
//   - A lock that is kept does not lapse while a majority has it and answers.
//
// # Conditions
//
// The promises hold under these conditions:
//
//   - A server may forget, which means that it loses its data, if a majority of the others has confirmed each lock for as
//     long as that lock is valid. While a Refresh to a shorter ttl waits to be sent, a majority of the others must also have
//     confirmed the lock for as long as before, because the Refresh may be sent to no place in the end (5b). If more
//     servers forget, two callers may have the lock, until the servers that have forgotten it have said so.
//   - A server does not forget after it has confirmed a call and before a majority has. Every protocol in which a caller
//     asks each server once needs this condition.
//   - The clocks of servers and callers run at speeds that differ by less than 1 %.
//   - An operator deletes the keys on all servers at the same time, or on so many that fewer than a majority keep them or
//     may get them later. A place may get the key later by an Obtain that is under way, or by a mend, which may begin later
//     where a key is missing or being acquired.
//   - All handles of one lock use the same ttl. A handle does not know of stuck requests of other handles, so the promise
//     about a lapse is for a lock with one handle. A handle also leaves behind what another one has acquired at a place
//     where it never got the keys itself; the other handle must release it.
//
// # What a lock knows of one place
//
// A hold is what a lock has at a place. Each place is in one of four states. An Obtain begins with all places
// acquiring. So does an Attach. It counts what it finds as granted, and assumes that a place which does not answer has
// the key.
//
//	             granted
//	acquiring ─────────────▶ held
//	 ▲      │                  │
//	 │      │ refused,         │ the server says that the key is gone or another's (4);
//	 │      │ not answered,    │ its end has passed, although the lock goes on;
//	 │      │ not sent,        │ a lapse, if the key may not be from before it (8a)
//	 │      │ a lapse (8a)     │
//	 │      │                  ▼
//	 │      └─────────────▶ missing
//	 │                         │
//	 └─────────────────────────┘
//	    a mend: a majority has confirmed a call that began since the loss was known (9)
//
//	The end of the lock frees each place, in whatever state it is: a Release, or an Obtain that fails. That is final.
//
// A call is one question to all places: one round of an Obtain, an Attach, a Refresh, or one round of renewals. Only
// places that are held are asked to confirm a Refresh or a renewal. Where the key is missing, the call acquires it
// again when a majority has confirmed the call, and the grant then confirms the call as well. So a call has an end: the
// time until which it makes the lock valid. A place has no end of its own. It counts with the end of the last call that
// it has confirmed. The lock is valid until the need-th largest end of the places that are held. When that time has
// passed, the lock has lapsed. If too few places are held because one of them has lost the key, the lock is not valid.
// But it lapses only when its last end has passed, because other answers to the same question may be on their way (4c).
//
// A Lock notices that time has passed when one of its methods is called. This may be late, because each method that may
// change something looks at the time first.
//
// # What the owner does
//
//   - The owner gives each round of an Obtain a Lock and a token of its own (1).
//   - The owner sends each request, once or several times. It calls Answer exactly once for each request, even after the end
//     of the lock. An answer says until when the place has confirmed the call. This counts from when the request was sent
//     (2), and allows for what is unanswered at that place (7).
//   - The owner sends the requests that Answer returns at once. If a key is lost, it begins a round of renewals at once.
//   - The owner calls Abandon when nobody waits for a call any longer (6a). Before that, it may ask whether the call Fails.
//   - When a majority has confirmed a call, the owner asks which places are Missing, and calls Mend for these. It may do so
//     at any other time, too. If it must wait before a Mend, it asks again after the wait.
//   - The owner releases no key while the lock lives (10). It calls End when the lock is released or cannot be acquired, and
//     then releases all keys, also those that are granted later, or that may be granted later (10b).
//
// The Lock follows the other rules.
//
// # Rules
//
// In the interleavings, A and B are callers, and 1, 2 and 3 are servers. A has acquired the lock for a second.
//
// 1. Each round of an Obtain has a token of its own. Otherwise:
//
//  1. A acquires the key at 1 only. The round fails. The releases are stuck.
//  2. A acquires the keys at 1, 2 and 3 in the next round.
//  3. The releases arrive at 1 and 2, and free the keys.
//  4. B acquires the keys at 1 and 2.
//
// 2. A confirmation counts from the time when the request was sent, and a call has the need-th largest of what its
// places have confirmed (2b). Otherwise:
//
//  1. A sends its requests. The servers execute them, but the replies take half a ttl.
//  2. After one ttl, the keys expire, and B acquires them. A counts on them for half a ttl more.
//
// And for 2b:
//
//  1. 1 grants the key to A. The requests to 2 and 3 are lost. A sends them again, and 2 grants the key.
//  2. When 1 drops the key, B acquires those at 1 and 3. A counts on the later end, that of 2.
//
// 3. Only a call that a majority has confirmed moves the end of the validity. A round of renewals is one call, too (3b).
// All places that have confirmed a call count with its one end (3c). Otherwise:
//
//  1. A refreshes the lock to 10 s. 2 confirms that, and the Refresh fails.
//  2. 2 forgets. A majority, 1 and 3, has the lock for as long as it is valid.
//  3. A refreshes the lock to 10 s. 1 confirms that, and the Refresh fails. But 1 and 2 together make a majority.
//  4. After a second, 3 drops the key, and B acquires those at 2 and 3.
//
// For 3b, replace each Refresh by a renewal. For 3c, of five servers:
//
//  1. 3, 4 and 5 confirm a round of renewals.
//  2. 4 and 5 confirm a second round.
//  3. The first round is sent to 1 and 2 again, which confirm it, and so last longer than 4 and 5. 2 confirms the second
//     round as well.
//  4. 1 forgets. A majority, 2, 4 and 5, has the lock until the end of the second round.
//  5. The second round is sent to 3 again, which confirms it. Now 1, 2 and 3 last longer than 4 and 5, as far as A knows.
//  6. 4 and 5 drop the keys, and B acquires those at 1, 4 and 5.
//
// 4. A place that was found without the key does not count. Otherwise:
//
//  1. A refreshes the lock to 10 s. 1 and 2 confirm that. The request to 3 is lost.
//  2. 1 forgets, and says so to A.
//  3. After a second, 3 drops the key, and B acquires those at 1 and 3.
//
// What a place has confirmed before it was found without the key does not count either, for a call that a majority has
// yet to confirm (4b). Otherwise:
//
//  1. A refreshes the lock to 10 s. 1 confirms that. The requests to 2 and 3 are late.
//  2. 1 forgets, says so when A renews the lock, and gets the key again, for a second.
//  3. 2 confirms the Refresh, so that 1 and 2 make a majority. The request to 3 is lost.
//  4. After a second, B acquires the keys at 1 and 3.
//
// If too few places are held, because one has lost the key, only a call that a majority has yet to confirm makes the lock
// valid again (4c). Otherwise:
//
//  1. A acquires the keys at 1 and 2. The request to 3 is late.
//  2. 1 forgets, although A relies on it, and says so when A renews the lock. The request to 2 is lost.
//  3. 2 forgets, on which no valid lock relies.
//  4. 3 grants the key to A, which counts on 2 and 3. B acquires the keys at 1 and 2.
//
// 5. When a Refresh begins, the lock is valid for no longer than the new ttl from then on. Otherwise:
//
//  1. A refreshes the lock to 200 ms. All servers execute that, but the replies are lost.
//  2. After 200 ms, B acquires the keys. A counts on the rest of its second.
//
// If the Refresh was sent to no place at all (5b), the places last as long as before, unless another Refresh has begun
// since (5c), or something else has changed how long they last. Otherwise, for 5b:
//
//  1. 1 forgets. A majority, 2 and 3, has the lock for as long as it is valid.
//  2. A refreshes the lock to 200 ms. 3 confirms that, but the requests to 1 and 2 are not sent.
//  3. After 200 ms, 3 drops the key, and B acquires those at 1 and 3. A counts on 1 and 2 for the rest of its second.
//
// No rule helps if a server forgets while the Refresh waits to be sent, and others have the lock for the shorter ttl only.
// So the conditions exclude this:
//
//  1. A refreshes the lock to 10 s. 1 and 2 confirm that. The request to 3 is lost.
//  2. A refreshes the lock to 200 ms. The requests wait to be sent.
//  3. 1 forgets. A majority, 2 and 3, has the lock for 200 ms.
//  4. A learns that the Refresh was sent to no place, and counts on 1 and 2 again.
//  5. After a second, 3 drops the key, and B acquires those at 1 and 3.
//
// For 5c:
//
//  1. A refreshes the lock to 200 ms. The requests wait to be sent.
//  2. A refreshes the lock to 400 ms. All servers execute that, but the replies are lost.
//  3. A learns that the first Refresh was not sent. After 400 ms, B acquires the keys. A counts on the rest of its second.
//
// A place that gets the key back while the Refresh is under way is asked for it then, and lasts no longer than the new
// ttl from then on (5d). Otherwise:
//
//  1. A refreshes the lock to 200 ms. The requests to 1 and 2 wait to be sent. A renews the lock for a second, which 1 and
//     2 confirm. 3 gets the key back by that, and is asked for the Refresh.
//  2. 1 forgets. A majority, 2 and 3, has the lock for as long as it is valid. 3 executes the Refresh.
//  3. After 200 ms, 3 drops the key, and B acquires those at 1 and 3. A counts on its renewal.
//
// 6. A call that has ended gains nothing any more. A call ends when nobody waits for it any longer (6a), when a Refresh
// begins (6b), and when the lock lapses (6c). It also ends when no majority can confirm it any more. Otherwise, for
// 6a:
//
//  1. A refreshes the lock to 10 s. 2 confirms that. The request to 3 is lost, and that to 1 is stuck. The Refresh fails.
//  2. 2 forgets.
//  3. The request arrives at 1, which confirms the Refresh.
//  4. After a second, 3 drops the key, and B acquires those at 2 and 3.
//
// For 6b:
//
//  1. A renews the lock. The servers execute that, but the replies are late.
//  2. A refreshes the lock to 200 ms. All servers execute that, but the replies are lost.
//  3. The replies to the renewals arrive. After 200 ms, B acquires the keys. A counts on its renewals.
//
// For 6c:
//
//  1. A refreshes the lock to 10 s right before it lapses. 1 and 2 confirm that, but the reply of 2 is late.
//  2. The lock lapses. 1 forgets, on which no valid lock relies.
//  3. B acquires the keys at 1 and 3.
//  4. The reply of 2 arrives.
//
// 7. While a Refresh is unanswered at a place, or waits to be sent there, a confirmation of a later request there counts for
// no more than the ttl of that Refresh. Otherwise:
//
//  1. A refreshes the lock to 400 ms. The requests are stuck.
//  2. A refreshes the lock to 10 s. All servers confirm that.
//  3. The requests of the first Refresh arrive at 1 and 2. After 400 ms, B acquires the keys there.
//
// 8. A lock that has lapsed can be refreshed, but not by keys that may have been acquired since. At a lapse, a place
// becomes missing if a request that acquires is under way there, or was never answered (8a). And a reply counts only if
// the state of the place has not changed since the request was made (8b). Otherwise, for 8a:
//
//  1. The requests of A's Obtain are stuck. A sends them again, and all servers grant the keys.
//  2. The lock lapses. B acquires and releases the keys.
//  3. The stuck requests arrive, and acquire the keys.
//  4. A refreshes the lock, and all servers confirm that.
//
// For 8b, 1 has the key until much later, by a Refresh that has failed, and the request of the Obtain to 3 is still
// under way when the lock lapses. It arrives when B has held and released the keys at 2 and 3. A refreshes the lock at
// 1 and 3.
//
// 9. A missing key is acquired again only by a call that a majority has confirmed, that began when the key was known to
// be missing (9b), and only while the lock is valid (9c). A place that has not granted an Obtain was missing the key
// before the Obtain began. When a key is found to be lost, a round of renewals follows at once. Otherwise:
//
//  1. An operator deletes the keys on all servers.
//  2. A renews the lock. 1 says that the key is gone, and A acquires it there again. So do 2 and then 3.
//
// For 9b:
//
//  1. A renews the lock. 1 and 3 confirm that, but the reply of 3 is late, and so is the request to 2.
//  2. An operator deletes the keys at 1 and 2.
//  3. 2 says that the key is gone. The reply of 3 arrives. 1 and 3 are a majority, so A acquires the key at 2 again.
//  4. A has the keys at 2 and 3.
//
// For 9c, 1 has the key until much later, by a Refresh that has failed, and the mend at 3 waits when the lock lapses.
// A sends it when B has held and released the keys at 2 and 3. A refreshes the lock at 1 and 3.
//
// 10. No key is released while the lock lives: neither a key that a mend without an answer may have acquired, nor a grant
// that comes too late to count. Once the lock has ended, all keys are released, also those that are granted later (10b).
// Otherwise:
//
//  1. 1 forgets. A acquires the key there again, but the replies are lost, and A releases it. The release is stuck.
//  2. A acquires the key at 1, with the next round of renewals.
//  3. 2 forgets. A majority, 1 and 3, has the lock.
//  4. The release arrives at 1. B acquires the keys at 1 and 2.
//
// For 10b, a request of the Obtain to 3 is late, and arrives after all requests of the Release.
//
// # What needs no rule
//
// All requests of a lock use its one token, whether they belong to its Obtain, to a mend, or to another handle. So a
// request never blocks another request of its own lock, and a handle finds what another handle has mended. Requests of
// one lock may be executed in any order, because no request takes away what another one has acquired. Only the end of
// the lock does, and that is final. A request that is stuck until then acquires a key that expires with its ttl.
//
// A mend may begin at any time while the lock is valid: also again after a mend that was refused or not answered, and
// also while a Refresh is under way. It need not follow the confirmation at once. A key that an operator deletes later
// was lost later, so the call does not mend it.
//
// A mend may overtake a request that acquires and has no answer yet, of the Obtain or of another mend. Otherwise a stuck
// request would leave the place without the key until the owner gives the request up, although the server may answer by
// now. The place is asked again when a majority has confirmed a call that began after the place was asked last. No promise
// depends on there being only one such request:
//
//   - The call began after the key was known to be missing, so rule 9 holds for the later mend as for the earlier one.
//   - Each request acquires the key for the same token, and none shortens its ttl. It does not matter which of them is
//     executed first, or that one is executed when the other was answered.
//   - Only the last request counts. An earlier one was made for another state of the place, so its answer changes nothing
//     (8b). If the earlier one is granted, the place counts when the last one is answered too.
//   - What an earlier request may have acquired is not forgotten: the place becomes missing at a lapse (8a), and at the end
//     of the lock, the owner releases all that any request was granted, even if the place has refused another one (10b).
//
// A place becomes missing when its own end has passed. No promise needs this, but otherwise each round of renewals would
// ask a place that hangs. A place that has confirmed a call which waits for others does not become missing. Otherwise the
// call could not make the lock valid for as long as its owner is told.
package majority
