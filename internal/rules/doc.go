// Package rules states the rules of a lock at several places, and its tests simulate them alone: without Redis, and in
// virtual time. A place is a server of a quorum, or a slot of a Cluster. A majority is need places: more than half of a
// quorum, or all slots.
//
// The tests say whether the rules suffice, and what each of them is for. For each rule or part of one, TestControls plays
// the interleaving that stands below it, in which a promise is broken without the rule. TestSchedules lets callers compete
// at random, through a network that loses and delays what it carries, on servers that hang and forget.
//
// # Promises
//
//   - No two callers have the lock at the same time, as far as each knows.
//   - If an operator deletes the keys of a lock on a majority of the servers, the lock does not become valid again.
//   - A lock that has lapsed does not become valid again after another caller has had it.
//   - A lock that has ended leaves no key for longer than one ttl after its last request was executed. If no request is
//     late, it leaves none.
//   - A lock that is kept does not lapse while a majority has it and answers.
//
// # Conditions
//
// They hold under these conditions:
//
//   - A server may forget, which means that it loses its data, if a majority of the others has confirmed each lock for as
//     long as that lock is valid. If more servers forget, two callers may have the lock, until the servers that have
//     forgotten it have said so.
//   - A server does not forget between its own confirmation of a call and that by a majority. No protocol in which a caller
//     asks each server once can do without this.
//   - The clocks of servers and callers run at speeds that differ by less than 1 %.
//   - An operator deletes the keys on all servers at the same time, or at least on so many that fewer than a majority keep
//     them, or may get them by an Obtain or a mend that is under way.
//   - All handles of one lock use the same ttl. None of them knows of stuck requests of the others, so the promise about a
//     lapse is for a lock with one handle.
//
// # What a lock knows of one place
//
// A hold is what a lock has at a place. Each place is in one of four states. An Obtain begins with all places acquiring. So
// does an Attach, which takes what it finds for granted.
//
//	             granted
//	acquiring ─────────────▶ held
//	 ▲      │                  │
//	 │      │ refused,         │ the server says that the key is gone or another's (4);
//	 │      │ not answered,    │ a lapse, if the key may not be from before it (8a)
//	 │      │ a lapse (8a)     │
//	 │      │                  ▼
//	 │      └─────────────▶ missing
//	 │                         │
//	 └─────────────────────────┘
//	    a mend: a majority has confirmed a call that began since (9)
//
//	A Release, or an Obtain that fails, frees every place, whatever its state. That is final.
//
// A call is one question to all places: one round of an Obtain, an Attach, a Refresh, or one round of renewals. Only places
// that are held are asked to confirm a Refresh or a renewal. Where the key is missing, the call acquires it again when a
// majority has confirmed the call, and the grant then confirms the call as well. So a call, not a place, has an end: until
// when it makes the lock valid. A place has the end of the last call that it has confirmed. The lock is valid until the
// need-th largest end of the places that are held. When that has passed, the lock has lapsed. If too few places are held
// because one of them has lost the key, the lock is not valid. But it lapses only when its last end has passed, because
// other answers to the same question may be on their way.
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
// 2. A confirmation counts from the time when the request was sent, and a call has the need-th largest of what its places
// have confirmed (2b). Otherwise:
//
//  1. A sends its requests. The servers execute them, but the replies take half a ttl.
//  2. After one ttl, the keys expire, and B acquires them. A counts on them for half a ttl more.
//
// And for 2b:
//
//  1. 1 grants the key to A. The requests to 2 and 3 are lost. A sends them again, and 2 grants the key.
//  2. When 1 drops the key, B acquires those at 1 and 3. A counts on the later end, that of 2.
//
// 3. Only a call that a majority has confirmed moves the end of the validity. The places are asked as one call also in a
// round of renewals (3b), and all that have confirmed the call count with its one end (3c). Otherwise:
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
// 5. When a Refresh begins, the lock is valid for no longer than the new ttl from then on. Otherwise:
//
//  1. A refreshes the lock to 200 ms. All servers execute that, but the replies are lost.
//  2. After 200 ms, B acquires the keys. A counts on the rest of its second.
//
// 6. A call that has ended gains nothing any more. A call ends if nobody waits for it any longer (6a), when a Refresh begins
// (6b), and when the lock lapses (6c). Otherwise, for 6a:
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
// 7. While a Refresh was not answered at a place, a later request there is trusted for no more than the ttl of that Refresh.
// Otherwise:
//
//  1. A refreshes the lock to 400 ms. The requests are stuck.
//  2. A refreshes the lock to 10 s. All servers confirm that.
//  3. The requests of the first Refresh arrive at 1 and 2. After 400 ms, B acquires the keys there.
//
// 8. A lock that has lapsed can be refreshed, but not by keys that may have been acquired since. At a lapse, each place is
// missing where a request that acquires is under way, or was never answered (8a). And a reply counts only if the state of
// the place has not changed since the request was made (8b). Otherwise, for 8a:
//
//  1. The requests of A's Obtain are stuck. A sends them again, and all servers grant the keys.
//  2. The lock lapses. B acquires and releases the keys.
//  3. The stuck requests arrive, and acquire the keys.
//  4. A refreshes the lock, and all servers confirm that.
//
// For 8b, 1 has the key until much later, by a Refresh that has failed, and the request of the Obtain to 3 is still under
// way when the lock lapses. It arrives when B has held and released the keys at 2 and 3. A refreshes the lock at 1 and 3.
//
// 9. A missing key is acquired again only by a call that a majority has confirmed, and that began when the key was known to
// be missing (9b). Where an Obtain was not granted, the key was missing before it began. A round of renewals follows at once
// when a key is found to be lost. Otherwise:
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
// 10. Nothing is given back while the lock lives: neither what a mend without an answer may have acquired, nor a grant that
// comes too late to count. Once the lock has ended, everything is given back, and also what is granted later (10b).
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
// All requests of a lock use its one token, whether they belong to its Obtain, to a mend, or to another handle. So a request
// never blocks another one of its own lock, and a handle finds what another handle has mended. Requests of one lock may be
// executed in any order, because none takes away what another has acquired: only the end of the lock does, and that is
// final. A request that is stuck until then acquires a key that expires with its ttl.
package rules
