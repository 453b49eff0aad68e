// Command relay stores the events of a transactional outbox in a NATS JetStream stream.
package main

import (
	"os"

	"github.com/seed-1cfd9858/relay/internal/app"
)

func main() {
	os.Exit(app.Main(os.Args, os.Stdout, os.Stderr, os.Environ()))
}
