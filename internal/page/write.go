package page

import (
	"html"
	"strconv"
	"strings"
)

// writer writes HTML. Names of elements and attributes are constants of this file; all else is escaped.
type writer struct{ out strings.Builder }

// open begins an element. attributes are names, each with its value.
func (w *writer) open(element string, attributes ...string) {
	w.out.WriteString("<" + element)
	for i := 0; i < len(attributes); i += 2 {
		w.out.WriteString(" " + attributes[i] + `="` + html.EscapeString(attributes[i+1]) + `"`)
	}
	w.out.WriteString(">")
}

func (w *writer) close(element string) { w.out.WriteString("</" + element + ">") }

func (w *writer) text(text string) { w.out.WriteString(html.EscapeString(text)) }

// put writes an element with a text.
func (w *writer) put(element, text string, attributes ...string) {
	w.open(element, attributes...)
	w.text(text)
	w.close(element)
}

func (w *writer) key(name string) { w.put("code", name, "class", "key") }

func (w *writer) keys(names []string) {
	for i, name := range names {
		if i > 0 {
			w.text(", ")
		}
		w.key(name)
	}
}

func (w *writer) who(who *who) {
	w.open("span", "class", "who")
	if who.Name == "" {
		w.put("small", "token "+who.Token)
	} else {
		w.put("b", who.Name)
		if who.PID != "" {
			w.text(" ")
			w.put("small", "pid "+who.PID)
		}
		if who.Command != "" {
			w.text(" ")
			w.put("code", who.Command)
		}
	}
	w.close("span")
}

// html returns the page.
func (v *view) html() string {
	w := new(writer)
	title := v.Count + " · redislock"
	if len(v.Circles) > 0 {
		title = "⚠ " + strconv.Itoa(len(v.Circles)) + " · " + title
	}
	w.out.WriteString("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n")
	w.open("meta", "charset", "utf-8")
	w.open("meta", "name", "viewport", "content", "width=device-width, initial-scale=1")
	w.open("meta", "name", "color-scheme", "content", "light dark")
	w.open("meta", "name", "robots", "content", "noindex")
	w.put("title", title)
	w.open("noscript")
	w.open("meta", "http-equiv", "refresh", "content", "5")
	w.close("noscript")
	w.out.WriteString("\n<style>" + pageCSS + "</style>\n</head>\n<body>\n")
	w.open("header")
	w.put("h1", "redislock")
	w.open("form", "method", "get", "role", "search")
	w.open("input", "type", "search", "name", "q", "value", v.Query.Text,
		"placeholder", "key, host, command…", "aria-label", "Filter")
	w.open("input", "type", "hidden", "name", "sort", "value", v.Query.Sort)
	w.close("form")
	w.close("header")
	w.open("main", "id", "live")
	v.writeState(w)
	v.writeCircles(w)
	v.writeTrees(w)
	v.writeTable(w)
	w.close("main")
	w.out.WriteString("\n<script>" + pageJS + "</script>\n</body>\n</html>\n")
	return w.out.String()
}

func (v *view) writeState(w *writer) {
	if v.Error != "" {
		w.put("p", v.Error, "class", "bad", "role", "alert")
	}
	w.open("p", "id", "state")
	if v.Seen != "" {
		w.put("span", v.Where)
		w.put("span", v.Count)
		w.put("span", strconv.Itoa(v.Waiting)+" waiting")
		w.open("span")
		w.text("seen at ")
		w.put("time", v.Clock, "datetime", v.Seen)
		w.close("span")
	}
	w.close("p")
	for _, note := range v.Notes {
		w.put("p", note, "class", "note")
	}
}

func (v *view) writeCircles(w *writer) {
	for _, c := range v.Circles {
		w.open("article", "class", "circle")
		w.put("h2", "Circle "+strconv.Itoa(c.Number)+": "+strconv.Itoa(len(c.Steps))+" wait for each other")
		w.open("ol")
		for _, s := range c.Steps {
			w.open("li")
			w.who(&s.Who)
			w.text(" waits for ")
			w.key(s.Key)
			if s.Holder != nil {
				w.text(", held by ")
				w.who(s.Holder)
			} else {
				w.text(", behind ")
				w.who(s.Behind)
				w.text(" in line")
			}
			w.close("li")
		}
		w.close("ol")
		if len(c.WayOut) > 0 {
			w.open("p")
			w.text("Release one of ")
			w.keys(c.WayOut)
			w.text(" to end it.")
			w.close("p")
		}
		w.close("article")
	}
}

