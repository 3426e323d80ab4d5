package topology

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
)

// forget does a fault after which a server does not have the data that it had.
func forget(ctx context.Context, s *redistest.Server, f plan.Fault) (Harm, error) {
	var back Content
	var err error
	switch f.Kind {
	case plan.FlushAll:
		if err = ask(s, "flushall", "sync"); err != nil { // it may come when the server goes on
			err = errors.Join(err, eventually(10*time.Second, func() error { return ask(s, "ping") }))
		}
	case plan.RestartEmpty:
		err = errors.Join(s.Kill(), s.Forget())
		wait(ctx, f.For)
		err = errors.Join(err, s.Restart())
	case plan.RestartOld:
		back, err = goBack(ctx, s, f)
	default:
		err = fmt.Errorf("a server cannot forget by %q", f.Kind)
	}
	return Harm{Everything: true, Back: back}, err
}

// goBack restarts a server with the data that it had when goBack began, and returns them.
func goBack(ctx context.Context, s *redistest.Server, f plan.Fault) (Content, error) {
	dir, err := setting(s, "dir")
	if err != nil {
		return Content{}, err
	}
	appends, err := setting(s, "appendonly")
	if err != nil {
		return Content{}, err
	}
	old, err := os.MkdirTemp("", "old-")
	if err != nil {
		return Content{}, err
	}
	defer os.RemoveAll(old)
	saved := "dump.rdb"
	if appends == "yes" { // the file grows meanwhile, so the copy may end within a command, as after a power failure
		saved = "appendonlydir"
		err = os.CopyFS(filepath.Join(old, saved), os.DirFS(filepath.Join(dir, saved)))
	} else if err = ask(s, "save"); err == nil {
		err = os.Rename(filepath.Join(dir, saved), filepath.Join(old, saved))
	}
	if err != nil {
		return Content{}, err
	}
	wait(ctx, f.For)
	if err := errors.Join(s.Kill(), s.Forget()); err != nil {
		return Content{}, errors.Join(err, s.Restart())
	}
	if err := errors.Join(os.Rename(filepath.Join(old, saved), filepath.Join(dir, saved)), s.Restart()); err != nil {
		return Content{}, err
	}
	return lookSoon(s)
}

// setting returns a setting of a server.
func setting(s *redistest.Server, name string) (string, error) {
	client := Connect(s)
	defer client.Close()
	found, err := client.ConfigGet(context.Background(), name).Result()
	return found[name], err
}
