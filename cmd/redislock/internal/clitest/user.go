package clitest

import (
	"context"
	"os"
	"path/filepath"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"
)

// User is the user "ops" of servers. The password is in a file, and is replaced there and on the servers while programs run.
type User struct {
	File string // of --password-file

	servers []*redis.Client
}

// NewUser makes the user on servers. Its first password is "secret-1".
func NewUser(ctx context.Context, servers ...*redis.Client) *User {
	ginkgo.GinkgoHelper()
	u := &User{File: filepath.Join(ginkgo.GinkgoT().TempDir(), "password"), servers: servers}
	u.Replace(ctx, "secret-1")
	return u
}

// URL returns the address of a server, with the user, and without a password.
func (u *User) URL(addr string) string { return "redis://ops@" + addr }

// Replace gives the user another password, in the file and on the servers, and disconnects it everywhere.
func (u *User) Replace(ctx context.Context, password string) {
	ginkgo.GinkgoHelper()
	ReplaceFile(u.File, password+"\n")
	for _, server := range u.servers {
		set := server.Do(ctx, "acl", "setuser", "ops", "reset", "on", ">"+password, "~*", "&*", "+@all")
		gomega.Expect(set.Err()).To(gomega.Succeed())
	}
	u.Disconnect(ctx)
}

// Disconnect ends all connections of the user.
func (u *User) Disconnect(ctx context.Context) {
	ginkgo.GinkgoHelper()
	for _, server := range u.servers {
		gomega.Expect(server.Do(ctx, "client", "kill", "user", "ops").Err()).To(gomega.Succeed())
	}
}

// ReplaceFile replaces a file in one step.
func ReplaceFile(path, text string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(os.WriteFile(path+".new", []byte(text), 0o600)).To(gomega.Succeed())
	gomega.Expect(os.Rename(path+".new", path)).To(gomega.Succeed())
}
