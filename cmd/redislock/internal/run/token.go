package run

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/claim"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
)

// checkToken returns a usage error if the flags about tokens cannot be used.
func (f *runFlags) checkToken() error {
	switch {
	case f.hasToken && f.token == "":
		return cli.Usagef("--token is empty; without --token, redislock makes up a new one")
	case strings.ContainsFunc(f.token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return cli.Usagef("--token %q contains white space or a control character", f.token)
	case f.share && !f.hasToken:
		return cli.Usagef("--share needs --token T; to share the locks of the run around this one, use --reenter")
	case f.reenter && f.hasToken:
		return cli.Usagef("--reenter and --token exclude each other: --reenter takes $%s", claim.TokenVariable)
	}
	return nil
}

// tokenFor returns the token for the locks, "" for a random one, or an error if this run would wait for itself, or would
// join a lock of another process without --share.
func (f *runFlags) tokenFor(ctx context.Context, h *hold) (string, error) {
	outer := claim.OuterTokens(h.Env)
	token, shared := f.token, ""
	if f.reenter {
		if h.Getenv(claim.TokenVariable) == "" {
			return "", cli.Usagef("--reenter is for a run inside another run, but %s is not set", claim.TokenVariable)
		}
		token = outer[0]
	}
	if f.reenter || f.share {
		shared = token
	}
	if len(outer) == 0 && (!f.hasToken || f.share) {
		return token, nil
	}
	var statuses []redislock.Status
	err := f.Bear(ctx, h.Target, func() (err error) {
		statuses, err = h.Locks.Inspect(ctx, f.Keys...)
		return err
	})
	if err != nil {
		return "", f.Unreachable(ctx, h.Target, err)
	}
	if err := f.CheckNesting(h.Env, statuses, shared); err != nil {
		return "", err
	}
	for _, s := range statuses {
		if f.hasToken && !f.share && s.TTL != 0 && s.Token == f.token {
			const words = "%q is already held with this token; to share that lock, add --share"
			if f.NoWait() {
				return "", f.Refuse(words, s.Key)
			}
			return "", cli.Usagef(words, s.Key)
		}
	}
	return token, nil
}

// renaming gives the keys of ARGV[1] the token ARGV[2], or none of them. It returns whether it has.
var renaming = redis.NewScript(`
local values = {}
for i, key in ipairs(KEYS) do
	local value = redis.call('GET', key) or ''
	for _, token in ipairs(ARGV) do
		if value == token or string.sub(value, 1, #token + 1) == token .. ' ' then
			values[i] = ARGV[2] .. string.sub(value, #token + 1)
		end
	end
	if not values[i] then
		return 0
	end
end
for i, key in ipairs(KEYS) do
	redis.call('SET', key, values[i], 'KEEPTTL')
end
return 1`)

// rename gives a lock that was acquired with a random token the token of the user. A lock that was acquired with that token
// right away would share the keys with everybody who uses the same token at the same moment. After an error, either
// token may hold the keys.
func rename(
	ctx context.Context, s *connect.Session, lock *redislock.Lock, token string, ttl time.Duration,
) (*redislock.Lock, error) {
	switch done, err := renaming.Run(ctx, s.Client, lock.Keys(), lock.Token(), token).Int(); {
	case err != nil:
		return nil, err
	case done == 0:
		return nil, redislock.ErrLockNotHeld
	}
	renamed, err := s.Locks.Attach(ctx, lock.Keys(), token)
	if err != nil {
		return nil, err
	}
	return renamed, renamed.Refresh(ctx, ttl, nil) // an attached lock has no ttl yet that could be renewed
}
