// Package dialogue holds the models of test/sim to what real servers say: each script is played with both, and the answers
// must be the same.
package dialogue

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Run(m)) }

// transcript is what a client was told, in a form without what differs between any two servers.
type transcript []string

func (x *transcript) add(format string, args ...any) { *x = append(*x, fmt.Sprintf(format, args...)) }

// same compares what the model has said with what the real server has.
func same(t *testing.T, model, server transcript) {
	t.Helper()
	if diff := cmp.Diff([]string(server), []string(model)); diff != "" {
		t.Errorf("- the server, + the model:\n%s", diff)
	}
	if len(server) == 0 {
		t.Error("the script asks nothing")
	}
}
