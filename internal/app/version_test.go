package app

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	text := relay(t, nil, "version")
	if text.code != exitOK || !strings.HasPrefix(text.stdout, "relay ") || !strings.Contains(text.stdout, runtime.Version()) || strings.Count(text.stdout, "\n") != 1 {
		t.Errorf("%+v", text)
	}
	var v map[string]any
	got := relay(t, nil, "version --json")
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"version", "revision", "modified", "go", "platform"} {
		if _, has := v[key]; !has {
			t.Errorf("no %s in %s", key, got.stdout)
		}
	}
}
