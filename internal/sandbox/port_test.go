package sandbox

import (
	"net"
	"testing"
)

// A server that is stopped finds its port free again: nobody else was given it.
func TestClaim(t *testing.T) {
	t.Parallel()
	port, err := freePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, free := claimPort(port); free {
		t.Errorf("port %d is given away twice", port)
	}
	l, claimed, err := listenClaimed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	claimed.release()
	if claimed, free := claimPort(l.Addr().(*net.TCPAddr).Port); !free {
		t.Error("a claim that was released stays")
	} else {
		claimed.release()
	}
}
