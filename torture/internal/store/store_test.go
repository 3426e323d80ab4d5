package store_test

import (
	"path/filepath"
	"testing"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/store"
)

func TestAWriteWithALowerTokenIsRefused(t *testing.T) {
	dir := t.TempDir()
	log, err := history.Create(filepath.Join(dir, "log"), "store")
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Listen(filepath.Join(dir, "socket"), log)
	if err != nil {
		t.Fatal(err)
	}
	c, err := store.Dial(filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, write := range []struct {
		key   string
		fence int64
		taken bool
	}{{"a", 5, true}, {"a", 5, true}, {"a", 4, false}, {"b", 4, true}, {"a", 6, true}, {"a", 5, false}} {
		taken, err := c.Write("w1/1", write.key, write.fence)
		if err != nil || taken != write.taken {
			t.Errorf("%+v: %v, %v", write, taken, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Write("w1/1", "a", 9); err == nil {
		t.Error("a closed store took a write")
	}
	r, err := history.Open(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	events, err := r.Read()
	if err != nil || len(events) != 6 || events[2].Outcome != "refused" || events[3].FenceKey != "b" {
		t.Errorf("the log says %v, %v", events, err)
	}
}
