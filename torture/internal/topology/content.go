package topology

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/clock"
)

// Look returns what a server has.
func Look(ctx context.Context, client *redis.Client) (Content, error) {
	return content(askAll(ctx, client))
}

// look returns what a server has.
func look(s *redistest.Server) (Content, error) {
	client := Connect(s)
	defer client.Close()
	return Look(context.Background(), client)
}

// lookSoon returns what a server has, and waits for a while if it does not answer.
func lookSoon(s *redistest.Server) (c Content, err error) {
	err = eventually(2*time.Second, func() error {
		c, err = look(s)
		return err
	})
	return c, err
}

// askAll asks for all keys, each with its value and its ttl, and for those who hold the shared ones, at one moment.
func askAll(ctx context.Context, c redis.Scripter) *redis.Cmd {
	return c.Eval(ctx, `
		local time = redis.call('TIME')
		local found = { time[1] * 1000 + math.floor(time[2] / 1000) }
		for _, key in ipairs(redis.call('KEYS', '*')) do
			local kind, value = redis.call('TYPE', key).ok, ''
			if kind == 'string' then
				value = redis.call('GET', key)
			elseif string.find(key, ':redislock:house$') then
				value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
			end
			found[#found + 1] = key
			found[#found + 1] = value
			found[#found + 1] = redis.call('PTTL', key)
		end
		return found`, nil)
}

// content reads the answer to askAll.
func content(answer *redis.Cmd) (Content, error) {
	found, err := answer.Slice()
	c := Content{At: clock.Now(), Keys: map[string][]Stored{}}
	if err != nil {
		return c, err
	}
	now, _ := found[0].(int64)
	houses := map[string]house{}
	for i := 1; i+2 < len(found); i += 3 {
		key, _ := found[i].(string)
		value, _ := found[i+1].(string)
		left, _ := found[i+2].(int64)
		if members, ok := found[i+1].([]any); ok {
			houses[key] = readHouse(members)
		}
		c.Keys[key] = []Stored{{Value: value, TTL: time.Duration(left) * time.Millisecond}}
	}
	for key, stored := range c.Keys {
		if stored[0].Value == keyname.SharedMark {
			if holders := houses[keyname.HouseOf(key)].holders(now, stored[0].TTL); len(holders) > 0 {
				c.Keys[key] = holders
			}
		}
	}
	return c, nil
}

// house says who holds a shared key: see internal/script/shared.lua.
type house struct {
	ends     map[string]int64  // by token, in ms of the server's clock
	metadata map[string]string // by token
}

func readHouse(members []any) house {
	h := house{map[string]int64{}, map[string]string{}}
	for i := 0; i+1 < len(members); i += 2 {
		member, _ := members[i].(string)
		text, _ := members[i+1].(string)
		score, _ := strconv.ParseFloat(text, 64)
		if rest, ok := strings.CutPrefix(member, "meta "); ok {
			token, metadata, _ := strings.Cut(rest, " ") // no token of the workers has a space
			h.metadata[token] = metadata
		} else if score > 0 {
			h.ends[member] = int64(score)
		}
	}
	return h
}

// holders returns the holders whose hold lasts. No hold lasts longer than its key.
func (h house) holders(now int64, left time.Duration) (all []Stored) {
	for token, ends := range h.ends {
		if ends <= now {
			continue
		}
		value := token
		if metadata := h.metadata[token]; metadata != "" {
			value += " " + metadata
		}
		all = append(all, Stored{Value: value, TTL: min(left, time.Duration(ends-now)*time.Millisecond)})
	}
	return all
}
