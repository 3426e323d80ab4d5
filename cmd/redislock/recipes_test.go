//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

// The commands of docs/recipes.md run as cron, systemd, make and the others run them, with programs of the names that the
// recipes use: each writes its name and its arguments to a file.
var _ = Describe("the recipes", func() {
	var (
		page, dir string
		url       string
	)

	BeforeEach(func() {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", "recipes.md"))
		Expect(err).NotTo(HaveOccurred())
		page, dir = string(text), GinkgoT().TempDir()
		server, _ := clitest.NewServer("requirepass secret")
		url = "redis://" + server.Addr()
		write := func(name, text string, mode os.FileMode) {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), mode)).To(Succeed())
		}
		write("password", "secret\n", 0o600)
		for _, name := range []string{"backup", "report", "deploy.sh", "migrate.sh", "build.sh", "mail.sh"} {
			write(name, "#!/bin/sh\necho \"${0##*/} $*\" >>\"$DIR/ran\"\n", 0o700)
		}
		write("go", "#!/bin/sh\necho \"go $*\" >>\"$DIR/ran\"\n", 0o700) // does not download anything
		Expect(os.Symlink(clitest.Program(), filepath.Join(dir, "redislock"))).To(Succeed())
	})

	// blocks returns the blocks of that language on the page.
	blocks := func(language string) []string {
		GinkgoHelper()
		var found []string
		for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1) {
			found = append(found, match[1])
		}
		Expect(found).NotTo(BeEmpty(), language)
		return found
	}
	// environ is a small environment, as cron and systemd give it.
	environ := func() []string {
		return []string{
			"PATH=" + dir + ":/usr/bin:/bin", "HOME=/", "LOGNAME=alice", "DIR=" + dir,
			"REDIS_URL=" + url, "REDISLOCK_PASSWORD_FILE=" + filepath.Join(dir, "password"), "GORACE=atexit_sleep_ms=0",
		}
	}
	// run runs a program without a terminal, in a session of its own, to its end.
	run := func(name string, args ...string) *gexec.Session {
		GinkgoHelper()
		path, err := exec.LookPath(name)
		if err != nil {
			Skip(err.Error())
		}
		cmd := exec.Command(path, args...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = environ(), dir, &syscall.SysProcAttr{Setsid: true}
		session := clitest.Start(cmd)
		Eventually(session, 20*time.Second).Should(gexec.Exit())
		return session
	}
	ran := func() []string {
		text, _ := os.ReadFile(filepath.Join(dir, "ran"))
		return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	// holdElsewhere makes another process hold a key until the spec ends.
	holdElsewhere := func(key string) {
		GinkgoHelper()
		cmd := clitest.Command(environ(), "run", "-k", key, "--", "sh", "-c", "echo held; sleep 30")
		session := clitest.Start(cmd)
		Eventually(session.Out.Contents).Should(ContainSubstring("held"))
		DeferCleanup(func() { Eventually(session.Terminate()).Should(gexec.Exit()) })
	}

	It("run from a crontab, silently when another machine is at it", func() {
		var jobs []string
		for line := range strings.Lines(blocks("crontab")[0]) {
			if job := regexp.MustCompile(`^(?:\S+ +){5}(redislock .*)\n`).FindStringSubmatch(line); job != nil {
				jobs = append(jobs, job[1])
			}
		}
		Expect(jobs).To(HaveLen(2))
		for _, job := range jobs {
			session := run("sh", "-c", job)
			Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		}
		Expect(ran()).To(Equal([]string{"backup ", "report --all"}))

		holdElsewhere("nightly")
		session := run("sh", "-c", jobs[0])
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session) + clitest.Stderr(session)).To(BeEmpty())
		Expect(ran()).To(HaveLen(2))
	})

	It("run from a systemd service, which counts a skipped run as a success", func() {
		service := blocks("ini")[0]
		setting := func(name string) string {
			match := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(service)
			Expect(match).NotTo(BeNil(), name)
			return match[1]
		}
		session := run("sh", "-c", "exec "+setting("ExecStart"))
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(ran()).To(Equal([]string{"backup "}))
		holdElsewhere("nightly")
		Expect(run("sh", "-c", "exec "+setting("ExecStart")).ExitCode()).To(Equal(75))
		Expect(setting("SuccessExitStatus")).To(Equal("75"))
	})

	It("are units that systemd understands", func() {
		for i, name := range []string{"nightly.service", "nightly.timer"} {
			unit := strings.ReplaceAll(blocks("ini")[i], "ExecStart=redislock", "ExecStart="+filepath.Join(dir, "redislock"))
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(unit), 0o600)).To(Succeed())
		}
		session := run("systemd-analyze", "verify", filepath.Join(dir, "nightly.service"), filepath.Join(dir, "nightly.timer"))
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stderr(session)).NotTo(ContainSubstring("nightly"))
	})

	It("run from a container of Kubernetes", func() {
		list := regexp.MustCompile(`command: \[(.*)\]`).FindStringSubmatch(blocks("yaml")[0])
		Expect(list).NotTo(BeNil())
		command := strings.Split(strings.ReplaceAll(list[1], `"`, ""), ", ")
		session := run(filepath.Join(dir, command[0]), command[1:]...)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(ran()).To(Equal([]string{"backup "}))
	})

	It("run as a step of a pipeline", func() {
		_, script, found := strings.Cut(blocks("yaml")[1], "run: |\n")
		Expect(found).To(BeTrue())
		session := run("bash", "-e", "-c", script)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(ran()).To(Equal([]string{"go install github.com/redislock/redislock/cmd/redislock@latest", "deploy.sh "}))
	})

	It("run from a Makefile", func() {
		Expect(os.WriteFile(filepath.Join(dir, "Makefile"), []byte(blocks("make")[0]), 0o600)).To(Succeed())
		session := run("make", "deploy", "migrate")
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		Expect(ran()).To(Equal([]string{"build.sh ", "deploy.sh ", "migrate.sh up", "migrate.sh check"}))
	})

	It("keep a lock for at least, and at most, a certain time", func() {
		for _, job := range blocks("sh") {
			session := run("sh", "-c", strings.TrimSpace(job))
			Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		}
		Expect(ran()).To(Equal([]string{"mail.sh ", "report --all"}))
		again := run("sh", "-c", strings.TrimSpace(blocks("sh")[0])) // the machine whose clock is behind
		Expect(again).To(gexec.Exit(0))
		Expect(ran()).To(HaveLen(2))
	})
})
