package app

import (
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const envPrefix = "RELAY_"

func parseEnviron(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

// orchestrated matches what Kubernetes puts into the environment of every container for a service called relay, or
// relay-something.
const orchestrated = `^RELAY(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`

// warnUnknown logs the RELAY_* variables that nothing reads: a misspelt one must not leave its setting at the default in
// silence. known are all names that any command reads.
func warnUnknown(log *slog.Logger, env map[string]string, known []string) {
	foreign := regexp.MustCompile(orchestrated)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case !strings.HasPrefix(name, envPrefix), slices.Contains(known, name),
			name == "RELAY_PORT", foreign.MatchString(name),
			strings.HasPrefix(name, "RELAY_SANDBOX_"), strings.HasPrefix(name, "RELAY_TEST_"):
			continue
		}
		attrs := []any{slog.String("name", name)}
		near := nearest(name, known)
		if bare := strings.TrimPrefix(name, envPrefix); slices.Contains(known, bare) {
			near = bare // RELAY_NATS_URL: the name is the one that the nats CLI has
		}
		if near != "" {
			attrs = append(attrs, slog.String("did_you_mean", near))
		}
		log.Warn("an environment variable is ignored: relay has no setting of this name", attrs...)
	}
}
