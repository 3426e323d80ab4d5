package connect

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// Quorum is the servers of a quorum, in the order of the command line. As a client it is the first that answered.
type Quorum struct {
	redis.UniversalClient

	All   []*redis.Client
	Wrong []error // why a server could not be used when connecting; nil for those that answered
}

// Close ends all connections.
func (q *Quorum) Close() error {
	var err error
	for _, client := range q.All {
		err = errors.Join(err, client.Close())
	}
	return err
}

// nextURL is where another URL begins in REDIS_URL.
var nextURL = regexp.MustCompile(`[\s,]+(?:rediss?|unix)(?:\+[a-z]+)?://`)

// splitURLs takes apart REDIS_URL. Spaces and commas separate URLs only where another URL begins, because commas also
// separate the hosts of one URL.
func splitURLs(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	var urls []string
	for at := nextURL.FindStringIndex(text); at != nil; at = nextURL.FindStringIndex(text) {
		urls = append(urls, text[:at[0]])
		text = strings.TrimLeft(text[at[0]:], " \t\r\n,")
	}
	return append(urls, text)
}

// straggler is how long a server may take longer than a majority, so that one that hangs does not hold up the others.
const straggler = 100 * time.Millisecond

// majority calls ask for each of n servers at the same time, and got for each answer, in this goroutine; got reports whether
// the server counts. It returns when all have answered, or wait after a majority has, unless wait is negative. It reports
// whether a majority has answered.
func majority(n int, wait time.Duration, ask func(i int) error, got func(i int, err error) bool) bool {
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, n)
	for i := range n {
		go func() { answers <- answer{i, ask(i)} }()
	}
	good := 0
	var late <-chan time.Time
	for range n {
		select {
		case a := <-answers:
			if got(a.i, a.err) {
				good++
			}
		case <-late:
			return true
		}
		if good > n/2 && late == nil && wait >= 0 {
			late = time.After(wait)
		}
	}
	return good > n/2
}

// connectAll connects to the servers of a quorum at the same time. A majority must answer. The others may come back.
func (t *Target) connectAll(ctx context.Context, all []*address) (_ redis.UniversalClient, err error) {
	q := new(Quorum)
	defer func() {
		if err != nil {
			_ = q.Close()
		}
	}()
	var names []string
	var servers []*Target
	for _, a := range all {
		if a.kind != single {
			return nil, cli.Usagef("a quorum is made of single servers, and %s is not one", a.where)
		}
		server := *t
		server.Where = a.where
		client := server.dial(a)
		names, servers = append(names, a.where), append(servers, &server)
		t.overTLS = t.overTLS || server.overTLS
		q.All = append(q.All, client.(*redis.Client)) // the address is of a single server
		// Until it answers:
		q.Wrong = append(q.Wrong, server.unusable("no answer within %v after those of a majority", straggler))
	}
	t.Where = strings.Join(names, ", ")
	wait := straggler
	if t.AskAll {
		wait = -1
	}
	enough := majority(len(all), wait, func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, t.patience)
		defer cancel()
		mode, err := ask(ctx, q.All[i], all[i].Protocol)
		switch {
		case err != nil:
			return servers[i].Explain(err)
		case mode == "sentinel" || mode == "cluster":
			return cli.Usagef("a quorum is made of single servers, and the one at %s belongs to a %s", servers[i].Where, mode)
		}
		return nil
	}, func(i int, err error) bool {
		q.Wrong[i] = err
		return err == nil
	})
	var bad error
	good := 0
	for i, wrong := range q.Wrong {
		switch {
		case wrong == nil:
			good++
			q.UniversalClient = cmp.Or(q.UniversalClient, redis.UniversalClient(q.All[i]))
		case cli.CodeOf(wrong) == cli.Usage: // it does not pass
			return nil, wrong
		default:
			bad = cmp.Or(bad, wrong)
		}
	}
	switch {
	case good == 0:
		return nil, bad
	case !enough:
		return nil, cli.Unavailablef("%d of %d servers answer, and a lock needs %d: %w", good, len(all), len(all)/2+1, bad)
	}
	return q, nil
}

// answering returns the servers that answer now: a majority, and others within wait. Without a majority it returns an error.
func (q *Quorum) answering(ctx context.Context, wait time.Duration) (good []*redis.Client, err error) {
	enough := majority(len(q.All), wait, func(i int) error {
		return q.All[i].Process(ctx, once{redis.NewCmd(ctx, "ping")})
	}, func(i int, failed error) bool {
		if failed != nil && !redis.HasErrorPrefix(failed, "NOPERM") { // that is an answer as well
			err = failed
			return false
		}
		good = append(good, q.All[i])
		return true
	})
	if !enough {
		return nil, err
	}
	return good, nil
}

// IsQuorum reports whether several servers are named.
func (t *Target) IsQuorum() bool {
	urls, _ := t.urlsOf()
	return len(urls) > 1
}
