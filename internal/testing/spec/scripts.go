package spec

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
)

// Running matches the requests that run one of our scripts, or its joint one.
func Running(name string) func(args []string) bool {
	names := namesOf(name)
	return func(args []string) bool {
		return len(args) > 1 && slices.Contains(names, strings.ToLower(args[0])+" "+args[1])
	}
}

// namesOf returns how the requests for a script and its joint one begin.
func namesOf(script string) []string {
	namesMu.Lock()
	defer namesMu.Unlock()
	if names[script] == nil {
		for _, file := range []string{script, script + "_each"} {
			if file != script && scriptFiles()[file] == "" {
				continue
			}
			for _, text := range []string{Source(file), Guarded(file)} {
				sum := sha1.Sum([]byte(text))
				names[script] = append(names[script], "evalsha "+hex.EncodeToString(sum[:]), "eval "+text)
			}
		}
	}
	return names[script]
}

var (
	namesMu sync.Mutex // protects names
	names   = map[string][]string{}
)

// List is an array as go-redis returns it.
type List = []any

// Source reads a script as it is sent, with the rules of the line where it has them, and without a guard.
func Source(name string) string { return including(name, "") }

// Guarded is Source for a Client with a guard.
func Guarded(name string) string { return including(name, Written("marker")) }

func including(name, marker string) string {
	text := strings.Replace(Written(name), "-- include line\n", Written("line"), 1)
	text = strings.Replace(text, "-- include shared\n", Written("shared"), 1)
	text = strings.Replace(text, "-- include note\n", Written("note"), 1)
	return strings.Replace(text, "-- include marker\n", marker, 1)
}

// Written reads a script as it is embedded.
func Written(name string) string {
	file, ok := scriptFiles()[name]
	if !ok {
		panic("there is no script " + name)
	}
	return Read(file)
}

// Scripts returns the names of all files of scripts.
func Scripts() []string {
	var files []string
	for name := range scriptFiles() {
		files = append(files, name+".lua")
	}
	slices.Sort(files)
	return files
}

// scriptFiles returns the file of each script by the script's name. The root embeds some, and package script the others.
var scriptFiles = sync.OnceValue(func() map[string]string {
	files := map[string]string{}
	for _, dir := range []string{"", "internal/script"} {
		paths, err := filepath.Glob(Path(filepath.Join(dir, "*.lua")))
		if err != nil {
			panic(err)
		}
		for _, path := range paths {
			file := filepath.Base(path)
			files[strings.TrimSuffix(file, ".lua")] = filepath.Join(dir, file)
		}
	}
	return files
})

// Read returns the text of a file, named from the top of the repository.
func Read(name string) string {
	text, err := os.ReadFile(Path(name))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Path returns the path of a file that is named from the top of the repository.
func Path(name string) string { return filepath.Join(top(), name) }

// top returns the top of the repository. A test runs in the directory of its package, which is below it.
var top = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
})

// FullLife is the life of a waiter of Stand.
const FullLife = 3 * time.Second

// Run runs a script on keys, given as one word each.
func (on *Redis) Run(ctx context.Context, name, keys string, args ...any) (any, error) {
	return on.Client.Eval(ctx, Source(name), strings.Fields(keys), args...).Result()
}

// RunGuarded is Run with a guard: the marker and the grace go behind keys and args.
func (on *Redis) RunGuarded(ctx context.Context, name, keys, grace string, args ...any) (any, error) {
	names := append(strings.Fields(keys), keyname.GuardMarker)
	return on.Client.Eval(ctx, Guarded(name), names, append(args, grace)...).Result()
}

// Set sets a key for a minute.
func (on *Redis) Set(ctx context.Context, key, value string) {
	GinkgoHelper()
	Expect(on.Client.Set(ctx, key, value, time.Minute).Err()).To(Succeed())
}

// Everything is what the database holds, with the least of the ttls in whole minutes, rounded up.
func (on *Redis) Everything(ctx context.Context) map[string]string {
	all := map[string]string{}
	for _, key := range on.Keys(ctx) {
		minutes := (on.Client.PTTL(ctx, key).Val() + time.Minute - 1) / time.Minute
		value, err := on.Client.Get(ctx, key).Result()
		if err != nil {
			value = on.Client.Type(ctx, key).Val()
		}
		all[key] = value + " " + strconv.Itoa(int(minutes)) + "m"
	}
	return all
}

// Stand gives a waiter a position in a line. The life of its inbox's mark there is [FullLife], and left of it remains.
func (on *Redis) Stand(ctx context.Context, line string, ticket float64, entry string, left time.Duration, open bool) {
	inbox, _, _ := strings.Cut(entry, "/")
	on.Client.ZAdd(ctx, line, redis.Z{Score: ticket, Member: entry},
		redis.Z{Score: Mark(time.Now().Add(left), 3, open), Member: "~" + inbox})
}

// Listen returns what arrives at an inbox.
func (on *Redis) Listen(ctx context.Context, inbox string) func() string {
	GinkgoHelper()
	subscription := on.Client.Subscribe(ctx, Inboxes+inbox)
	DeferCleanup(subscription.Close)
	Expect(subscription.Receive(ctx)).NotTo(BeNil())
	return func() string {
		message, err := subscription.ReceiveTimeout(ctx, 50*time.Millisecond)
		if err != nil {
			return ""
		}
		return message.(*redis.Message).Payload
	}
}
