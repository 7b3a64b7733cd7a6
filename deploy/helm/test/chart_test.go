// Package helmtest renders the chart with Helm's own engine, and holds every document against Kubernetes'
// types and the options of the programs. It is a module of its own, so that k8s.io stays out of the main one.
package helmtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

const minimal = "kafka: {brokers: [kafka:9092]}\nredis: {addresses: [redis:6379]}\nauth: {tokensSecret: tokens}\n"

const everything = `
kafka: {brokers: [k1:9093, k2:9093], tls: {enabled: true, caSecret: kca, certSecret: kcert}, sasl: {mechanism: scram-sha-512, user: tg, passwordSecret: kpass}}
redis: {addresses: [r1:6380], passwordSecret: rpass, user: tg, tls: {enabled: true, caSecret: rca, certSecret: rcert}}
auth: {tokensSecret: tokens, oidc: {issuer: "https://login.example.com", clientId: tallygate}}
aggregator: {tlsSecret: atls, options: {log-level: debug}}
enforcer: {tlsSecret: etls, emitAdmitted: true, emitDenied: true}
console: {enabled: true, replicas: 2, tokenSecret: ct, sessionKeySecret: sk, clientSecret: cs, tlsSecret: ctls, externalUrl: "https://console.example.com", ingress: {enabled: true, tlsSecret: itls}}
notify: {enabled: true, tokenSecret: nt, secret: ns, config: "receivers: []"}
metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true, labels: {release: prom}}}
`

// sets are the values that are rendered.
var sets = map[string]string{
	"minimal":    minimal,
	"everything": everything,
	"daemonset":  minimal + "enforcer: {mode: DaemonSet, hostPort: 8080}\n",
	"sidecar":    minimal + "enforcer: {mode: Sidecar}\n",
	"route":      minimal + "console: {enabled: true, tokenSecret: ct, externalUrl: \"https://console.example.com\", httpRoute: {enabled: true, parentRefs: [{name: public, namespace: gateways}]}}\n",
	"none":       minimal + "enforcer: {mode: None}\nnetworkPolicy: {enabled: false}\n",
}

func render(values string) (map[string]string, error) { return renderIn("limits", values) }

func renderIn(namespace, values string) (map[string]string, error) {
	c, err := loader.Load("../tallygate")
	if err != nil {
		return nil, err
	}
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "tallygate", Namespace: namespace, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(c, all)
}

type workload struct {
	name     string
	selector map[string]string
	template core.PodTemplateSpec
}

var between = regexp.MustCompile(`(?m)^---$`)

// documents decodes all that is rendered, and fails on a field that Kubernetes does not know.
func documents(t *testing.T, values string) (works []workload, all []any) {
	t.Helper()
	files, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		w, a, err := decode(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		works, all = append(works, w...), append(all, a...)
	}
	return works, all
}

// decode is strict: a field that Kubernetes does not know is an error.
func decode(text string) (works []workload, all []any, err error) {
	for _, doc := range between.Split(text, -1) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			return nil, nil, fmt.Errorf("%w\n%s", err, doc)
		}
		if kind.Kind == "" {
			continue
		}
		into := map[string]any{
			"StatefulSet": &apps.StatefulSet{}, "Deployment": &apps.Deployment{}, "DaemonSet": &apps.DaemonSet{},
			"Service": &core.Service{}, "ConfigMap": &core.ConfigMap{}, "Pod": &core.Pod{},
			"PodDisruptionBudget": &policy.PodDisruptionBudget{}, "NetworkPolicy": &networking.NetworkPolicy{},
			"Ingress": &networking.Ingress{}, "ServiceMonitor": &monitoring.ServiceMonitor{}, "PrometheusRule": &monitoring.PrometheusRule{},
			"HTTPRoute": &gateway.HTTPRoute{},
		}[kind.Kind]
		if into == nil {
			return nil, nil, fmt.Errorf("nobody checks a %s", kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			return nil, nil, fmt.Errorf("%s: %w\n%s", kind.Kind, err, doc)
		}
		all = append(all, into)
		switch o := into.(type) {
		case *apps.StatefulSet:
			works = append(works, workload{o.Name, o.Spec.Selector.MatchLabels, o.Spec.Template})
		case *apps.Deployment:
			works = append(works, workload{o.Name, o.Spec.Selector.MatchLabels, o.Spec.Template})
		case *apps.DaemonSet:
			works = append(works, workload{o.Name, o.Spec.Selector.MatchLabels, o.Spec.Template})
		case *core.ConfigMap:
			if text, is := o.Data["patch.yaml"]; is {
				var d apps.Deployment
				if err := yaml.UnmarshalStrict([]byte(text), &d); err != nil {
					return nil, nil, fmt.Errorf("the sidecar's patch: %w\n%s", err, text)
				}
				d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.InitContainers
				works = append(works, workload{"tallygate-sidecar", nil, d.Spec.Template})
			}
		}
	}
	return works, all, nil
}

