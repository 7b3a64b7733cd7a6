// Package deploy checks the files that run the whole: docker-compose.yml and what it mounts.
package deploy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/rules"
)

type service struct {
	Command     []string
	Build       struct{ Dockerfile, Target string }
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Profiles    []string
	DependsOn   map[string]any `yaml:"depends_on"`
	Healthcheck map[string]any
}

func compose(t *testing.T) map[string]service {
	t.Helper()
	var file struct {
		Services map[string]service
		Volumes  map[string]any
		Rest     map[string]any `yaml:",inline"` // the fragments that services share
	}
	read(t, "../docker-compose.yml", &file)
	for name, s := range file.Services {
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, named := file.Volumes[source]; named {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", source)); err != nil {
				t.Errorf("%s mounts %s: %v", name, source, err)
			}
		}
	}
	return file.Services
}

func TestComposeHangsTogether(t *testing.T) {
	services := compose(t)
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range services {
		for on := range s.DependsOn {
			if services[on].Healthcheck == nil {
				t.Errorf("%s waits for %s, which has no health check", name, on)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s is open to the network: %s", name, p)
			}
		}
		if target := s.Build.Target; target != "" && !strings.Contains(string(dockerfile), " AS "+target+"\n") {
			t.Errorf("%s is built from the target %s, which is not in %s", name, target, s.Build.Dockerfile)
		}
		for variable, value := range s.Environment {
			if !slices.Contains([]string{"TALLYGATE_KAFKA", "TALLYGATE_REDIS", "TALLYGATE_ADVERTISE", "TALLYGATE_AGGREGATOR"}, variable) {
				continue
			}
			for _, addr := range strings.Split(value, ",") {
				host, _, err := net.SplitHostPort(addr)
				if _, ok := services[host]; !ok || err != nil {
					t.Errorf("%s has %s=%s, where no service is (%v)", name, variable, value, err)
				}
			}
		}
	}
	if command := services["redis"].Command; !slices.Contains(command, "noeviction") {
		t.Errorf("Redis may evict: %q", command)
	}
}

func TestPrometheusScrapesEveryProgram(t *testing.T) {
	services := compose(t)
	var config struct {
		Scrape []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
			DNS    []struct {
				Names []string
				Port  int
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	read(t, "prometheus.yml", &config)
	var got, want []string
	for _, job := range config.Scrape {
		for _, static := range job.Static {
			got = append(got, static.Targets...)
		}
		for _, dns := range job.DNS {
			for _, name := range dns.Names {
				got = append(got, fmt.Sprintf("%s:%d", name, dns.Port))
				if len(services[name].Profiles) == 0 {
					t.Errorf("%s is always there: a target that is down should be an alert", name)
				}
			}
		}
	}
	for name, s := range services {
		if listen := s.Environment["TALLYGATE_METRICS_LISTEN"]; listen != "" {
			_, port, err := net.SplitHostPort(listen)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			want = append(want, fmt.Sprintf("%s:%s", name, port))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) < 3 {
		t.Errorf("Prometheus scrapes %v, metrics are at %v", got, want)
	}
}

func TestSampleRulesCompile(t *testing.T) {
	src, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rules.Compile("rules.yaml", src); err != nil {
		t.Error(err)
	}
}

// The rules of the profile ai are those of its example.
func TestSampleRulesHaveTheExamples(t *testing.T) {
	var files [2]struct {
		Spec struct{ Rules []map[string]any }
	}
	read(t, "rules.yaml", &files[0])
	read(t, "../examples/ai/rules.yaml", &files[1])
	for _, want := range files[1].Spec.Rules {
		if !slices.ContainsFunc(files[0].Spec.Rules, func(r map[string]any) bool { return reflect.DeepEqual(r, want) }) {
			t.Errorf("deploy/rules.yaml does not have the example's rule %v", want["name"])
		}
	}
}

// Compose itself reads the file, where there is a Compose.
func TestComposeConfig(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("docker-compose", "-f", "../docker-compose.yml", "config", "-q")
	if _, err := exec.LookPath("docker-compose"); err != nil {
		cmd = exec.Command("docker", "compose", "-f", "../docker-compose.yml", "config", "-q")
		if exec.Command("docker", "compose", "version").Run() != nil {
			t.Skip("there is no docker-compose")
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(src, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// An aggregator that other containers reach lets in whom the file names, with the token that the page tells.
func TestComposeAsksForCredentials(t *testing.T) {
	page, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile(`TALLYGATE_TOKEN=(\S+)`).FindSubmatch(page)
	if told == nil {
		t.Fatal("the page tells no token")
	}
	guard, err := access.New(access.Config{Tokens: "tokens.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	ask := httptest.NewRequest(http.MethodGet, "/v1/explain?uid=42", nil)
	ask.Header.Set("Authorization", "Bearer "+string(told[1]))
	w := httptest.NewRecorder()
	guard.Require(access.Admin, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, ask)
	if w.Code != http.StatusOK {
		t.Errorf("the token that the page tells: %d %s", w.Code, w.Body)
	}
	for name, s := range compose(t) {
		if token := s.Environment["TALLYGATE_TOKEN"]; token != "" && token != string(told[1]) {
			t.Errorf("%s shows another token than the page tells", name)
		}
		if s.Build.Target == "aggregator" && s.Environment["TALLYGATE_TOKENS"] == "" {
			t.Errorf("%s asks nobody for credentials", name)
		}
	}
}
