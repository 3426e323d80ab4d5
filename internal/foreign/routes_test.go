package foreign_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislock/redislock/adapter"
	"github.com/redislock/redislock/internal/foreign"
	"github.com/redislock/redislock/internal/testing/bubble"
)

// moving is an adapter of a Cluster whose slots all move from one server to the next. It can do nothing else.
type moving struct {
	adapter.Conn

	owner atomic.Pointer[string]
	asked atomic.Int32
}

func (*moving) About() adapter.About { return adapter.About{Reach: adapter.Slots} }

func (m *moving) Slots(context.Context) ([]adapter.SlotRange, error) {
	m.asked.Add(1)
	return []adapter.SlotRange{{First: 0, Last: 16383, Address: *m.owner.Load()}}, nil
}

// A client follows redirections without a word, so the library asks once a minute where the slots are, if it is used.
func TestMovedSlots(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		first, second := "one:6379", "two:6379"
		m := &moving{}
		m.owner.Store(&first)
		conn, err := foreign.New(m)
		if err != nil {
			t.Fatal(err)
		}
		owner := func() string {
			t.Helper()
			node, err := conn.Node("key")
			if err != nil {
				t.Fatal(err)
			}
			if node == nil {
				return ""
			}
			return node.Address()
		}
		expect := func(address string, asked int32) {
			t.Helper()
			if found := owner(); found != address {
				t.Errorf("the key is at %q instead of %q", found, address)
			}
			synctest.Wait()
			if n := m.asked.Load(); n != asked {
				t.Errorf("asked %d times instead of %d", n, asked)
			}
		}
		expect("", 1) // nobody waits for the answer
		expect(first, 1)
		before, err := conn.Node("key")
		if err != nil {
			t.Fatal(err)
		}
		m.owner.Store(&second)
		time.Sleep(59 * time.Second)
		expect(first, 1)
		time.Sleep(2 * time.Second)
		expect(first, 2)
		expect(second, 2)
		if !before.Weak().IsGone() {
			t.Error("a node without slots is not gone")
		}

		// An error of a call may mean that slots have moved. However many there are, they ask four times a second at most.
		m.owner.Store(&first)
		time.Sleep(time.Second)
		for range 1000 {
			conn.Reload(t.Context())
		}
		synctest.Wait()
		expect(first, 3)
		time.Sleep(100 * time.Millisecond)
		conn.Reload(t.Context())
		expect(first, 3)
		time.Sleep(200 * time.Millisecond)
		conn.Reload(t.Context())
		expect(first, 4)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := m.asked.Load(); n != 4 {
			t.Errorf("asked %d times although nobody used it", n)
		}
	})
}
