package tree

import (
	"fmt"
	"strings"
	"text/scanner"
)

// parseDot checks a graph as Graphviz would, as far as tree uses its language: a digraph of statements, each a node, an edge or
// an attribute, with attributes in brackets. Each edge must lead from a node to a node.
func parseDot(text string) error {
	var words []string
	var s scanner.Scanner
	s.Init(strings.NewReader(text))
	s.Mode = scanner.ScanIdents | scanner.ScanStrings // Graphviz reads \" as Go does, and no other backslash here
	var failed error
	s.Error = func(s *scanner.Scanner, msg string) {
		if msg != "invalid char escape" { // \n, \\ and \" only are written; the label is for Graphviz to read
			failed = fmt.Errorf("%v: %s", s.Pos(), msg)
		}
	}
	for tok := s.Scan(); tok != scanner.EOF; tok = s.Scan() {
		if tok == '-' && s.Peek() == '>' {
			s.Next()
			words = append(words, "->")
			continue
		}
		words = append(words, s.TokenText())
	}
	if failed != nil {
		return failed
	}
	p := &dotParser{words: words, nodes: map[string]bool{}}
	return p.parse()
}

type dotParser struct {
	words []string
	nodes map[string]bool
	ends  []string // of edges
}

func (p *dotParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

func (p *dotParser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func isName(word string) bool {
	return word != "" && (word[0] == '"' && strings.HasSuffix(word, `"`) || word[0] >= 'a' && word[0] <= 'z')
}

func (p *dotParser) parse() error {
	if p.next() != "digraph" || !isName(p.next()) || p.next() != "{" {
		return fmt.Errorf("it does not begin with digraph, a name and a brace")
	}
	for p.peek() != "}" {
		if err := p.statement(); err != nil {
			return err
		}
	}
	if p.next(); len(p.words) > 0 {
		return fmt.Errorf("%q follows the graph", p.words[0])
	}
	for _, end := range p.ends {
		if !p.nodes[end] {
			return fmt.Errorf("there is no node %q", end)
		}
	}
	return nil
}

func (p *dotParser) statement() error {
	name := p.next()
	if !isName(name) {
		return fmt.Errorf("a statement begins with %q", name)
	}
	switch p.peek() {
	case "=":
		p.next()
		if value := p.next(); !isName(value) && value != "RL" {
			return fmt.Errorf("%s has the value %q", name, value)
		}
		return nil
	case "->":
		p.next()
		p.ends = append(p.ends, name, p.next())
	default:
		p.nodes[name] = true
	}
	return p.attributes()
}

func (p *dotParser) attributes() error {
	if p.next() != "[" {
		return fmt.Errorf("attributes are missing")
	}
	for {
		name, is, value := p.next(), p.next(), p.next()
		if !isName(name) || is != "=" || !isName(value) {
			return fmt.Errorf("%s %s %s is not an attribute", name, is, value)
		}
		switch p.next() {
		case "]":
			return nil
		case ",":
		default:
			return fmt.Errorf("attributes do not end")
		}
	}
}
