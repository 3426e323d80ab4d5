package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/internal/answer"
)

// Explain turns an error of go-redis into one line: where Redis is, what is wrong, and how to correct that, with the exit
// code for a Redis that cannot be used. It returns other errors unchanged.
func (t *Target) Explain(err error) error {
	what := t.meaning(err)
	switch {
	case what == "":
		return err
	case t.overTLS && strings.HasPrefix(what, "no answer"):
		what += " if it does not speak TLS, write redis:// instead of rediss://"
	}
	return t.unusable("%w", &explained{what, err})
}

// unusable returns an error that says where Redis is, and why it cannot be used.
func (t *Target) unusable(why string, args ...any) error {
	return cli.Unavailablef("cannot use the Redis at %s: "+why, append([]any{t.Where}, args...)...)
}

// explained is an error with a text of its own, which still matches the error that it explains.
type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

// meaning says what is wrong with Redis, or with the way to it, and how to mend it; "" for any other error.
func (t *Target) meaning(err error) string {
	return cmp.Or(meaningOfTLS(err), t.meaningOfAnswer(err), t.meaningOfNetwork(err))
}

// noCertificate matches how a server refuses a client certificate; one of a CA of the same name cannot be decrypted.
var noCertificate = regexp.MustCompile(
	`tls: (certificate required|bad certificate|error decrypting message|unknown certificate authority)`)

func meaningOfTLS(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is not signed by a known authority; name the file of its CA with --tls-ca or REDISLOCK_TLS_CA"
	case errors.As(err, &name):
		return meaningOfName(name)
	case errors.As(err, &invalid):
		return fmt.Sprintf("its certificate is not valid (%v); renew it", invalid)
	case errors.As(err, &record):
		return "it does not speak TLS on this port; write redis:// instead of rediss://, or the port that does"
	case noCertificate.MatchString(err.Error()):
		return "it requires a certificate that its own CA has signed; name one with --tls-cert and --tls-key"
	case strings.Contains(err.Error(), "tls: "):
		return "TLS failed: " + innermost(err).Error()
	}
	return ""
}

// meaningOfName explains a certificate that is for other names than the one that was dialled.
func meaningOfName(err x509.HostnameError) string {
	names := slices.Clone(err.Certificate.DNSNames)
	for _, ip := range err.Certificate.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) == 0: // Go does not look at the Common Name
		return "its certificate has no subjectAltName; issue one that has, as with " +
			"openssl req -addext subjectAltName=DNS:NAME,IP:ADDRESS"
	case len(names) > 4:
		names = append(names[:4], "…")
	}
	return fmt.Sprintf("its certificate is for %s, not for %s; use that name in the URL, or add ?server_name=NAME",
		strings.Join(names, ", "), err.Host)
}

func (t *Target) meaningOfAnswer(err error) string {
	refusal, ok := errors.AsType[redis.Error](err)
	if !ok || errors.Is(err, redis.Nil) {
		return ""
	}
	text := strings.TrimSpace(refusal.Error())
	if strings.Contains(text, "WRONGPASS") && t.files.passwordFrom != "" {
		return "user or password is wrong; the user is that of the URL, and the password is in " + t.files.passwordFrom
	}
	if m := answer.MeaningOf(err); m.What != "" {
		return m.What + "; " + m.Tool
	}
	return text
}

// noSentinel is what go-redis says when no Sentinel names a master.
const noSentinel = "all sentinels specified in configuration are unreachable"

func (t *Target) meaningOfNetwork(err error) string {
	var dns *net.DNSError
	var network net.Error
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	switch {
	case strings.Contains(err.Error(), noSentinel):
		if errors.Is(err, redis.Nil) {
			return "the Sentinels know no master of that name; see SENTINEL MASTERS for those they know"
		}
		var each interface{ Unwrap() []error } // of the Sentinels
		if errors.As(err, &each) {
			if what := t.meaning(each.Unwrap()[0]); what != "" {
				return "no Sentinel can be asked: " + what
			}
		}
		return "no Sentinel answers"
	case errors.As(err, &dns):
		return fmt.Sprintf("there is no host %q (%s); is the name right?", dns.Name, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection is refused; does Redis run there, and is the port right?"
	case errors.Is(err, os.ErrNotExist):
		return "there is no such socket; see \"unixsocket\" in the configuration of Redis"
	case errors.Is(err, os.ErrPermission):
		return "you are not allowed to open the socket; see \"unixsocketperm\" in the configuration of Redis"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fmt.Sprintf("no answer within %v; is the address right, and does a firewall let you through?", t.patience)
	case t.overTLS && (closed || errors.Is(err, syscall.EPIPE)): // the alert that says why may be lost with the connection
		return "it closed the connection; it may require a certificate that its own CA has signed; " +
			"name one with --tls-cert and --tls-key"
	case closed:
		return "it closed the connection; if it speaks TLS, write rediss:// instead of redis://"
	case strings.Contains(err.Error(), "redis: can't parse"), strings.Contains(err.Error(), "redis: invalid reply"):
		return "the server there is not Redis, or it speaks TLS; is the port right?"
	case errors.Is(err, syscall.EPIPE):
		return "it closed the connection"
	case errors.As(err, &network):
		return innermost(err).Error()
	}
	return ""
}

func innermost(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

// IsAway reports whether an error passes when Redis comes back: nothing listens, nobody answers, or it says "not now".
// So does a wrong password while the library connects, because the right one may come late.
func IsAway(err error) bool {
	if answer.Is(err) && !errors.Is(err, redis.Nil) {
		return answer.IsPassing(err) || answer.IsLogin(err)
	}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case isDNS:
		return dns.IsTemporary || dns.IsTimeout
	case meaningOfTLS(err) != "":
		return false
	case errors.Is(err, context.DeadlineExceeded), isNetwork && network.Timeout():
		return true
	}
	return slices.ContainsFunc([]error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		io.EOF, io.ErrUnexpectedEOF,
		os.ErrNotExist, // the socket of a server that does not run
	}, func(passing error) bool { return errors.Is(err, passing) }) ||
		strings.Contains(err.Error(), noSentinel) && !errors.Is(err, redis.Nil) // redis.Nil: they answer, but know no master
}

// IsSilent reports whether an error says no more than that nobody answered in time.
func IsSilent(err error) bool {
	network, isNetwork := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, syscall.ECONNREFUSED) || isNetwork && network.Timeout()
}
