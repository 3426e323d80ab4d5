package connect

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/answer"
)

var _ = Describe("an error", func() {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}

	DescribeTable("passes when Redis comes back, or does not",
		func(err error, away bool) {
			Expect(IsAway(fmt.Errorf("wrapped: %w", err))).To(Equal(away))
			t := new(Target)
			Expect(IsAway(t.Explain(err))).To(Equal(away))
		},
		Entry("nothing listens", dial(syscall.ECONNREFUSED), true),
		Entry("no way to the host", dial(syscall.EHOSTUNREACH), true),
		Entry("the connection broke", io.EOF, true),
		Entry("no answer", context.DeadlineExceeded, true),
		Entry("no socket", dial(syscall.ENOENT), true),
		Entry("a name server that does not answer", &net.DNSError{IsTimeout: true}, true),
		Entry("a wrong name", &net.DNSError{IsNotFound: true}, false),
		Entry("an answer that passes", said("NOREPLICAS Not enough good replicas to write."), true),
		Entry("too many clients", said("ERR max number of clients reached"), true),
		Entry("a wrong password", said("WRONGPASS invalid username-password pair"), false),
		Entry("a wrong password while a call connects",
			&answer.LoginError{Err: said("WRONGPASS invalid username-password pair")}, true),
		Entry("a forbidden command", said("NOPERM this user has no permissions"), false),
		Entry("a certificate of somebody else", x509.UnknownAuthorityError{}, false),
		Entry("no such master", fmt.Errorf("all sentinels specified in configuration are unreachable: %w", redis.Nil), false),
		Entry("the user is not allowed to open the socket", dial(syscall.EACCES), false),
	)
})

// said is an error that a server has answered.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}
