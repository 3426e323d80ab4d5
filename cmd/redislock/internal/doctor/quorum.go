package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/connect"
)

// examineQuorum checks every server of a quorum that answers, and then what concerns all of them together.
func (d *doctor) examineQuorum(ctx context.Context, q *connect.Quorum) []finding {
	var all []finding
	ids := map[string][]string{} // addresses by run id
	silent := 0
	for i, server := range q.All {
		addr := server.Options().Addr
		var found []finding
		if wrong := q.Wrong[i]; wrong != nil {
			silent++
			none := isBad.says("none", wrong.Error(), "start it: without it, the quorum survives one failure less")
			found = append(found, none.as("answer"))
		} else {
			f := learn(ctx, server)
			if id := f.info["run_id"]; id != "" {
				ids[id] = append(ids[id], addr)
			}
			one := doctor{opt: d.opt, target: d.target, client: server}
			found = append(one.examineServer(ctx, server, f), one.tryMessages(ctx))
			d.user = one.user
		}
		for _, f := range found {
			f.Server = addr
			if f.Check == "persistence" && f.Status > isUnknown { // the other servers keep the locks that one forgets
				f.Status = isWarning
				f.Why = "a lock is lost if so many servers forget it within one ttl that no majority is left"
			}
			if f.Check != "cluster" { // a quorum has none
				all = append(all, f)
			}
		}
	}
	return append(all, size(len(q.All)).as("quorum"), identity(ids, len(q.All)-silent).as("identity"), d.tryLock(ctx, q.All[0]))
}

func size(n int) finding {
	text := fmt.Sprintf("%d servers, of which %d can fail", n, n-n/2-1)
	if n%2 == 0 {
		return isWarning.says(text, "one server less survives as many failures, with fewer split votes", "use three or five servers")
	}
	return ok("%s", text)
}

// identity checks that no server is there twice. ids are the addresses by run id; answered is how many servers answered.
func identity(ids map[string][]string, answered int) finding {
	known := 0
	for _, addrs := range ids {
		known += len(addrs)
		if len(addrs) > 1 {
			return isBad.says(strings.Join(addrs, " and ")+" are one server",
				"it has more than one vote, so one failure can end or break every lock",
				"name each server once; check DNS names and port forwarding")
		}
	}
	if known < answered {
		return isUnknown.says(fmt.Sprintf("%d of %d servers do not say their run id", answered-known, answered),
			"two addresses of one server would fake a majority",
			"ask an administrator for the run_id in the output of INFO server, on each")
	}
	return ok("%d different servers", answered)
}
