package topology

import (
	"os"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
)

func TestAServerGoesBackOrForgets(t *testing.T) {
	if err := redistest.Available(); err != nil {
		if os.Getenv("REDISLOCK_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, name := range []string{"memory+guard", "quorum+guard"} {
		started, err := Start(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = started.Close() })
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
		harm := make(chan error)
		go func() {
			_, err := started.Inject(ctx, plan.Fault{Kind: plan.RestartOld, For: time.Second})
			harm <- err
		}()
		time.Sleep(500 * time.Millisecond)
		if err := client.Set(ctx, "key", "new", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := <-harm; err != nil {
			t.Fatal(err)
		}
		if got := value(); got != "old" {
			t.Errorf("%s: after it went back, it has %q", name, got)
		}
		for _, kind := range []plan.Kind{plan.FlushAll, plan.RestartEmpty} {
			if err := client.Set(ctx, "key", "old", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			if err := forget(ctx, s, plan.Fault{Kind: kind}); err != nil {
				t.Fatal(err)
			}
			if got := value(); got != "" {
				t.Errorf("%s: after %s, it has %q", name, kind, got)
			}
		}
	}
}
