package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

const (
	repositoryEnv = "RELAY_SANDBOX_REPOSITORY"
	cacheName     = "relay-sandbox"
	downloadLimit = 10 * time.Minute
)

// downloadable is the newest release of a major that the repository of embedded-postgres has.
func downloadable(major int) (embedded.PostgresVersion, bool) {
	versions := map[int]embedded.PostgresVersion{14: "14.24.0", 15: "15.19.0", 16: "16.15.0", 17: "17.11.0", 18: "18.6.0"}
	v, ok := versions[major]
	return v, ok
}

// cacheFolder holds one folder per downloaded version. It is the user's own cache if the account can enter it.
func cacheFolder(acc account) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		user = os.TempDir() // no home: rather a cache that goes with the next boot than none
	}
	dir, err := acc.reachable(user, "/var/cache", os.TempDir(), "/tmp")
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, cacheName), nil
}

// cachedFolders lists the bin folders of the versions that were downloaded before.
func cachedFolders(acc account) []string {
	cache, err := cacheFolder(acc)
	if err != nil {
		return nil
	}
	dirs, err := filepath.Glob(filepath.Join(cache, "*", "bin"))
	if err != nil {
		return nil
	}
	slices.Reverse(dirs) // of two releases of a major the newer one first
	return dirs
}

// download brings a PostgreSQL of the major into the cache. One process downloads at a time; the others find its result.
func download(ctx context.Context, major int, acc account, log *slog.Logger) (binaries, error) {
	version, ok := downloadable(major)
	if !ok {
		return binaries{}, fmt.Errorf("no release of PostgreSQL %d is known", major)
	}
	cache, err := cacheFolder(acc)
	if err != nil {
		return binaries{}, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, err
	}
	var lock *os.File
	err = poll(ctx, downloadLimit, func() (bool, error) {
		lock, err = tryLock(filepath.Join(cache, ".lock"))
		return !errors.Is(err, syscall.EWOULDBLOCK), err
	})
	if err != nil {
		return binaries{}, fmt.Errorf("wait for another download: %w", err)
	}

	dir := filepath.Join(cache, string(version))
	if b, err := inspect(ctx, filepath.Join(dir, "bin")); err == nil {
		return b, lock.Close()
	}
	log.InfoContext(ctx, "downloading PostgreSQL", "version", string(version), "folder", dir)
	fetched := make(chan error, 1)
	go func() {
		defer lock.Close() //nolint:errcheck // nothing was written to it
		fetched <- fetch(context.WithoutCancel(ctx), major, version, cache, dir)
	}()
	select {
	case err = <-fetched:
	case <-ctx.Done():
		// embedded-postgres takes no context. The goroutine ends with the download, or with the program; the lock is its own.
		err = context.Cause(ctx)
	}
	if err != nil {
		return binaries{}, fmt.Errorf("download PostgreSQL %s: %w", version, err)
	}
	return inspect(ctx, filepath.Join(dir, "bin"))
}

// fetch downloads and unpacks a version into dir. embedded-postgres offers this only as the first part of Start, so it gets
// a data folder that has a version but no configuration: Start skips initdb and cannot start a server. It makes its runtime
// folder after the unpacking, which tells a failed download from the failed start that is expected.
func fetch(ctx context.Context, major int, version embedded.PostgresVersion, cache, dir string) error {
	tmp, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // what stays is unused and has a name that is never looked at
	unpacked, runtime, data := filepath.Join(tmp, "unpacked"), filepath.Join(tmp, "runtime"), filepath.Join(tmp, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(strconv.Itoa(major)+"\n"), 0o600); err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}

	cfg := embedded.DefaultConfig().Version(version).Port(uint32(port)).Logger(io.Discard).
		CachePath(tmp).BinariesPath(unpacked).RuntimePath(runtime).DataPath(data)
	if url := os.Getenv(repositoryEnv); url != "" {
		cfg = cfg.BinaryRepositoryURL(url)
	}
	before := startLogs()
	defer func() {
		for _, name := range startLogs() {
			if !slices.Contains(before, name) {
				_ = os.Remove(name)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	}()
	startErr := embedded.NewDatabase(cfg).Start()
	if _, err := os.Stat(runtime); err != nil {
		return startErr
	}
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // something that did not answer inspect
		return err
	}
	return os.Rename(unpacked, dir)
}

// startLogs lists the files that embedded-postgres makes for each Start and never removes.
func startLogs() []string {
	names, err := filepath.Glob(filepath.Join(os.TempDir(), "embedded_postgres_log*"))
	if err != nil {
		return nil
	}
	return names
}
