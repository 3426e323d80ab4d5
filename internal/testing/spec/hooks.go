package spec

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Wrapper is a client of a caller's own, which must see every call.
type Wrapper struct {
	redis.Scripter
	mu   sync.Mutex // protects Seen
	Seen []string
}

// EvalSha is part of [redis.Scripter].
func (w *Wrapper) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Seen = append(w.Seen, fmt.Sprint("evalsha ", keys, " ", args))
	return w.Scripter.EvalSha(ctx, sha, keys, args...)
}

// Eval is part of [redis.Scripter].
func (w *Wrapper) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Seen = append(w.Seen, fmt.Sprint("eval ", keys, " ", args))
	return w.Scripter.Eval(ctx, script, keys, args...)
}

// AroundHook is a hook that runs what it is given before and after each command, in a pipeline or not.
type AroundHook struct{ Before, After func(cmd redis.Cmder) }

// DialHook is part of [redis.Hook].
func (a *AroundHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook is part of [redis.Hook].
func (a *AroundHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer a.each(a.After, cmds...)
		a.each(a.Before, cmds...)
		return next(ctx, cmds)
	}
}

// ProcessHook is part of [redis.Hook].
func (a *AroundHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer a.each(a.After, cmd)
		a.each(a.Before, cmd)
		return next(ctx, cmd)
	}
}

func (a *AroundHook) each(look func(cmd redis.Cmder), cmds ...redis.Cmder) {
	if look != nil {
		for _, cmd := range cmds {
			look(cmd)
		}
	}
}

// IsRelease reports whether a command is the script by its hash; hooks see those of the handshake as well.
func IsRelease(cmd redis.Cmder) bool { return isScript(cmd, "release") }

// IsRefresh is isRelease for the script of a refresh.
func IsRefresh(cmd redis.Cmder) bool { return isScript(cmd, "refresh") }

func isScript(cmd redis.Cmder, name string) bool {
	return cmd.Name() == "evalsha" && Running(name)([]string{"evalsha", cmd.Args()[1].(string)})
}

// PrefixHook is a hook that puts the name of a tenant before every key.
type PrefixHook struct {
	Prefix     func(ctx context.Context) string
	AloneOnly  bool // it does not look at pipelines
	Alone      atomic.Int32
	Pipelined  atomic.Int32
	Unprefixed atomic.Int32
}

// DialHook is part of [redis.Hook].
func (p *PrefixHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is part of [redis.Hook].
func (p *PrefixHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.rewrite(ctx, cmd, &p.Alone)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook is part of [redis.Hook].
func (p *PrefixHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if !p.AloneOnly {
				p.rewrite(ctx, cmd, &p.Pipelined)
			}
		}
		return next(ctx, cmds)
	}
}

func (p *PrefixHook) rewrite(ctx context.Context, cmd redis.Cmder, count *atomic.Int32) {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return
	}
	count.Add(1)
	prefix, args := p.Prefix(ctx), cmd.Args()
	if prefix == "" {
		p.Unprefixed.Add(1)
	}
	for i := range args[2].(int) {
		args[3+i] = prefix + args[3+i].(string)
	}
}

type tenantKey struct{}

// WithTenant returns a ctx from which ByTenant takes the prefix.
func WithTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// ByTenant is a prefix for PrefixHook: the tenant that WithTenant put into ctx.
func ByTenant(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// AppPrefix is a prefix for PrefixHook that is the same for all calls.
func AppPrefix(context.Context) string { return "app:" }