func TestLint(t *testing.T) {
	for name, values := range sets {
		v, err := chartutil.ReadValues([]byte(values))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.All("../tallygate", v, "limits", true).Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

func TestMistakesAreRefused(t *testing.T) {
	for values, says := range map[string]string{
		minimal + "replicas: 3\n":                                           "replicas",
		minimal + "enforcer: {mode: Sidekick}\n":                            "mode",
		minimal + "aggregator: {replicas: two}\n":                           "replicas",
		"kafka: {brokers: [kafka]}\n":                                       "brokers",
		"redis: {addresses: [redis:6379]}\n":                                "auth.tokensSecret",
		minimal + "console: {enabled: true}\n":                              "console.tokenSecret",
		minimal + "console: {enabled: true, replicas: 2, tokenSecret: a}\n": "sessionKeySecret",
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s\nis answered with %v", values, err)
		}
	}
}

// help has each program's options, from the program itself.
func help(t *testing.T, command ...string) string {
	t.Helper()
	c := exec.Command("go", append([]string{"run", "./cmd/" + command[0]}, append(command[1:], "--help")...)...) //nolint:gosec // ours
	c.Dir = "../../.."
	out, err := c.CombinedOutput()
	if !strings.Contains(string(out), "Options") {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return string(out)
}

var helped map[string]string

// helps are the options of each container's program. To build the programs takes long, so it does it once.
func helps(t *testing.T) map[string]string {
	t.Helper()
	if helped == nil {
		helped = map[string]string{"aggregator": help(t, "aggregator"), "enforcer": help(t, "enforcer"),
			"console": help(t, "tallygate", "console"), "notify": help(t, "tallygate", "notify")}
		helped["tallygate-enforcer"] = helped["enforcer"]
	}
	return helped
}

func TestWhatIsRendered(t *testing.T) {
	helps := helps(t)
	for name, values := range sets {
		t.Run(name, func(t *testing.T) {
			works, all := documents(t, values)
			for _, m := range wrong(works, all, helps) {
				t.Error(m)
			}
		})
	}
}

// wrong is all that is found in what is rendered.
func wrong(works []workload, all []any, helps map[string]string) (found []string) {
	for _, w := range works {
		for _, m := range mistakes(w, helps) {
			found = append(found, w.name+": "+m)
		}
		for _, v := range w.template.Spec.Volumes {
			if m := v.ConfigMap; m != nil && (m.Optional == nil || !*m.Optional) && configMap(all, m.Name) == nil {
				found = append(found, w.name+": no ConfigMap "+m.Name)
			}
		}
	}
	for _, o := range all {
		switch o := o.(type) {
		case *core.Service:
			found = append(found, meets(works, o.Name, o.Spec.Selector, o.Spec.Ports...)...)
		case *policy.PodDisruptionBudget:
			found = append(found, meets(works, o.Name, o.Spec.Selector.MatchLabels)...)
		case *networking.NetworkPolicy:
			found = append(found, meets(works, o.Name, o.Spec.PodSelector.MatchLabels)...)
		}
	}
	return append(found, nowhere(all)...)
}

func configMap(all []any, name string) *core.ConfigMap {
	for _, o := range all {
		if m, is := o.(*core.ConfigMap); is && m.Name == name {
			return m
		}
	}
	return nil
}

// meets says what is wrong with a selector, and with the ports that its pods should have.
func meets(works []workload, name string, selector map[string]string, ports ...core.ServicePort) (found []string) {
	met := false
	for _, w := range works {
		if !selects(selector, w.template.Labels) {
			continue
		}
		met = true
		for _, p := range ports {
			if !slices.ContainsFunc(w.template.Spec.Containers, func(c core.Container) bool { return hasPort(c, p.TargetPort.StrVal) }) {
				found = append(found, fmt.Sprintf("%s sends to the port %s, which %s has not", name, p.TargetPort.String(), w.name))
			}
		}
	}
	if !met {
		found = append(found, name+" selects no pod")
	}
	return found
}

func hasPort(c core.Container, name string) bool {
	return slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == name })
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// secret is the name of an option, or of a variable, whose value nobody should read.
var secret = regexp.MustCompile(`(password|token|tokens|secret|key|keys)(-file)?$`)

// mistakes are what Kubernetes takes and the program, or an operator, would not.
func mistakes(w workload, helps map[string]string) (all []string) {
	if w.selector != nil && !selects(w.selector, w.template.Labels) {
		all = append(all, "its selector does not select its pods")
	}
	spec := w.template.Spec
	for _, c := range spec.Containers {
		mounted := []string{"/var/lib/tallygate"}
		for _, m := range c.VolumeMounts {
			mounted = append(mounted, m.MountPath)
			if !slices.ContainsFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
				all = append(all, "no volume "+m.Name)
			}
		}
		for _, arg := range c.Args {
			option, value, _ := strings.Cut(arg, "=")
			if strings.HasPrefix(arg, "--") && !regexp.MustCompile(`(?m)^  `+option+`( |$)`).MatchString(helps[c.Name]) {
				all = append(all, "no option "+option)
			}
			if strings.HasPrefix(value, "/") && !slices.Contains(mounted, filepath.Dir(value)) {
				all = append(all, value+" is mounted nowhere")
			}
			if secret.MatchString(option) && !strings.HasPrefix(value, "/etc/tallygate/secrets/") {
				all = append(all, option+" is not in a Secret")
			}
		}
		for _, e := range c.Env {
			if e.Value != "" && secret.MatchString(strings.ReplaceAll(strings.ToLower(e.Name), "_", "-")) {
				all = append(all, e.Name+" is not in a Secret")
			}
		}
		for _, p := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if p == nil || !hasPort(c, p.HTTPGet.Port.StrVal) {
				all = append(all, "a probe without a port")
			} else if !slices.Contains([]string{"/healthz", "/readyz"}, p.HTTPGet.Path) {
				all = append(all, "a probe of "+p.HTTPGet.Path+", which programs do not serve")
			}
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			all = append(all, "no resources")
		}
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			all = append(all, "its root can be written")
		}
	}
	return all
}

