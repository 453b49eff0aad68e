package main

import (
	"os"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// TestMain is the relay, or a server, in the child processes that the demo starts of this executable.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(childEnv) != "" {
		return program(os.Args, os.Stdout, os.Stderr)
	}
	return sandbox.Run(m)
}
