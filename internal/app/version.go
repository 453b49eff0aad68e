package app

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// buildVersion is what the Go tool knows of this binary.
type buildVersion struct {
	Version  string `json:"version"`  // of the module, or (devel)
	Revision string `json:"revision"` // of the sources; "" if not known
	Modified bool   `json:"modified"` // the sources were not as committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version is set by the linker where the Go tool cannot know it: -ldflags "-X .../internal/app.version=v1.2.3".
var version string

func readVersion() buildVersion {
	v := buildVersion{Version: cmp.Or(version, "(devel)"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if version == "" && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (a *app) versionCommand() *cli.Command {
	return a.command("version", "print the version", groupOutput, nil, func(_ context.Context, c common) error {
		if err := a.checked(); err != nil {
			return err
		}
		v := readVersion()
		if c.json {
			return printJSON(a.stdout, v)
		}
		revision := ""
		if v.Revision != "" {
			revision = " " + v.Revision[:min(12, len(v.Revision))]
		}
		if v.Modified {
			revision += " (modified)"
		}
		_, err := fmt.Fprintf(a.stdout, "relay %s%s %s %s\n", v.Version, revision, v.Go, v.Platform)
		return err
	})
}
