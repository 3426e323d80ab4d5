// Package serve is the command that shows locks in a browser. Package page of the library makes the page.
package serve

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/internal/page"
)

//go:embed help.txt
var help string

type options struct {
	listen string
	hosts  []string
}

// New returns the command "serve".
func New(target *connect.Target) *cobra.Command {
	var opt options
	cmd := cli.Describe(help, &cobra.Command{
		Use: "serve", Short: "Show locks, and who waits for whom, in a browser",
		Args: cli.FlagsOnly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: cli.UntilSignal(func(ctx context.Context, _ *cobra.Command, _ []string) error { return run(ctx, target, opt) }),
	})
	flags := cmd.Flags()
	flags.StringVar(&opt.listen, "listen", "127.0.0.1:7700", "listen on `HOST:PORT`; without HOST, on all addresses")
	flags.StringArrayVar(&opt.hosts, "host", nil, "also answer requests for `HOST`, as a proxy sends them; may be repeated")
	return cmd
}

func run(ctx context.Context, target *connect.Target, opt options) error {
	host, _, err := net.SplitHostPort(opt.listen)
	if err != nil {
		return cli.Usagef("--listen %q is no HOST:PORT", opt.listen)
	}
	session, err := target.Open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", opt.listen)
	if err != nil {
		return cli.Usagef("--listen: %w", err)
	}
	names := hosts{host}
	for _, name := range opt.hosts {
		names = append(names, hostOf(name))
	}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	server := &http.Server{
		Handler: names.only(page.New(page.Options{
			Redis: session.Survey(), Where: session.Where, Explain: func(err error) string { return session.Explain(err).Error() },
		})),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }() // ends with Close
	defer func() { _ = server.Close() }()
	session.Complain(fmt.Errorf("serving http://%s/", addressOf(host, listener.Addr())))
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		session.Complain(errors.New("anyone who reaches this address can read keys and metadata; there is no password"))
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-ended:
		return err
	}
}

// addressOf returns what to write into a browser for an address that this process listens on.
func addressOf(host string, addr net.Addr) string {
	_, port, _ := net.SplitHostPort(addr.String())
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// hosts are the names by which a browser may know this server. Otherwise a web page could use a name of its own that leads
// to this address, and then read the answer as one of its own origin.
type hosts []string

func (h hosts) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.has(hostOf(r.Host)) {
			text := fmt.Sprintf("this is not %q; if it is meant to be, start serve with --host", r.Host)
			http.Error(w, text, http.StatusMisdirectedRequest)
			return
		}
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// has reports whether a name is one of them, or can be no name of somebody else.
func (h hosts) has(name string) bool {
	if strings.EqualFold(name, "localhost") || net.ParseIP(name) != nil {
		return true
	}
	return name != "" && slices.ContainsFunc(h, func(one string) bool { return strings.EqualFold(one, name) })
}

// hostOf returns a host without its port, and without brackets.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}
