package ls

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/words"
)

type format int

const (
	asTable format = iota
	asJSON
	asJSONLines
	asTemplate // -o name is a template
)

func parseOutput(output string) (f format, template string, err error) {
	switch output {
	case "table":
		return asTable, "", nil
	case "json":
		return asJSON, "", nil
	case "jsonl":
		return asJSONLines, "", nil
	case "name":
		return asTemplate, "{key}", nil
	}
	if text, is := strings.CutPrefix(output, "template="); is && text != "" {
		template = strings.NewReplacer(`\t`, "\t", `\n`, "\n", `\\`, `\`).Replace(text)
		return asTemplate, template, checkTemplate(template)
	}
	return 0, "", cli.Usagef("-o %q is not a format; use table, json, jsonl, name or template=TEXT, "+
		"as in 'template={key} {ttl}'", output)
}

// columns are those of the table. Their names in lower case are those of valueOf.
var columns = []term.Column{
	{Name: "KEY", Fit: term.CutMiddle}, {Name: "HOLDER", Fit: term.CutEnd}, {Name: "PID", Right: true, Drop: 3},
	{Name: "COMMAND", Fit: term.CutEnd, Drop: 2}, {Name: "AGE", Right: true, Drop: 1}, {Name: "TTL", Right: true},
	{Name: "LINE", Right: true},
}

var wideColumns = []term.Column{{Name: "TOKEN"}, {Name: "METADATA"}}

// valueOf returns what a column or a template shows of a lock, safe to print; "" if that is unknown.
func valueOf(s survey.Status, o show.Owner, name string) string {
	switch name {
	case "key":
		return words.Escape(s.Key)
	case "holder":
		if split := show.Split(s.Status); split != "" {
			return split
		}
		return cmp.Or(show.Count(s.Status), o.Who)
	case "holders":
		return fmt.Sprint(max(s.HolderCount, 1))
	case "limit":
		if s.HolderCount == 0 {
			return "1"
		}
		return fmt.Sprint(show.LimitOf(s.Status))
	case "pid":
		return o.PID
	case "command":
		return o.Command
	case "age":
		if o.Since.IsZero() {
			return ""
		}
		return words.Duration(max(time.Since(o.Since), 0))
	case "ttl":
		if s.TTL == 0 { // no majority holds it
			return ""
		}
		return show.TTL(s.TTL)
	case "ttl_ms":
		return fmt.Sprint(max(s.TTL.Milliseconds(), -1))
	case "line":
		if s.Cut {
			return "?"
		}
		return fmt.Sprint(s.Waiters)
	case "token":
		if s.Cut && s.Metadata == "" {
			return words.Escape(s.Token) + "…"
		}
		return words.Escape(s.Token)
	case "metadata":
		if s.Cut && s.Metadata != "" {
			return words.Metadata(s.Metadata) + "…"
		}
		return words.Metadata(s.Metadata)
	}
	fields, _ := words.Fields(s.Metadata)
	return words.Escape(words.Value(fields, strings.TrimPrefix(name, "fields.")))
}

// ownerOf returns what the metadata tells of the one holder of a lock; nothing if it has several.
func ownerOf(s survey.Status) show.Owner {
	if s.HolderCount > 1 {
		return show.Owner{}
	}
	return show.OwnerOf(s.Metadata)
}

var place = regexp.MustCompile(`\{[^}]*\}?`)

// checkTemplate returns a usage error for a template with a place that has no value.
func checkTemplate(text string) error {
	names := []string{"{ttl_ms}", "{holders}", "{limit}"}
	for _, c := range slices.Concat(columns, wideColumns) {
		names = append(names, "{"+strings.ToLower(c.Name)+"}")
	}
	for _, name := range place.FindAllString(text, -1) {
		switch {
		case !strings.HasSuffix(name, "}"):
			return cli.Usagef("the template has a { without a }")
		case !strings.HasPrefix(name, "{fields.") && !slices.Contains(names, name):
			return cli.Usagef("the template has %s; it knows %s and {fields.NAME}", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// print prints locks in their format. JSON contains the time at, which may be "".
func (l *lister) print(out io.Writer, s term.Screen, all []survey.Status, at string) error {
	switch l.opt.format {
	case asJSON, asJSONLines:
		objects := make([]show.StatusJSON, len(all))
		for i, status := range all {
			objects[i] = show.JSONOf(status)
			objects[i].At = at
			if l.opt.format == asJSONLines {
				if err := show.WriteJSON(out, objects[i]); err != nil {
					return err
				}
			}
		}
		if l.opt.format == asJSON {
			return show.WriteJSON(out, objects)
		}
		return nil
	case asTemplate:
		var text strings.Builder
		for _, status := range all {
			owner := ownerOf(status)
			text.WriteString(place.ReplaceAllStringFunc(l.opt.template, func(name string) string {
				return valueOf(status, owner, strings.Trim(name, "{}"))
			}) + "\n")
		}
		_, err := io.WriteString(out, text.String())
		return err
	}
	if len(all) == 0 {
		return nil
	}
	return l.table(all).Write(out, s, !l.opt.noHeader)
}

func (l *lister) table(all []survey.Status) *term.Table {
	t := &term.Table{Columns: columns}
	if l.opt.wide {
		t.Columns = slices.Concat(columns, wideColumns)
		for i, c := range t.Columns { // nothing is cut
			t.Columns[i] = term.Column{Name: c.Name, Right: c.Right}
		}
	}
	for _, status := range all {
		owner := ownerOf(status)
		row := make([]term.Cell, len(t.Columns))
		for i, c := range t.Columns {
			name := strings.ToLower(c.Name)
			row[i].Text = cmp.Or(valueOf(status, owner, name), "-")
			switch {
			case name == "key":
				row[i].Colour = term.Bold
			case name == "ttl" && status.TTL < 0:
				row[i].Colour = term.Red
			case name == "line" && status.Waiters > 0:
				row[i].Colour = term.Yellow
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
