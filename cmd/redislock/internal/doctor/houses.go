package doctor

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/scan"
)

// houses looks for shared keys that are not as the library keeps them.
func (d *doctor) houses(ctx context.Context, server *redis.Client) finding {
	h, err := scan.LookAtHouses(ctx, server, scanTime)
	const why = "somebody has changed or deleted a part of a lock: those who hold it may have lost it without notice, " +
		"and other libraries see the key as taken"
	switch n := len(h.Wrong); {
	case err != nil:
		return isUnknown.says(fmt.Sprintf("cannot look at shared keys (%s)", plainly(err)),
			"a part of a lock that somebody has left behind can block a key", d.grant("+scan +type +pttl +getrange +multi +exec"))
	case n > 0:
		found := h.Wrong[0]
		if n > 1 {
			found += fmt.Sprintf(", and %d more like that", n-1)
		}
		return isWarning.says(found, why, "find out who did it; then redislock release KEY --force, and DEL a house without a key")
	case !h.Whole:
		return ok("none of %d is wrong, as far as doctor looked in %v", h.Keys, scanTime)
	case h.Keys == 0:
		return ok("none")
	}
	return ok("%d, each with its house", h.Keys)
}
