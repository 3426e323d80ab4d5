package redislock

import (
	"fmt"
	"reflect"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/several"
)

// NewQuorum returns a Client whose locks live on several independent Redis servers at once. A lock is held while a
// majority of the servers hold all of its keys. So it survives the failure of the other servers, and the library can
// acquire its keys again at a server that has lost its data. Use three or five servers that do not replicate each other.
// Each must be a different server: one server under two addresses would count twice.
//
// All methods work as for one server, with these differences:
//   - Obtain asks all servers at once and returns when a majority has granted. A refusal also waits for the servers that
//     have not answered yet, but not for one that takes much longer than the others. A server that does not answer within
//     100 ms, or four times its usual time if that is longer, counts as absent for this call. It has 250 ms if there is no
//     majority without it. A server that had not answered yet when the call began has 250 ms, or 2 s if no other has
//     answered either or there is no majority without it. Each key adds 20 µs.
//   - If fewer than a majority answer, the error names each server that failed and does not match [ErrNotObtained].
//     Before that, the call tries again as [Options.RetryStrategy] says. With [Options.Queue], it goes on waiting. If the
//     end of ctx, or of the ttl, ends the tries, the error matches [ErrNotObtained] as well, as on one server.
//   - If callers split the votes of a majority, and the other servers are absent or slow, nobody has the lock. Each of
//     the callers gives back what it has, and asks again at random moments. A caller that never gets a majority returns
//     [ErrNotObtained] in the end, although nobody holds the lock.
//   - [Lock.Until] is the earliest end among the servers that were the first majority to confirm the last Obtain, Refresh or
//     round of renewals. A Refresh that returns an error gains nothing, even if a majority confirms it later.
//   - A retry without Queue waits up to half longer than the strategy says, at random, because callers that try at the
//     same times can refuse each other for ever.
//   - A lock is lost when so many servers have lost keys that no majority is left. The keys of a [*LostError] are those
//     that a majority misses.
//   - Waiters are woken; no server hands keys over directly.
//   - With [WithGuard], each server has a guard of its own. What a closed one answers does not count towards the majority:
//     it grants nothing and confirms nothing, but gets the keys of kept locks back.
//   - An Obtain with [Options.AcrossSlots] or [Options.Token] returns an error that wraps [ErrInvalid]. To resume or share
//     a lock, use Attach. If a client is a Ring, several keys, or a key with a FenceKey, need one hash tag, as on one Ring.
//
// KeepAlive, Do and Refresh acquire the keys again at a server that has lost them, once a majority has confirmed the lock
// since the loss became known. The servers' clocks may differ, but must run at speeds that differ by less than 1 %. If a
// majority of servers lose their data within one ttl, that can break exclusion, unless they have a guard. So can a change
// of the list of servers while locks are held. The file docs/guarantees-several.md has the details.
//
// NewQuorum does no I/O. If clients is empty, or holds a nil, a repeated or an unusable client, every later call
// returns an error that wraps [ErrInvalid]. One client makes the same Client as [New]. The caller closes the Redis
// clients, after the Client.
func NewQuorum(clients []RedisClient, opts ...ClientOption) *Client {
	if len(clients) == 1 {
		return New(clients[0], opts...)
	}
	c := newClientOptions(opts).placeless()
	if c.unusable != nil {
		return c
	}
	if len(clients) == 0 {
		c.unusable = fault.Invalid("a quorum of no servers; pass three or five clients")
		return c
	}
	servers := make([]*place.Place, len(clients))
	seen := map[RedisClient]int{}
	for i, client := range clients {
		server, err := newPlace(client, &c.config)
		if err == nil {
			err = checkGuard(c.config.Scripts.Guard, server)
		}
		if err != nil {
			c.unusable = fmt.Errorf("client %d of the quorum: %w", i+1, err)
			return c
		}
		if reflect.ValueOf(client).Comparable() {
			if before, again := seen[client]; again {
				c.unusable = fault.Invalid("clients %d and %d of the quorum are the same; each must be another server", before+1, i+1)
				return c
			}
			seen[client] = i
		}
		servers[i] = server
	}
	c.quorum = several.NewQuorum(servers, &c.config)
	return c
}
