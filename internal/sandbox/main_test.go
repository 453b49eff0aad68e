package sandbox_test

import (
	"os"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main() // the owner's NATS process is an owner too, going by its environment
	if os.Getenv(ownerEnv) != "" {
		ownServers()
		return
	}
	os.Exit(sandbox.Run(m))
}
