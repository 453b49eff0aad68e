package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNoPostgres means that no PostgreSQL was found on this machine and none could be downloaded.
var ErrNoPostgres = errors.New("no PostgreSQL to be had")

// The majors that the relay supports, and so the ones that are looked for.
const (
	oldestMajor = 14
	newestMajor = 18
)

const postgresEnv = "RELAY_SANDBOX_POSTGRES"

// binaries is an installed PostgreSQL server.
type binaries struct {
	dir     string // holds initdb and postgres
	major   int
	version string // as the server says it, e.g. 15.18
}

// findBinaries returns a PostgreSQL of the given major, or any supported one for 0: the environment's, then PATH's, then the
// system's (newest first), then one that was downloaded before, then a download.
func findBinaries(ctx context.Context, major int, acc account, log *slog.Logger) (binaries, error) {
	if major != 0 && (major < oldestMajor || major > newestMajor) {
		return binaries{}, fmt.Errorf("%w: version %d is not between %d and %d", ErrNoPostgres, major, oldestMajor, newestMajor)
	}
	found, err := installed(ctx, acc)
	if err != nil {
		return binaries{}, err
	}
	for _, b := range found {
		if major == 0 || b.major == major {
			return b, nil
		}
	}
	if major == 0 {
		major = newestMajor
	}
	b, err := download(ctx, major, acc, log)
	if err != nil {
		return binaries{}, fmt.Errorf("%w: none is installed and the download did not work (set %s to the bin folder of one): %w",
			ErrNoPostgres, postgresEnv, err)
	}
	return b, nil
}

// installed lists what can be used without a download, best first.
func installed(ctx context.Context, acc account) ([]binaries, error) {
	var found []binaries
	seen := map[string]bool{} // folders have several names
	if dir := os.Getenv(postgresEnv); dir != "" {
		b, err := inspect(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", postgresEnv, dir, err)
		}
		found = append(found, b)
	}
	for _, dirs := range [][]string{pathFolders(ctx), systemFolders(), cachedFolders(acc)} {
		var group []binaries
		for _, dir := range dirs {
			target, err := filepath.EvalSymlinks(dir)
			if err != nil || seen[target] {
				continue
			}
			seen[target] = true
			b, err := inspect(ctx, dir)
			if err == nil && b.major >= oldestMajor && b.major <= newestMajor {
				group = append(group, b)
			}
		}
		slices.SortStableFunc(group, func(a, b binaries) int { return cmp.Compare(b.major, a.major) })
		found = append(found, group...)
	}
	return found, nil
}

func pathFolders(ctx context.Context) []string {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	return dirs
}

func systemFolders() []string {
	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                   // Red Hat
		"/opt/homebrew/opt/postgresql@*/bin", // macOS, arm64
		"/usr/local/opt/postgresql@*/bin",    // macOS, amd64
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/libexec/postgresql*", // Alpine
		"/usr/local/pgsql/bin",
	} {
		match, err := filepath.Glob(pattern)
		if err == nil {
			dirs = append(dirs, match...)
		}
	}
	return dirs
}

// inspect asks the server in dir for its version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("ask %s for its version: %w", dir, err)
	}
	version, major, err := parseVersion(string(out))
	if err != nil {
		return binaries{}, err
	}
	return binaries{dir: dir, major: major, version: version}, nil
}

// parseVersion reads the answer of postgres --version, e.g. "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
func parseVersion(text string) (version string, major int, err error) {
	_, rest, _ := strings.Cut(text, "(PostgreSQL) ")
	version, _, _ = strings.Cut(strings.TrimSpace(rest), " ")
	digits := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(version)
	}
	major, err = strconv.Atoi(version[:digits])
	if err != nil {
		return "", 0, fmt.Errorf("unknown form of version %q", strings.TrimSpace(text))
	}
	return version, major, nil
}
