package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Restrict makes a user who may use all keys, and otherwise what rights says, such as "+eval" or "&inbox:*". A user of
// that name is replaced.
func (s *Server) Restrict(user, password string, rights ...string) error {
	return s.with(func(client *redis.Client) error {
		args := []any{"acl", "setuser", user, "reset", "on", ">" + password, "~*"}
		for _, right := range rights {
			args = append(args, right)
		}
		return client.Do(context.Background(), args...).Err()
	})
}

// Observe calls f, and returns which commands the server has run meanwhile, also those in scripts, and which it has denied
// to a user, as "reason:object". Both are sorted, and commands are without subcommands and in upper case. The commands that
// every connection sends, HELLO and CLIENT, are not among them. Nobody else should use the server meanwhile.
func (s *Server) Observe(f func()) (ran, denied []string, err error) {
	err = s.with(func(client *redis.Client) error {
		ctx := context.Background()
		if err := client.ConfigResetStat(ctx).Err(); err != nil {
			return err
		}
		if err := client.Do(ctx, "acl", "log", "reset").Err(); err != nil {
			return err
		}
		f()
		stats, err := client.Info(ctx, "commandstats").Result()
		if err != nil {
			return err
		}
		ran = commandsIn(stats)
		denied, err = denials(client.Do(ctx, "acl", "log").Slice())
		return err
	})
	return ran, denied, err
}

// commandsIn returns the commands that INFO commandstats has counted, without those of Observe itself.
func commandsIn(stats string) []string {
	var names []string
	for line := range strings.SplitSeq(stats, "\r\n") {
		name, counts, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if !ok || strings.HasPrefix(counts, "calls=0,") || name == "config|resetstat" || name == "acl|log" || name == "acl" {
			continue
		}
		if name, _, _ = strings.Cut(name, "|"); name != "hello" && name != "client" {
			names = append(names, strings.ToUpper(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// denials reads the reply of ACL LOG.
func denials(entries []any, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	var all []string
	for _, entry := range entries {
		fields, ok := entry.([]any)
		if !ok {
			return nil, fmt.Errorf("an entry of ACL LOG is %v", entry)
		}
		about := map[any]any{}
		for i := 0; i+1 < len(fields); i += 2 {
			about[fields[i]] = fields[i+1]
		}
		if denied := fmt.Sprintf("%v:%v", about["reason"], about["object"]); !strings.HasPrefix(denied, "command:client") {
			all = append(all, denied)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
