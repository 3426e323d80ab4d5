// Package redispage reads the tables of docs/redis.md that say which commands a feature needs, for the specs that hold the
// page to what the library and the command line tool do.
package redispage

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Features are the rows of the tables, by the name of the feature: the text of its first cell up to a colon.
type Features map[string]Feature

// Feature is one row.
type Feature struct {
	Commands []string // its own, as "GET" or "PUBSUB NUMSUB"
	Needs    []string // the other features whose rows it needs
}

var (
	rows     = regexp.MustCompile("(?m)^\\| (.+?) \\| ((?:`[A-Z ]+` ?)+|– )\\| (.*)\\|$")
	commands = regexp.MustCompile("`([A-Z ]+)`")
)

// Read reads the page at path. It returns an error if a row needs one that is not there.
func Read(path string) (Features, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := Features{}
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		var f Feature
		for _, command := range commands.FindAllStringSubmatch(row[2], -1) {
			f.Commands = append(f.Commands, command[1])
		}
		for needed := range strings.SplitSeq(row[3], ", ") {
			if needed = strings.TrimSpace(needed); needed != "" {
				f.Needs = append(f.Needs, needed)
			}
		}
		name, _, _ := strings.Cut(row[1], ":")
		all[strings.TrimSpace(name)] = f
	}
	for name, f := range all {
		for _, needed := range f.Needs {
			if _, ok := all[needed]; !ok {
				return nil, fmt.Errorf("%s: %s needs the row of %s, which is not there", path, name, needed)
			}
		}
	}
	return all, nil
}

// Commands returns all commands that a feature needs, with those of the rows that it needs, sorted.
func (all Features) Commands(name string) []string {
	f := all[name]
	commands := slices.Clone(f.Commands)
	for _, needed := range f.Needs {
		commands = append(commands, all.Commands(needed)...)
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}

// Rights returns what lets a user of an ACL run some commands.
func Rights(commands []string) []string {
	rights := make([]string, len(commands))
	for i, command := range commands {
		rights[i] = "+" + strings.ReplaceAll(strings.ToLower(command), " ", "|")
	}
	return rights
}
