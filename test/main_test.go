package test

import (
	"os"
	"testing"

	"github.com/seed-1cfd9858/relay/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m)) }
