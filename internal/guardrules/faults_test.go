package guardrules_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/history"
)

// fail makes servers forget until ctx ends.
func (m *model) fail(over context.Context) {
	for over.Err() == nil {
		pause := 150*time.Millisecond + m.upTo(2*m.maxTTL+2*m.deposed)
		switch {
		case m.parted && m.intN(2) == 0:
			pause = 400*time.Millisecond + m.upTo(600*time.Millisecond)
		case m.custom:
			pause = 1300*time.Millisecond + m.upTo(700*time.Millisecond)
		}
		time.Sleep(pause)
		if over.Err() != nil {
			return
		}
		servers := m.groups
		if m.quorum {
			at, many := m.intN(len(servers)), 1+m.intN(len(servers))
			servers = slices.Concat(servers[at:], servers[:at])[:many]
		}
		switch what := m.intN(m.flush + m.restart + m.unmark + m.failover); {
		case what < m.flush:
			for _, g := range servers {
				master, _ := g.nodes()
				master.Memory.FlushAll()
			}
			m.forgotten()
		case what < m.flush+m.restart:
			m.restartAll(servers)
		case what < m.flush+m.restart+m.unmark:
			for _, g := range servers {
				master, _ := g.nodes()
				master.Memory.Del(keyname.GuardMarker)
			}
		default:
			m.takeOver(servers[0])
		}
	}
}

// restartAll restarts the masters. Each has nothing afterwards, or what it had a while ago, or all.
func (m *model) restartAll(servers []*group) {
	for _, g := range servers {
		master, _ := g.nodes()
		master.Refuse()
	}
	for _, g := range servers {
		master, _ := g.nodes()
		switch m.intN(5) {
		case 0:
			master.Memory.FlushAll()
		case 1:
		default:
			master.restore(master.ago(m.upTo(1400 * time.Millisecond)))
		}
		if m.custom {
			master.restore(master.ago(m.upTo(500 * time.Millisecond)))
		}
		master.start()
	}
	m.forgotten()
	down := 200 * time.Millisecond
	if m.custom {
		down = 20 * time.Millisecond
	}
	time.Sleep(m.upTo(down))
	for _, g := range servers {
		master, _ := g.nodes()
		master.Revive()
	}
}

// takeOver makes the replica the master. It lacks the last writes or, if it has not received the past of the master since it
// was one itself, all writes since then. The old master goes on for a while, for the clients that still take it for the
// master. Sometimes it stands still first, and then executes what has arrived meanwhile.
func (m *model) takeOver(g *group) {
	old, next := g.nodes()
	hangs := m.intN(4) == 0
	if hangs {
		old.Hang()
		time.Sleep(m.upTo(200 * time.Millisecond))
	}
	stays := m.deposed
	if m.intN(2) == 0 {
		stays = m.upTo(m.deposed)
	}
	if next.isSynced() {
		next.restore(old.ago(m.upTo(400 * time.Millisecond)))
	}
	next.Revive()
	next.promote(m.without.sameRun)
	promoted := time.Now()
	g.swap()
	for client := range clients {
		if m.intN(2) == 0 {
			g.point(client+1, next)
		}
	}
	m.forgotten()
	if hangs {
		time.Sleep(m.upTo(stays))
		old.Resume()
	}
	time.Sleep(stays - time.Since(promoted) - 1)
	old.Refuse()
	old.Resume()
	old.self.Follow(next.self.ID())
	for client := range clients {
		g.point(client+1, next)
	}
	old.setSynced(!m.parted && m.intN(2) == 0)
}

// stall makes clients stand still.
func (m *model) stall(over context.Context) {
	for over.Err() == nil {
		time.Sleep(m.upTo(2 * time.Second))
		client, until := 1+m.intN(clients), time.Now().Add(m.upTo(2*m.maxTTL))
		m.fates.Lock()
		m.stopped[client] = until
		m.fates.Unlock()
	}
}

// holds returns what a node holds, apart from what lasts.
func (n *node) holds() (all []history.Held) {
	for _, key := range n.Memory.Keys() {
		if slices.Contains(lastingKeys, key) {
			continue
		}
		for token, left := range n.Holders(key) {
			all = append(all, history.Held{Key: strings.ReplaceAll(key, " ", "_"), Owner: token, TTL: left})
		}
	}
	return all
}
