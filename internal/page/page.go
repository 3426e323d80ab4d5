package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"io"
	"net/http"
	"time"

	"github.com/redislock/redislock/internal/survey"
)

var (
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// policy lets the page run nothing but its own script, ask nobody but its own server, and be in no frame.
var policy = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; connect-src 'self'; " +
	"style-src '" + hashOf(pageCSS) + "'; script-src '" + hashOf(pageJS) + "'"

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Options say what the page shows.
type Options struct {
	Redis   *survey.Redis
	Where   string             // the Redis, for people
	Explain func(error) string // what to show for an error; nil for its text
}

// New returns the handler of the page.
func New(opt Options) http.Handler {
	return &handler{opt, &looker{redis: opt.Redis}}
}

type handler struct {
	Options

	looker *looker
}

// ServeHTTP answers GET and HEAD. It refuses what scripts and frames of other origins ask for.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", policy)
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "this page only shows locks; use GET", http.StatusMethodNotAllowed)
		return
	case !isOwn(r):
		http.Error(w, "another origin may not read this page", http.StatusForbidden)
		return
	}
	found, err := h.looker.look(r.Context())
	if r.Context().Err() != nil {
		return
	}
	v := newView(found, queryOf(r.URL.Query()), time.Now())
	v.Where = h.Where
	if err != nil {
		v.Error = err.Error()
		if h.Explain != nil {
			v.Error = h.Explain(err)
		}
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, v.html())
}

// isOwn reports whether a request comes from the page itself, from its user, or from a program that is not a browser. A link
// on another page may lead to this one, but nothing of another origin may read it.
func isOwn(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}
