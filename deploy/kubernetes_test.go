package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// manifests are what the files hold, decoded into the API's own types: an unknown or doubled field is an error.
type manifests struct {
	deployments []appsv1.Deployment
	budgets     []policyv1.PodDisruptionBudget
	accounts    []corev1.ServiceAccount
	secrets     []corev1.Secret
}

func readManifests(t *testing.T) (m manifests) {
	t.Helper()
	var files []string
	for _, pattern := range []string{"kubernetes/*.yaml", "kubernetes/*/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
		buffer := make([]byte, len(text)+1)
		for {
			n, err := documents.Read(buffer)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			m.add(t, file, buffer[:n])
		}
	}
	return m
}

func (m *manifests) add(t *testing.T, file string, document []byte) {
	t.Helper()
	var kind struct{ APIVersion, Kind string }
	if err := strict.Unmarshal(document, &kind); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var err error
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		err = decode(document, &m.deployments)
	case "policy/v1 PodDisruptionBudget":
		err = decode(document, &m.budgets)
	case "v1 ServiceAccount":
		err = decode(document, &m.accounts)
	case "v1 Secret":
		err = decode(document, &m.secrets)
	default:
		t.Fatalf("%s: no test for %q %q", file, kind.APIVersion, kind.Kind)
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", file, kind.Kind, err)
	}
}

func decode[T any](document []byte, all *[]T) error {
	var one T
	if err := strict.UnmarshalStrict(document, &one); err != nil {
		return err
	}
	*all = append(*all, one)
	return nil
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	if len(m.deployments) != 1 || len(m.budgets) != 1 || len(m.accounts) != 1 || len(m.secrets) != 1 {
		t.Fatalf("%+v", m)
	}
	d, pod := m.deployments[0], m.deployments[0].Spec.Template.Spec
	c := pod.Containers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && m.secrets[0].StringData[e.ValueFrom.SecretKeyRef.Key] == "" {
			t.Errorf("%s: the secret of the example has no key %q", e.Name, e.ValueFrom.SecretKeyRef.Key)
		}
	}
	drain, err := time.ParseDuration(env["RELAY_DRAIN_TIMEOUT"])
	if err != nil {
		t.Fatal(err)
	}
	budget, err := metav1.LabelSelectorAsSelector(m.budgets[0].Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	for what, holds := range map[string]bool{
		"two relays":                             *d.Spec.Replicas == 2,
		"the selector finds the pods":            d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] == d.Spec.Template.Labels["app.kubernetes.io/name"],
		"the budget finds the pods":              budget.Matches(labels.Set(d.Spec.Template.Labels)) && m.budgets[0].Spec.MaxUnavailable.IntValue() == 1,
		"an account of its own, without a token": pod.ServiceAccountName == m.accounts[0].Name && !*pod.AutomountServiceAccountToken,
		"time to drain":                          time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second > drain,
		"no root":                                *pod.SecurityContext.RunAsNonRoot && *pod.SecurityContext.RunAsUser != 0,
		"seccomp":                                pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"nothing can be written":                 *c.SecurityContext.ReadOnlyRootFilesystem,
		"no more rights":                         !*c.SecurityContext.AllowPrivilegeEscalation && len(c.SecurityContext.Capabilities.Add) == 0 && c.SecurityContext.Capabilities.Drop[0] == "ALL",
		"liveness":                               c.LivenessProbe.HTTPGet.Path == "/livez" && c.LivenessProbe.HTTPGet.Port.String() == c.Ports[0].Name,
		"readiness":                              c.ReadinessProbe.HTTPGet.Path == "/readyz" && c.ReadinessProbe.HTTPGet.Port.String() == c.Ports[0].Name,
		"probes reach it":                        env["RELAY_LISTEN"] == ":9464" && c.Ports[0].ContainerPort == 9464,
		"memory has a limit":                     c.Resources.Limits.Memory().Value() >= 192<<20 && c.Resources.Requests.Memory().Value() > 0,
		"not throttled":                          c.Resources.Limits.Cpu().IsZero(),
		"the runtime's limit is the relay's":     env["GOMEMLIMIT"] == "",
		"it runs":                                c.Args[0] == "run",
		"the secret's name":                      pod.Volumes[0].Secret.SecretName == m.secrets[0].Name && *pod.Volumes[0].Secret.DefaultMode == 0o440,
	} {
		if !holds {
			t.Errorf("not so: %s", what)
		}
	}
}
