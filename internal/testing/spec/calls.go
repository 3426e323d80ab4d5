package spec

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// CallCount counts the scripts that servers are asked to run for some caller, so beats do not count.
type CallCount struct {
	match func(args []string) bool // of those that count; nil for all

	mu sync.Mutex // protects n
	n  int
}

// DialHook is part of [redis.Hook].
func (c *CallCount) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is part of [redis.Hook].
func (c *CallCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.counts(cmd) {
			c.Add(1)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook is part of [redis.Hook].
func (c *CallCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if c.counts(cmd) {
				n, _ := callsIn(cmd)
				c.Add(n)
			}
		}
		return next(ctx, cmds)
	}
}

func (c *CallCount) counts(cmd redis.Cmder) bool {
	if !strings.HasPrefix(cmd.Name(), "evalsha") {
		return false
	}
	words := Words(cmd)
	if c.match != nil {
		return c.match(words)
	}
	return !isBeat(words)
}

// Words returns the name and the arguments of a command as text.
func Words(cmd redis.Cmder) []string {
	words := make([]string, len(cmd.Args()))
	for i, arg := range cmd.Args() {
		words[i] = fmt.Sprint(arg)
	}
	return words
}

// Add counts n more.
func (c *CallCount) Add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

// Count returns how many calls there were.
func (c *CallCount) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// CountCalls counts the scripts that client sends from now on.
func CountCalls(client *redis.Client) *CallCount {
	c := &CallCount{}
	AddHook(client, c)
	return c
}

// CountBeats counts the beats that client sends from now on.
func CountBeats(client *redis.Client) *CallCount {
	c := &CallCount{match: isBeat}
	AddHook(client, c)
	return c
}

// PipelineCount counts pipelines and the calls in them.
type PipelineCount struct {
	CallCount
	together int
	joint    int // commands for several calls
}

// ProcessPipelineHook is part of [redis.Hook].
func (p *PipelineCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") { // and not the greetings of a new connection
			p.mu.Lock()
			p.n++
			for _, cmd := range cmds {
				n, isJoint := callsIn(cmd)
				p.together += n
				if isJoint {
					p.joint++
				}
			}
			p.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

// Counts returns how many pipelines were sent, and how many calls were in them.
func (p *PipelineCount) Counts() (sent, together int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n, p.together
}

var isBeat = Running("beat")

var joint = []func(args []string) bool{Running("obtain_each"), Running("release_each")}

// JointCount returns how many commands were for several calls.
func (p *PipelineCount) JointCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.joint
}

// callsIn returns how many calls a command is for, and whether it is one for several.
func callsIn(cmd redis.Cmder) (n int, isJoint bool) {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return 0, false
	}
	args := Words(cmd)
	for _, matches := range joint {
		if matches(args) {
			return cmd.Args()[2].(int) / 2, true
		}
	}
	return 1, false
}