func (v *view) writeTrees(w *writer) {
	if len(v.Trees) == 0 {
		return
	}
	w.open("section", "aria-label", "Who waits for whom")
	w.put("h2", "Who waits for whom")
	w.open("ul", "class", "tree")
	for _, n := range v.Trees {
		n.write(w)
	}
	w.close("ul")
	w.close("section")
}

func (n *node) write(w *writer) {
	if n.Stuck > 0 {
		w.open("li", "class", "stuck")
	} else {
		w.open("li")
	}
	w.open("div")
	if n.Who != nil {
		w.who(n.Who)
		w.text(" ")
	}
	w.text(n.Verb + " ")
	w.keys(n.Keys)
	if n.More {
		w.text(" and more")
	}
	if n.Since != "" {
		w.text(" ")
		w.put("small", n.Since)
	}
	if n.Stuck > 0 {
		w.text(" ")
		w.put("strong", "circle "+strconv.Itoa(n.Stuck))
	}
	if len(n.Also) > 0 {
		w.put("small", " also wants ")
		w.keys(n.Also)
	}
	w.close("div")
	if len(n.Below) > 0 {
		w.open("ul")
		for _, below := range n.Below {
			below.write(w)
		}
		w.close("ul")
	}
	w.close("li")
}

func (v *view) writeTable(w *writer) {
	w.open("section", "aria-label", "Locks")
	w.put("h2", "Locks")
	switch {
	case len(v.Rows) > 0:
		w.open("table")
		w.open("thead")
		w.open("tr")
		for _, c := range v.Columns {
			if c.Order == "" {
				w.open("th", "scope", "col")
			} else {
				w.open("th", "scope", "col", "aria-sort", c.Order)
			}
			w.put("a", c.Name, "href", "?"+c.Link)
			w.close("th")
		}
		w.close("tr")
		w.close("thead")
		w.open("tbody")
		for i := range v.Rows {
			v.Rows[i].write(w)
		}
		w.close("tbody")
		w.close("table")
	case v.Query.Text != "":
		w.put("p", "No lock matches.", "class", "none")
	default:
		w.put("p", "Nobody holds a lock.", "class", "none")
	}
	if v.More > 0 {
		w.put("p", "… and "+strconv.Itoa(v.More)+" more; filter them by a part of their key.", "class", "note")
	}
	w.close("section")
}

func (r *row) write(w *writer) {
	w.open("tr")
	w.open("td", "class", "k")
	w.key(r.Key)
	w.close("td")
	w.open("td", "data-name", "holder")
	w.who(&r.Who)
	r.writeDetails(w)
	w.close("td")
	w.put("td", r.Held, "data-name", "held for")
	w.put("td", r.Left, "data-name", "left")
	waiters := ""
	if r.Waiters > 0 {
		waiters = strconv.Itoa(r.Waiters)
	}
	w.put("td", waiters, "data-name", "waiting")
	w.close("tr")
}

// writeDetails writes what is shown when the user opens it: those who share the key, or the metadata.
func (r *row) writeDetails(w *writer) {
	switch {
	case len(r.Sharers) > 0:
		w.open("details", "id", r.ID)
		w.put("summary", r.Count)
		w.open("ul")
		for _, s := range r.Sharers {
			w.open("li")
			w.who(&s.Who)
			w.text(" ")
			w.put("small", s.Left+" left")
			w.close("li")
		}
		w.close("ul")
		w.close("details")
	case len(r.Fields) > 0:
		w.open("details", "id", r.ID)
		w.put("summary", "metadata")
		w.open("dl")
		for _, f := range r.Fields {
			w.put("dt", f.Name)
			w.put("dd", f.Value)
		}
		w.close("dl")
		w.close("details")
	}
}
