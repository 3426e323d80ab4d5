package place

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
)

const (
	// explainPatience is how long a refused obtain waits for the answer to its question what blocks it. The server has
	// just answered a try, so a healthy one replies at once.
	explainPatience = 250 * time.Millisecond

	// explainGrace is the same for an obtain whose ctx has ended, because it must return within milliseconds.
	explainGrace = 20 * time.Millisecond
)

// Blocker asks what blocks an obtain with that token and ticket; 0 is none. The Key of the answer is "" if nothing does any
// more, or if Redis does not answer in time.
func (p *Place) Blocker(ctx context.Context, keys []string, token string, ticket int64) script.Blocker {
	patience := explainPatience
	if fault.Ended(ctx) != nil {
		ctx, patience = context.WithoutCancel(ctx), explainGrace
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	keys = slices.SortedStableFunc(slices.Values(keys), script.LinesFirst)
	c := p.set.Scripts.Blocker(keys, token, ticket)
	c.Ctx = ctx
	if !p.Redis.Do(ctx, c) || c.Err != nil {
		return script.Blocker{}
	}
	return script.ReadBlocker(keys, c.Reply)
}