// The checks above would notice these.
func TestBrokenCharts(t *testing.T) {
	helps := helps(t)
	for name, breaks := range map[string]func(*workload){
		"option":   func(w *workload) { w.template.Spec.Containers[0].Args[0] = "--kafak=a:1" },
		"volume":   func(w *workload) { w.template.Spec.Volumes = nil },
		"mounted":  func(w *workload) { w.template.Spec.Containers[0].VolumeMounts = nil },
		"selector": func(w *workload) { w.template.Labels = nil },
		"probe":    func(w *workload) { w.template.Spec.Containers[0].Ports = nil },
		"/health,": func(w *workload) { w.template.Spec.Containers[0].LivenessProbe.HTTPGet.Path = "/health" },
		"Secret": func(w *workload) {
			w.template.Spec.Containers[0].Args[0] = "--kafka-password-file=/var/lib/tallygate/p"
		},
		"VARIABLE_TOKEN": func(w *workload) {
			w.template.Spec.Containers[0].Env = append(w.template.Spec.Containers[0].Env, core.EnvVar{Name: "VARIABLE_TOKEN", Value: "t"})
		},
	} {
		works, _ := documents(t, minimal)
		for _, w := range works {
			if w.name != "tallygate-aggregator" {
				continue
			}
			breaks(&w)
			if found := strings.Join(mistakes(w, helps), "\n"); !strings.Contains(found, name) {
				t.Errorf("%s: it found only %q", name, found)
			}
		}
	}
}

func TestTheAlertsAreThoseOfTheRepository(t *testing.T) {
	want, err := os.ReadFile("../../alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../tallygate/files/alerts.yaml"); err != nil || string(got) != string(want) {
		t.Errorf("cp deploy/alerts.yaml deploy/helm/tallygate/files/ (%v)", err)
	}
}
