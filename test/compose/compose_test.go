// Package compose_test holds docker-compose.yml and the Dockerfile to what they promise, without a Docker engine: what can
// be read in them is read, and the command lines in them are run against real servers.
package compose_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Run(m))
}

// root is the top of the repository, seen from this folder.
const root = "../.."

// load reads docker-compose.yml as Compose does for somebody who has set the given variables and has no .env file.
func load(t *testing.T, env types.Mapping) *types.Project {
	t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "docker-compose.yml")}},
		Environment: env,
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// relays lists the services that run the relay's image, those that others depend on first.
func relays(t *testing.T, project *types.Project) []types.ServiceConfig {
	t.Helper()
	var services []types.ServiceConfig
	err := project.ForEachService(nil, func(_ string, s *types.ServiceConfig) error {
		if s.Build != nil {
			services = append(services, *s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return services
}

// pinned says whether an image is named with a version of at least two parts.
func pinned(image string) bool {
	return regexp.MustCompile(`^[a-z0-9./-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?$`).MatchString(image)
}

func TestServicesOfOthers(t *testing.T) {
	t.Parallel()
	project := load(t, nil)
	for name, s := range project.Services {
		if s.Build != nil {
			continue
		}
		if !pinned(s.Image) {
			t.Errorf("%s: image %s is not pinned to a version", name, s.Image)
		}
		if s.HealthCheck == nil || s.HealthCheck.Disable || len(s.HealthCheck.Test) == 0 {
			t.Errorf("%s: no health check", name)
		}
		if len(s.Volumes) == 0 {
			t.Errorf("%s: what it holds would not outlive its container", name)
		}
	}
	if want, got := "nats:"+module(t, "github.com/nats-io/nats-server/v2")+"-alpine", project.Services["nats"].Image; got != want {
		t.Errorf("nats runs %s, but the tests embed %s", got, want)
	}
	postgres := strings.Join(project.Services["postgres"].Command, " ")
	for _, setting := range []string{"wal_level=logical", "max_slot_wal_keep_size="} {
		if !strings.Contains(postgres, "-c "+setting) {
			t.Errorf("postgres runs without %s: %s", setting, postgres)
		}
	}
}

func TestPortsAreLocal(t *testing.T) {
	t.Parallel()
	for name, s := range load(t, nil).Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %d is published on %q", name, port.Target, port.HostIP)
			}
		}
	}
}

func TestPasswordIsOneVariable(t *testing.T) {
	t.Parallel()
	const secret = `p@ss/w:o%rd`
	project := load(t, types.Mapping{"POSTGRES_PASSWORD": secret})
	if got := project.Services["postgres"].Environment["POSTGRES_PASSWORD"]; got == nil || *got != secret {
		t.Error("postgres does not take POSTGRES_PASSWORD")
	}
	for _, s := range relays(t, project) {
		for key, value := range s.Environment {
			if value != nil && strings.Contains(*value, secret) != (key == "PGPASSWORD") {
				t.Errorf("%s: %s=%s", s.Name, key, *value)
			}
		}
	}
}

func TestOrderOfStart(t *testing.T) {
	t.Parallel()
	project := load(t, nil)
	for _, want := range []struct{ service, on, condition string }{
		{"outbox-create", "postgres", types.ServiceConditionHealthy},
		{"stream-create", "nats", types.ServiceConditionHealthy},
		{"slot-create", "postgres", types.ServiceConditionHealthy},
		{"slot-create", "outbox-create", types.ServiceConditionCompletedSuccessfully},
		{"relay", "postgres", types.ServiceConditionHealthy},
		{"relay", "nats", types.ServiceConditionHealthy},
		{"relay", "stream-create", types.ServiceConditionCompletedSuccessfully},
		{"relay", "slot-create", types.ServiceConditionCompletedSuccessfully},
	} {
		if got := project.Services[want.service].DependsOn[want.on].Condition; got != want.condition {
			t.Errorf("%s waits for %s to be %q, not %q", want.service, want.on, got, want.condition)
		}
	}
	for _, s := range relays(t, project) {
		restart := types.RestartPolicyNo
		if s.Name == "relay" {
			restart = types.RestartPolicyUnlessStopped
		}
		if s.Restart != restart {
			t.Errorf("%s: restart is %q, not %q", s.Name, s.Restart, restart)
		}
	}
}

func TestRelayHasTimeToDrain(t *testing.T) {
	t.Parallel()
	relay := load(t, nil).Services["relay"]
	text := relay.Environment["RELAY_DRAIN_TIMEOUT"]
	if text == nil {
		t.Fatal("RELAY_DRAIN_TIMEOUT is not set")
	}
	drain, err := time.ParseDuration(*text)
	if err != nil {
		t.Fatal(err)
	}
	if relay.StopGracePeriod == nil || time.Duration(*relay.StopGracePeriod) <= drain {
		t.Errorf("stop_grace_period %v is not longer than the drain timeout %v", relay.StopGracePeriod, drain)
	}
}

// TestCommandLine compares every command, flag and variable of the file with what the binary says of itself.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	helpFlag, helpEnv := regexp.MustCompile(`--[a-z][a-z0-9-]*`), regexp.MustCompile(`\$([A-Z][A-Z0-9_]*)`)
	binary := build(t, "v0.0.0-test")
	services := relays(t, load(t, nil))
	var variables []string
	for _, s := range services {
		words := slices.Clone([]string(s.Command))
		if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") }); i >= 0 {
			words = words[:i]
		}
		help := output(t, binary, append(words, "--help"), nil)
		if !strings.Contains(help, strings.Join(append([]string{"relay"}, words...), " ")) {
			t.Errorf("%s: this is not the help of %q:\n%s", s.Name, words, help)
		}
		known := helpFlag.FindAllString(help, -1)
		for _, word := range s.Command[len(words):] {
			if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !slices.Contains(known, flag) {
				t.Errorf("%s: relay %s has no flag %s", s.Name, strings.Join(words, " "), flag)
			}
		}
		for _, match := range helpEnv.FindAllStringSubmatch(help, -1) {
			variables = append(variables, match[1])
		}
	}
	// The services share most of their variables; each must mean something to at least one of them.
	for _, s := range services {
		for key := range s.Environment {
			if !strings.HasPrefix(key, "PG") && !slices.Contains(variables, key) {
				t.Errorf("%s: no command of the file knows %s", s.Name, key)
			}
		}
	}
}
