package ls

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redislock/redislock/cmd/redislock/internal/browse"
	"github.com/redislock/redislock/cmd/redislock/internal/screen"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
)

// watch shows the locks again and again, until ctx ends. On a terminal, it does so on a screen, until the user leaves.
// Elsewhere it prints them.
func (l *lister) watch(ctx context.Context) error {
	if browse.Can(l.Session) && l.opt.format == asTable {
		return browse.Run(ctx, l.Session, l.opt.watch, l.screenOrders(), l.rows)
	}
	look := func(ctx context.Context) (*collection, error) { return l.look(ctx, l.opt.sort) }
	return browse.Repeat(ctx, l.Session, l.opt.watch, l.opt.format != asTable, look, func(all *collection, at string) error {
		return l.print(l.Stdout, l.Screen(), all.kept, at)
	})
}

// screenOrders returns the orders among which the user chooses: that of the flag, and then the others.
func (l *lister) screenOrders() []string {
	names := []string{l.opt.sort}
	for _, name := range []string{"key", "age", "ttl", "line", "holder"} {
		if name != cmp.Or(l.opt.sort, "key") {
			names = append(names, name)
		}
	}
	return names
}

// rows returns the locks for a screen.
func (l *lister) rows(ctx context.Context, order string) (*screen.Rows, error) {
	all, err := l.look(ctx, order)
	if err != nil {
		return nil, err
	}
	count := fmt.Sprintf("%d locks", len(all.kept))
	switch {
	case len(all.kept) == 1:
		count = "1 lock"
	case all.first && len(all.kept) == l.opt.limit:
		count = fmt.Sprintf("%d+ locks", len(all.kept))
	case all.dropped > 0:
		count = fmt.Sprintf("%d of %d locks", len(all.kept), len(all.kept)+all.dropped)
	}
	if order != "none" {
		count += " by " + cmp.Or(order, "key")
	}
	table := l.table(all.kept)
	found := &screen.Rows{Title: count, Columns: table.Columns, Head: !l.opt.noHeader}
	for i, cells := range table.Rows {
		s := all.kept[i]
		state := fmt.Sprint(s.Token, " ", s.Waiters, " ", s.HolderCount, " ", show.Split(s.Status)) // a ttl changes by itself
		found.All = append(found.All, screen.Row{Key: s.Key, State: state, Cells: cells})
	}
	return found, nil
}
