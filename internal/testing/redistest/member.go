package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A member is what a node of a cluster says about itself.
type member struct {
	node   *Server
	id     string
	epoch  int
	ranges [][2]int // the slots it serves as a master, from and to
}

func (m member) owns(slot int) bool {
	for _, r := range m.ranges {
		if r[0] <= slot && slot <= r[1] {
			return true
		}
	}
	return false
}

// members asks each node that runs. With an error it returns those that answered.
func (c *Cluster) members() ([]member, error) {
	var members []member
	var errs []error
	for _, node := range c.nodes {
		if node.Pid() == 0 {
			continue
		}
		errs = append(errs, node.with(func(client *redis.Client) error {
			nodes, err := client.ClusterNodes(context.Background()).Result()
			if err != nil {
				return err
			}
			m, err := parseSelf(nodes)
			if err != nil {
				return err
			}
			m.node = node
			members = append(members, m)
			return nil
		}))
	}
	return members, errors.Join(errs...)
}

// ownerOf returns the member that serves slot. If two claim it, the one with the
// older epoch has merely not heard of the other yet.
func ownerOf(members []member, slot int) (owner member, ok bool) {
	for _, m := range members {
		if m.owns(slot) && (!ok || m.epoch > owner.epoch) {
			owner, ok = m, true
		}
	}
	return owner, ok
}

// parseSelf finds the line about the node itself in the reply of CLUSTER NODES:
//
//	<id> <addr> <flags> <master> <ping> <pong> <epoch> <link> <slot or range>…
func parseSelf(nodes string) (member, error) {
	for line := range strings.SplitSeq(nodes, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "myself") {
			continue
		}
		epoch, err := strconv.Atoi(fields[6])
		if err != nil {
			return member{}, err
		}
		m := member{id: fields[0], epoch: epoch}
		for _, field := range fields[8:] {
			if strings.HasPrefix(field, "[") { // a slot on its way in or out
				continue
			}
			first, last, isRange := strings.Cut(field, "-")
			if !isRange {
				last = first
			}
			from, err1 := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err := errors.Join(err1, err2); err != nil {
				return member{}, err
			}
			m.ranges = append(m.ranges, [2]int{from, to})
		}
		return m, nil
	}
	return member{}, fmt.Errorf("no line about the node itself in %q", nodes)
}
