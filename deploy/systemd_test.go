package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd itself finds nothing to say about the unit.
func TestSystemd(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("systemd/relay.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nRestart=on-failure\n", "\nRestartPreventExitStatus=2 4 5 6\n", "\nTimeoutStopSec=20s\n", "\nDynamicUser=yes\n", "\nProtectSystem=strict\n", "\nNoNewPrivileges=yes\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no line %q", strings.TrimSpace(want))
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "relay.service")
	runnable := strings.Replace(string(text), "/usr/local/bin/relay", self, 1) // it must be there
	if err := os.WriteFile(unit, []byte(runnable), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
}
