package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func newCluster(t *testing.T, masters, replicasPerMaster int) *Cluster {
	t.Helper()
	needRedis(t)
	began := time.Now()
	c, err := StartCluster(masters, replicasPerMaster)
	must(t, err)
	t.Logf("started in %v", time.Since(began))
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

func TestClusterServesAllSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 0)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), MaxRedirects: -1})
	defer client.Close()
	masters := make(map[*Server]bool)
	for i := range 100 {
		key := fmt.Sprint("key", i)
		must(t, client.Set(t.Context(), key, "v", 0).Err())
		master, err := c.MasterOf(key)
		must(t, err)
		masters[master] = true
		// Without a redirection, which a client of one node does not follow.
		must(t, connect(t, master).Get(t.Context(), key).Err())
	}
	if len(masters) != 3 {
		t.Errorf("%d masters serve the keys, want 3", len(masters))
	}
}

func TestClusterOfOneMaster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 0)
	if _, err := c.MasterOf("key"); err != nil {
		t.Error(err)
	}
	if m, err := c.BeginMigration(0); err == nil {
		t.Errorf("slot 0 migrates to %s, which is no other master", m.Target().Addr())
	}
}

func TestMigrationInSteps(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 0)
	ctx, slot := t.Context(), SlotOf("{tag}")
	owner, err := c.MasterOf("{tag}")
	must(t, err)
	const keys = 250 // more than one batch
	for i := range keys {
		must(t, connect(t, owner).Set(ctx, fmt.Sprint("{tag}", i), "v", 0).Err())
	}

	m, err := c.BeginMigration(slot)
	must(t, err)
	if m.Source() != owner || m.Target() == owner {
		t.Fatalf("slot of %s migrates from %s to %s", owner.Addr(), m.Source().Addr(), m.Target().Addr())
	}
	source, target := connect(t, m.Source()), connect(t, m.Target())
	ask := fmt.Sprintf("ASK %d %s", slot, m.Target().Addr())
	moved := fmt.Sprintf("MOVED %d %s", slot, m.Target().Addr())
	wantError := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	must(t, source.Get(ctx, "{tag}0").Err())
	wantError(source.Get(ctx, "{tag}none").Err(), ask)
	wantError(source.MGet(ctx, "{tag}0", "{tag}none").Err(), "TRYAGAIN")
	if err := m.Finish(); err == nil {
		t.Error("Finish does not mind the keys that are left")
	}

	must(t, m.MoveKeys())
	wantError(source.Get(ctx, "{tag}0").Err(), ask)

	must(t, m.Finish())
	wantError(source.Get(ctx, "{tag}0").Err(), moved)
	if n, err := target.ClusterCountKeysInSlot(ctx, slot).Result(); n != keys || err != nil {
		t.Errorf("the target has %d keys, %v, want %d", n, err, keys)
	}
	if owner, err := c.MasterOf("{tag}"); owner != m.Target() {
		t.Errorf("the master is %v, %v, want the target", owner, err)
	}
}

func TestClusterReplacesAMaster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	old, err := c.MasterOf("key")
	must(t, err)
	connect(t, old).Set(t.Context(), "key", "v", 0)
	must(t, connect(t, old).Wait(t.Context(), 1, time.Second).Err(), old.Kill())

	began := time.Now()
	must(t, c.Settle())
	t.Logf("replaced in %v", time.Since(began))
	now, err := c.MasterOf("key")
	must(t, err)
	if now == old {
		t.Fatal("the master is the one that was killed")
	}
	must(t, connect(t, now).Get(t.Context(), "key").Err())

	must(t, old.Restart(), c.Settle())
	if again, err := c.MasterOf("key"); again != now {
		t.Errorf("after the return of the old master it is %v, %v", again, err)
	}
}
