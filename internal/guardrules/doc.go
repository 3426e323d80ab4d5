// Package guardrules has the rules by which locks survive a Redis that forgets, and the specs that prove them on real
// servers. It has no code: the rules stand in the scripts and in the rooms that send them.
//
// A server forgets when it restarts without its latest data, when a replica takes over that lacks the last writes, or when
// somebody empties a database. The remedy is old. After a memory may be lost, a server grants nothing new until every lock
// that it can have granted has ended, and meanwhile the holders put their locks back. Gray and Cheriton's leases (1989) wait
// like this after a crash, NFSv4 has a grace period in which clients reclaim their locks, and Chubby has epochs, and a grace
// period in which clients reinstate their handles.
//
//	a script ── compares the marker with INFO replication, before anything else ──► open ──► goes on as without a guard
//	                 │
//	                 └── they differ, or the marker is gone ──► writes the marker: closed for G
//
//	obtain, hand-over, Attach ── while it is closed ──► refused; a waiter takes its position in line
//	renewal, Refresh          ── in the first D ──► not executed: send it again after that
//	                          ── after it ──► the keys that are gone are put back
//	                          ── once it is open ──► keys that are gone are lost
//
// The marker is the key redislock:guard, in the same database as the locks. It names the term of the server, which is
// master_replid of INFO replication. A server draws that at random at each start of the process and at each promotion. So a
// marker with the term of today was written by this process since it became a master, and whatever was granted since then is
// still there. internal/script/marker.lua says what the marker looks like. G is maxTTL + D, and D is the deposed of
// WithGuard: for how long a master goes on granting after a replica has taken its place.
//
// # Promise
//
// No two callers count on a lock at the same time, whatever the server forgets, if all programs that lock in the database
// have the same guard, no deposed master grants for longer than D, the speeds of clocks differ by less than 1 %, and the
// loss is noticed (see the end). A lock that is kept survives if it can be put back before it lapses.
//
// # Rules
//
// In the interleavings, A, B and C are callers, M is a master and R is its replica. A has acquired the lock.
//
// 1. Each script that grants, renews or hands over compares first, and closes the guard if they differ. A check by a script
// of its own would not do:
//
//  1. B asks whether the server has forgotten locks. It has not.
//  2. The server restarts with nothing.
//  3. B's Obtain arrives. B acquires the key, and A counts on it.
//
// The term is not run_id (1b). Otherwise:
//
//  1. C locks at M. R takes over. C releases its lock, and A acquires it at R.
//  2. M becomes the replica of R, and is promoted before it has R's data. It has the same run_id, and its old marker.
//  3. B acquires the key at M.
//
// A replica is refused, even one that can be written (1c). Otherwise:
//
//  1. R lacks A's key yet, and grants it to B.
//
// 2. While the guard is closed, nothing is granted, and each new mismatch begins a whole grace (2b). Otherwise:
//
//  1. The server restarts with nothing. B acquires the key, and A counts on it.
//
// For 2b:
//
//  1. The server restarts with nothing. Shortly before the guard opens, A's renewal is confirmed.
//  2. The server restarts with nothing again. The guard opens, and B acquires the key. A counts on its renewal.
//
// An Obtain is refused even if the key holds its token (2c). Otherwise:
//
//  1. M has granted the key, but the reply to A is lost. R takes over, and M does not know it yet.
//  2. A sends its Obtain again, to R, which has the key for A, and grants it for another ttl.
//  3. M's copy of the key expires, and M grants it to B.
//
// No release hands the key over (2d), and no handle is attached (2e). Otherwise:
//
//  1. C had the lock before A, and R does not know anything newer when it takes over.
//  2. C's release is sent to R again, because its reply was lost. R hands the key to B, who was first in line.
//
// For 2e, another handle of C attaches to the key at R.
//
// Waiters take positions meanwhile, so that their order is complete when the guard opens.
//
// 3. In the first D, no renewal is executed. Otherwise:
//
//  1. R takes over, and has A's key. M does not know it yet.
//  2. A renews the lock at R.
//  3. M's copy of the key expires, and M grants it to B.
//
// With the rule, A has lapsed by then, or M has stopped to grant.
//
// 4. After that, a renewal or a Refresh puts back the keys that are gone, if all others are its own. Otherwise:
//
//  1. The server restarts with nothing. A lock that is kept ends, although nobody else can have it.
//
// If another has one of the keys, the lock is lost, and none is put back (4b). Otherwise:
//
//  1. M, deposed, has granted one of A's two keys to B when the first had expired there. B has put it back at R.
//  2. A's Refresh puts the other one back. A is told that the lock is lost, and nobody can have the key for a ttl.
//
// Keys that are gone while the guard is open are lost (4c). Otherwise:
//
//  1. An operator deletes A's key, and B acquires and releases it.
//  2. A renews, and goes on as if it had held the lock all the time.
//
// 5. The answer to a renewal or a Refresh counts only if it arrives before the Until that held without it. A lock that has
// lapsed never comes back. Otherwise:
//
//  1. A's renewal is late. The lock lapses, and B acquires it.
//  2. The server restarts with nothing.
//  3. A's renewal arrives, and puts A's key back. A counts on it, and B counts on the lock as well.
//
// 6. No ttl is longer than maxTTL, and scripts only ever raise the maxTTL and the D of a marker, and so its G (6b).
// Otherwise:
//
//  1. A's lock lasts for a minute, and G is 10 s. The server restarts with nothing.
//  2. After 10 s, B acquires the key.
//
// For 6b, A's program has a G of a minute, and B's a G of 10 s. B's would close the guard for 10 s after a mismatch with a
// marker that names a minute. With a D of 0, B's would renew while a deposed master still grants, as in 3.
//
// 7. A release deletes what has its token, whether the guard is closed or open. Keys that are gone while it is closed are no
// loss. If a renewal was on its way, or may still be executed, the release is sent again afterwards. Otherwise:
//
//  1. A's renewal is late. A releases the lock. The server restarts with nothing.
//  2. The renewal arrives, and puts the key back. Nobody can have it for a ttl.
//
// 8. A release by force (redislock release --force) while the guard is closed takes the keys until it opens. Otherwise:
//
//  1. An operator deletes A's key. A's next renewal puts it back.
//
// 9. The guard is never closed for longer than G from now. Otherwise:
//
//  1. The guard closes. An administrator sets the clock of the server back by an hour. Nobody can lock for an hour.
//
// 10. Fencing tokens are minted only by grants. So the clock of a server that takes over without the counter may be behind
// by up to G. Otherwise:
//
//  1. A gets a token of M's clock. R takes over, without the counter, and its clock is a second behind.
//  2. A's renewal mints a lower one.
//
// 11. On a quorum, each server has a guard of its own. What a closed server answers counts neither for a call nor against
// it. Otherwise:
//
//  1. A has the key at servers 1 and 2, and the request to 3 is lost. 2 restarts with nothing.
//  2. B acquires the keys at 2 and 3.
//
// But if another has a key there, that counts against the call, although the server may have gone back to an earlier holder.
// The other may also have it rightly: after a restart with all data, or because an operator took it by force (8).
//
// If a majority of the servers forgets at the same time, nobody else gets a lock before its Until, but the lock lapses.
//
// 12. Locks that are not kept need no rule: the grace outlasts them.
//
// 13. If the marker cannot be written, because the server is out of memory, nothing is granted. The grace begins when it can
// be written: nobody knows for how long the server has been closed before. With D = 0, keys that are there are renewed. With
// a longer D, no renewal is executed. Otherwise, as for 3:
//
//  1. R, which is full, takes over, and has A's key. M does not know it yet. A renews the lock at R.
//  2. M's copy of the key expires, and M grants it to B.
//
// # Where the rules stand
//
// The scripts obtain, refresh and release are at the top of the repository, the others in internal/script.
//
//	1, 6b, 9, 13  marker.lua
//	2             obtain.lua, obtain_each.lua; 2d: release.lua; 2e: inspect.lua, and Place.Attach in internal/place
//	3             marker.lua says for how long (early); refresh.lua; Pace.Postponed in internal/lease; refreshing.try
//	4             refresh.lua
//	5             renewal.apply, refreshing.conclude and Place.LateAnswer in internal/place; Lock.tryRefresh in
//	              internal/several
//	6             GuardedTTL in internal/argument
//	7             release.lua, release_each.lua; internal/claim, for which Hold.BeginRefresh asks
//	8             the command line tool
//	10            obtain.lua, release.lua
//	11            record.read in internal/several: a closed server counts as one that has not answered
//
// # What is not noticed
//
// A marker says that the whole memory is the one of this term. So a guard does not notice that single keys are gone, if the
// marker is not:
//
//   - A key was deleted or evicted. The policies volatile-… never evict the marker, because it has no expiry, and
//     allkeys-lru evicts it late, because every script reads it.
//   - The clock of the server was set forward, so keys have expired early.
//   - SWAPDB has put another database in the place of this one, with locks and a guard of its own.
//   - A master was cut off or stopped, its replica took over and died, and the first goes on as the master. It has never
//     followed the other, so its id is the same, and it does not know what the other has granted. With the settings for
//     Sentinel in docs/guarantees-guard.md, the other grants nothing before the first follows it.
//   - The process has an older memory of the same term: DEBUG RELOAD NOSAVE, or a virtual machine that was set back to a
//     snapshot.
//
// On the other hand, a guard closes needlessly where all data is still there: after a restart from an AOF or after SHUTDOWN
// SAVE, after FAILOVER, when the server gets its first replica, and when it has had none for repl-backlog-ttl. Nobody but an
// operator knows that nothing was lost: the same file can be loaded twice.
package guardrules
