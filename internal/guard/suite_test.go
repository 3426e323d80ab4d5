package guard_test

import (
	"testing"

	"github.com/redislock/redislock/internal/spec"
)

func TestMain(m *testing.M) { spec.Main(m) }

func TestSpecs(t *testing.T) { spec.Run(t) }
