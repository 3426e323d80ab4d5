package redislockhttp_test

import (
	"testing"

	"github.com/redislock/redislock/internal/testing/spec"
)

func TestMain(m *testing.M) { spec.Main(m) }

func TestSpecs(t *testing.T) { spec.Run(t) }
