package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestSentinelReplacesAMaster(t *testing.T) {
	t.Parallel()
	needRedis(t)
	began := time.Now()
	s, err := StartSentinel()
	must(t, err)
	t.Logf("started in %v", time.Since(began))
	t.Cleanup(func() { must(t, s.Close()) })

	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    s.MasterName(),
		SentinelAddrs: s.Addrs(),
	})
	defer client.Close()
	must(t, client.Set(t.Context(), "k", "v", 0).Err(), client.Wait(t.Context(), 1, time.Second).Err())
	must(t, s.KillMaster())

	began = time.Now()
	must(t, poll(nil, settleLimit, func() error { return client.Set(t.Context(), "k2", "v", 0).Err() }))
	t.Logf("replaced in %v", time.Since(began))
	if n, err := connect(t, s.Replica()).DBSize(t.Context()).Result(); n != 2 || err != nil {
		t.Errorf("the replica has %d keys, %v, want 2", n, err)
	}
}
