package topology

import (
	"slices"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/testing/need"
	"github.com/redislock/redislock/torture/internal/plan"
)

// start starts the servers of a topology, which end with the test.
func start(t *testing.T, name string) Topology {
	t.Helper()
	need.Server(t)
	started, err := Start(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = started.Close() })
	return started
}

func TestAServerGoesBackOrForgets(t *testing.T) {
	for _, name := range []string{"memory+guard", "quorum+guard"} {
		started := start(t, name)
		s := started.Servers()[0]
		client := Connect(s)
		t.Cleanup(func() { _ = client.Close() })
		ctx := t.Context()
		value := func() string {
			text, _ := client.Get(ctx, "key").Result()
			return text
		}
		if err := client.Set(ctx, "key", "old", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		injected := make(chan error)
		var harm Harm
		go func() {
			var err error
			harm, err = started.Inject(ctx, plan.Fault{Kind: plan.RestartOld, For: time.Second})
			injected <- err
		}()
		time.Sleep(500 * time.Millisecond)
		if err := client.Set(ctx, "key", "new", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := <-injected; err != nil {
			t.Fatal(err)
		}
		if got, told := value(), harm.Back.Keys["key"][0]; got != "old" || told.Value != got || told.TTL <= 0 {
			t.Errorf("%s: after it went back, it has %q, and is said to have %+v", name, got, told)
		}
		for _, kind := range []plan.Kind{plan.FlushAll, plan.RestartEmpty} {
			if err := client.Set(ctx, "key", "old", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			if _, err := forget(ctx, s, plan.Fault{Kind: kind}); err != nil {
				t.Fatal(err)
			}
			if got := value(); got != "" {
				t.Errorf("%s: after %s, it has %q", name, kind, got)
			}
		}
	}
}

// A server of a quorum that forgets can break a lock whose keys a bare majority holds, or held before a release.
func TestAServerOfAQuorumForgetsTheKeysOfABareMajority(t *testing.T) {
	started := start(t, "quorum")
	for i, s := range started.Servers() {
		client := Connect(s)
		for key, at := range map[string]int{"one": 1, "three": 3, "four": 4, "five": 5} { // servers, the first of which forgets
			if i >= at {
				continue
			}
			if err := client.Set(t.Context(), key, "value", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
		_ = client.Close()
	}
	harm, err := started.Inject(t.Context(), plan.Fault{Kind: plan.ForgetServer})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"one", "three"}; !slices.Equal(harm.Keys, want) {
		t.Errorf("it can break %v, want %v", harm.Keys, want)
	}
	client := Connect(started.Servers()[0])
	defer client.Close()
	if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("it still has %d keys, %v", n, err)
	}
}
