package tree

import (
	"context"
	"strings"

	"github.com/redislock/redislock/cmd/redislock/internal/browse"
	"github.com/redislock/redislock/cmd/redislock/internal/screen"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/words"
)

// watch shows the trees again and again, until ctx ends. On a terminal, it does so on a screen, until the user leaves.
// Elsewhere it prints them.
func (s *shower) watch(ctx context.Context) error {
	if browse.Can(s.Session) && !s.opt.json {
		return browse.Run(ctx, s.Session, s.opt.watch, nil, s.rows)
	}
	return browse.Repeat(ctx, s.Session, s.opt.watch, s.opt.json, s.look, func(found *survey.Finding, at string) error {
		_, err := s.print(found, at)
		return err
	})
}

// rows returns the lines of the trees for a screen.
func (s *shower) rows(ctx context.Context, _ string) (*screen.Rows, error) {
	found, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	d := draw(found, term.Screen{ASCII: s.Screen().ASCII}, s.opt.bounds)
	rows := &screen.Rows{
		Title:   words.Count(len(found.Tree.Waiters), "waiter") + ", " + words.Count(len(found.Tree.Circles), "circle"),
		Columns: []term.Column{{Fit: term.CutEnd}},
	}
	if d.cut {
		d.lines = append(d.lines, line{cells: []term.Cell{{Text: "and more lines"}}})
	}
	for _, l := range d.lines {
		var text strings.Builder
		whole := term.Cell{}
		for _, c := range l.cells {
			text.WriteString(c.Text)
			if c.Colour == term.Red {
				whole.Colour = term.Red
			}
		}
		whole.Text = text.String()
		rows.All = append(rows.All, screen.Row{Key: l.key, State: l.state, Cells: []term.Cell{whole}})
	}
	return rows, nil
}
