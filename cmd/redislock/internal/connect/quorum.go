package connect

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// Quorum is the servers of a quorum, in the order of their addresses on the command line. As a client of one server it is
// the first that answered.
type Quorum struct {
	redis.UniversalClient

	All   []*redis.Client
	Wrong []error // why a server could not be used when connecting; nil for those that answered
}

// Close ends all connections.
func (q *Quorum) Close() error {
	var errs []error
	for _, client := range q.All {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// NewLocks returns a Client of the library for what Connect has returned.
func NewLocks(client redis.UniversalClient, opts ...redislock.ClientOption) *redislock.Client {
	q, ok := client.(*Quorum)
	if !ok {
		return redislock.New(client, opts...)
	}
	var servers []redislock.RedisClient
	for _, server := range q.All {
		servers = append(servers, server)
	}
	return redislock.NewQuorum(servers, opts...)
}

// nextURL is where another URL begins in REDIS_URL.
var nextURL = regexp.MustCompile(`[\s,]+(?:rediss?|unix)(?:\+[a-z]+)?://`)

// splitURLs takes apart the value of REDIS_URL. Spaces and commas separate URLs, but only where another URL begins: commas
// also separate the hosts of one URL, and the error for a wrong URL must be about all of it.
func splitURLs(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	var urls []string
	for {
		at := nextURL.FindStringIndex(text)
		if at == nil {
			return append(urls, text)
		}
		urls = append(urls, text[:at[0]])
		text = strings.TrimLeft(text[at[0]:], " \t\r\n,")
	}
}

// straggler is how long a server may take longer to answer than a majority of a quorum. Otherwise one that hangs would
// hold up what the others can do, for longer than a command may wait.
const straggler = 100 * time.Millisecond

// greeted is what one server of a quorum says when connecting.
type greeted struct {
	i      int   // its place in the list
	wrong  error // why it cannot be used now; nil if it can
	failed error // why it never can
}

// connectAll connects to the servers of a quorum at the same time. A majority must answer. The others may come back.
func (t *Target) connectAll(ctx context.Context, all []*address) (redis.UniversalClient, error) {
	var names []string
	for _, a := range all {
		names = append(names, a.where)
		if a.single == nil {
			return nil, cli.Usagef("a quorum is made of single servers, and %s is not one", a.where)
		}
	}
	t.where = strings.Join(names, ", ")
	q := &Quorum{All: make([]*redis.Client, len(all)), Wrong: make([]error, len(all))}
	failed := make([]error, len(all)) // for good
	answers := make(chan greeted, len(all))
	asked := 0
	for i, a := range all {
		server := *t
		server.where = a.where
		var client redis.UniversalClient
		if client, failed[i] = server.dial(a); failed[i] != nil {
			continue
		}
		asked++
		q.All[i] = client.(*redis.Client) // the address is of a single server
		// Until it answers:
		q.Wrong[i] = server.unusable("no answer within %v after those of a majority", straggler)
		go func() { // ends with the answer, or after the patience
			ctx, cancel := context.WithTimeout(ctx, t.patience)
			defer cancel()
			got := greeted{i: i}
			mode, err := ask(ctx, client, a.protocol())
			switch {
			case err != nil:
				got.wrong = server.Explain(err)
			case mode == "sentinel" || mode == "cluster":
				got.failed = cli.Usagef("a quorum is made of single servers, and the one at %s belongs to a %s", a.where, mode)
			}
			answers <- got
		}()
	}
	var late <-chan time.Time
	for answered := 0; asked > 0; asked-- {
		select {
		case got := <-answers:
			q.Wrong[got.i], failed[got.i] = got.wrong, got.failed
			if got.wrong == nil && got.failed == nil {
				answered++
			}
		case <-late:
			asked = 1 // this was the last: nobody waits for the others
		}
		if answered > len(all)/2 && late == nil && !t.AskAll {
			late = time.After(straggler)
		}
	}
	good, bad := 0, error(nil)
	for i, client := range q.All {
		t.overTLS = t.overTLS || client != nil && client.Options().TLSConfig != nil
		if wrong := q.Wrong[i]; wrong != nil {
			bad = cmp.Or(bad, wrong)
		} else if good++; good == 1 {
			q.UniversalClient = client
		}
	}
	err := errors.Join(failed...)
	if need := len(all)/2 + 1; err == nil && good < need {
		err = bad
		if good > 0 {
			err = cli.Unavailablef("%d of %d servers answer, and a lock needs %d: %w", good, len(all), need, bad)
		}
	}
	if err != nil {
		for _, client := range q.All {
			if client != nil {
				_ = client.Close()
			}
		}
		return nil, err
	}
	return q, nil
}

// answering returns the servers that answer now: a majority, and those that answer no more than wait later. If there is no
// majority, it returns an error.
func (q *Quorum) answering(ctx context.Context, wait time.Duration) ([]*redis.Client, error) {
	type answer struct {
		server *redis.Client
		err    error
	}
	answers := make(chan answer, len(q.All))
	for _, server := range q.All {
		go func() { answers <- answer{server, server.Process(ctx, once{redis.NewCmd(ctx, "ping")})} }()
	}
	var good []*redis.Client
	var last error
	var late <-chan time.Time
	for range q.All {
		select {
		case a := <-answers:
			if a.err != nil && !redis.HasErrorPrefix(a.err, "NOPERM") { // that is an answer as well
				last = a.err
				continue
			}
			good = append(good, a.server)
		case <-late:
			return good, nil
		}
		if len(good) > len(q.All)/2 && late == nil {
			late = time.After(wait)
		}
	}
	if late == nil {
		return nil, last
	}
	return good, nil
}

// IsQuorum reports whether several servers are named.
func (t *Target) IsQuorum() bool {
	urls, _ := t.urlsOf()
	return len(urls) > 1
}

// NoQuorum returns a usage error if several servers are named, for what works on one only.
func (t *Target) NoQuorum(what string) error {
	if t.IsQuorum() {
		return cli.Usagef("%s does not work on a quorum of servers", what)
	}
	return nil
}
