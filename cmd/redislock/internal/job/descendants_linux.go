package job

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const getTermios, setTermios = unix.TCGETS, unix.TCSETS

// adopt makes this process the parent of descendants whose parent has ended, whatever session or group they are in.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

type process struct {
	pid, parent, group int
	name               string
}

// descendants returns the live descendants of this process. ok is false if /proc does not tell.
func descendants() (all []process, ok bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	children := map[int][]process{} // by parent; a zombie has none
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if p, live := readProcess(pid); live {
				children[p.parent] = append(children[p.parent], p)
				ok = true
			}
		}
	}
	all = children[os.Getpid()]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].pid]...)
	}
	return all, ok
}

// readProcess reads /proc/PID/stat: "PID (NAME) STATE PARENT GROUP …". A name may hold anything, also parentheses.
func readProcess(pid int) (p process, live bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if err != nil || begin < 0 || end < begin {
		return p, false
	}
	p = process{pid: pid, name: string(stat[begin+1 : end])}
	state := ""
	n, _ := fmt.Sscan(string(stat[end+1:]), &state, &p.parent, &p.group)
	return p, n == 3 && state != "Z" && state != "X"
}

// left returns the descendants that this process could end: all but the guardian, and those of another user.
func (c *Child) left() (all []process, ok bool) {
	all, ok = descendants()
	return slices.DeleteFunc(all, func(p process) bool { return p.pid == c.guardian || c.isForeign(p) }), ok
}

// Sweep asks those descendants to end that have left the group and whose parent has ended. The others have a parent that got
// the signal and may pass it on; they must not get it twice.
func (c *Child) Sweep() {
	all, _ := c.left()
	for _, p := range all {
		if p.parent != os.Getpid() || p.group == c.pid || c.asked[p.pid] {
			continue
		}
		c.asked[p.pid] = true
		_ = syscall.Kill(p.pid, syscall.SIGTERM)
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
	}
}

func (c *Child) killLeft() {
	all, _ := c.left()
	for _, p := range all {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}

// Gone reports whether nothing is left of the command that this process could end.
func (c *Child) Gone() bool {
	all, ok := c.left()
	return len(all) == 0 && (ok || c.groupGone())
}

// isForeign reports whether a process belongs to another user, and so cannot be ended. It says so once.
func (c *Child) isForeign(p process) bool {
	if syscall.Kill(p.pid, 0) != syscall.EPERM {
		return false
	}
	if !c.asked[p.pid] {
		c.asked[p.pid] = true
		c.complain(fmt.Errorf("cannot end process %d (%s), which runs as another user; it goes on without the lock",
			p.pid, p.name))
	}
	return true
}
