package app

import (
	"os"
	"testing"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Run(m)) }
