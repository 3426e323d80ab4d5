package answer_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/answer"
)

type text string

func (t text) Error() string { return string(t) }
func (text) RedisError()     {}

var _ redis.Error = text("")

// answers are the errors of Redis 6 to 8, as the server words them.
var answers = map[string]bool{
	"LOADING Redis is loading the dataset in memory":                                                          true,
	"READONLY You can't write against a read only replica.":                                                   true,
	"READONLY You can't write against a read only replica. script: b6b2, on @user_script:1.":                  true,
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                        true,
	"CLUSTERDOWN The cluster is down":                                                                         true,
	"CLUSTERDOWN Hash slot not served":                                                                        true,
	"TRYAGAIN Multiple keys request during rehashing of slot":                                                 true,
	"NOREPLICAS Not enough good replicas to write. script: b6b2, on @user_script:1.":                          true,
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                  true,
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.":        true,
	"MISCONF Errors writing to the AOF file: No space left on device":                                         true,
	"OOM command not allowed when used memory > 'maxmemory'. script: b6b2, on @user_script:1.":                true,
	"ERR max number of clients reached":                                                                       true,
	"ERR max number of clients + cluster connections reached":                                                 true,
	"ERR Error running script (call to f_b6b2): @user_script:1: @user_script: 1: -READONLY You can't write":   true,
	"@user_script: 186: -READONLY You can't write against a read only replica.":                               true,
	"@user_script: 186: -NOPERM this user has no permissions":                                                 false,
	"ERR Error running script (call to f_b6b2): @user_script:3: @user_script: 3: -MISCONF Redis is config":    true,
	"ERR Error running script (call to f_b6b2): @user_script:3: @user_script: 3: -OOM command not allowed":    true,
	"ERR Error running script (call to f_b6b2): @user_script:3: @user_script: 3: -NOPERM this user has no":    false,
	"ERR Error running script (call to f_b6b2): @user_script:1: @user_script: 1: Unknown Redis command READ ": false,
	"NOAUTH Authentication required.":                                                                         false,
	"WRONGPASS invalid username-password pair or user is disabled.":                                           false,
	"NOPERM this user has no permissions to run the 'eval' command":                                           false,
	"WRONGTYPE Operation against a key holding the wrong kind of value":                                       false,
	"CROSSSLOT Keys in request don't hash to the same slot":                                                   false,
	"MOVED 3999 127.0.0.1:6381":                                                                               false,
	"NOSCRIPT No matching script. Please use EVAL.":                                                           false,
	"UNKILLABLE Sorry the script already executed write commands against the dataset.":                        false,
	"BUSYKEY Target key name already exists.":                                                                 false,
	"NOGOODSLAVE No suitable replica to promote":                                                              false,
	"INPROG Failover already in progress":                                                                     false,
	"ERR wrong number of arguments for 'get' command":                                                         false,
	"ERR value is OOM here": false,
	"DENIED Redis is running in protected mode because protected mode is enabled": false,
}

func TestIsPassing(t *testing.T) {
	for words, want := range answers {
		for _, err := range []error{text(words), fmt.Errorf("obtain %q: %w", "a", text(words))} {
			if got := answer.IsPassing(err); got != want {
				t.Errorf("IsPassing(%v) = %v", err, got)
			}
		}
		if answer.IsPassing(errors.New(words)) {
			t.Errorf("%q passes although no server has answered it", words)
		}
	}
	if answer.IsPassing(nil) || answer.IsPassing(redis.Nil) {
		t.Error("no error passes, or a missing value does")
	}
}
