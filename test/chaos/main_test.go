package main

import (
	"os"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// TestMain is a relay, or a server, in the child processes that chaos starts of this executable.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	sandbox.Main()
	if os.Getenv(childEnv) == childKind {
		return program(os.Args, os.Stdout, os.Stderr)
	}
	return sandbox.Run(m)
}
