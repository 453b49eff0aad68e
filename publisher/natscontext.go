package publisher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/synadia-io/orbit.go/natscontext"
)

// readContext reads a context of the nats CLI: by name from its folder, or from the file of an absolute path.
func readContext(name string) (natscontext.Settings, error) {
	path := name
	if !filepath.IsAbs(name) {
		if strings.Contains(name, "..") || strings.ContainsRune(name, filepath.Separator) {
			return natscontext.Settings{}, errors.New("want the name of a context, or an absolute path of its file")
		}
		parent := os.Getenv("XDG_CONFIG_HOME")
		if parent == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return natscontext.Settings{}, err
			}
			parent = filepath.Join(home, ".config")
		}
		path = filepath.Join(parent, "nats", "context", name+".json")
	}
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if errors.Is(err, fs.ErrNotExist) {
		return natscontext.Settings{}, fmt.Errorf("there is no such context (looked for %s)", path)
	}
	if err != nil {
		return natscontext.Settings{}, err
	}
	var settings natscontext.Settings
	if err := json.Unmarshal(data, &settings); err != nil {
		return natscontext.Settings{}, fmt.Errorf("%s is not a context file: not the JSON it should be", path)
	}
	return settings, checkContext(settings)
}

// checkContext refuses what would be ignored in silence.
func checkContext(s natscontext.Settings) error {
	switch {
	case s.NSCLookup != "":
		return errors.New("it looks its credentials up with nsc: export them to a file and give that as nats-creds")
	case s.WinCertStoreType != "":
		return errors.New("it takes its certificates from a Windows store: give files instead")
	case s.JSAPIPrefix != "":
		return errors.New("it sets jetstream_api_prefix: use jetstream_domain")
	case s.UserJwt != "" && s.NKey == "":
		return errors.New("it sets user_jwt without nkey")
	}
	return nil
}

func expandHome(path string) string {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	return home + rest
}
