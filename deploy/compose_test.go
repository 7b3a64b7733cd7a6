package deploy

import (
	"io"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// helpOf is the help of the program that a service of docker-compose.yml runs; "" if it is none of ours.
func helpOf(t *testing.T, s service) string {
	t.Helper()
	var help strings.Builder
	none := testrun.NoEnv
	switch s.Build.Target {
	case "aggregator":
		aggregator.Command(testrun.Context(t), []string{"--help"}, &help, &help, none)
	case "enforcer":
		enforcer.Command(testrun.Context(t), []string{"--help"}, &help, &help, none)
	case "tallygate":
		if len(s.Command) == 0 {
			t.Fatal("a service runs tallygate without a command")
		}
		cli.Main(testrun.Context(t), []string{s.Command[0], "--help"}, strings.NewReader(""), &help, io.Discard, none)
	}
	return help.String()
}

// Each variable that a service of ours gets is an option of its program, and each flag, too.
func TestComposeSetsOptionsThatThereAre(t *testing.T) {
	ours := 0
	for name, s := range compose(t) {
		help := helpOf(t, s)
		if help == "" {
			continue
		}
		ours++
		for variable := range s.Environment {
			option, ok := strings.CutPrefix(variable, "TALLYGATE_")
			if flag := "\n  --" + strings.ToLower(strings.ReplaceAll(option, "_", "-")); variable != "TALLYGATE_TOKEN" && (!ok || !strings.Contains(help, flag+" ") && !strings.Contains(help, flag+"\n")) {
				t.Errorf("%s gets %s, which is no option of it:\n%s", name, variable, help)
			}
		}
		for _, arg := range s.Command {
			if flag, _, _ := strings.Cut(arg, "="); strings.HasPrefix(flag, "--") && !strings.Contains(help, "\n  "+flag) {
				t.Errorf("%s gets %s, which is no option of it", name, arg)
			}
		}
	}
	if ours < 3 {
		t.Errorf("%d services are ours", ours)
	}
}

// The program itself reads the file of receivers.
func TestSampleOfReceiversIsGood(t *testing.T) {
	var out strings.Builder
	args := []string{"notify", "--notify", "notify.yaml", "--redis", "127.0.0.1:6379", "--check"}
	if status := cli.Main(testrun.Context(t), args, strings.NewReader(""), &out, &out, testrun.NoEnv); status != 0 {
		t.Errorf("tallygate %s: status %d\n%s", strings.Join(args, " "), status, &out)
	}
}

// Grafana's data source is the Prometheus beside it, and the dashboard is where its provider looks.
func TestGrafanaIsProvisioned(t *testing.T) {
	services := compose(t)
	var sources struct {
		Datasources []struct{ Name, Type, URL string }
	}
	read(t, "grafana/datasources.yaml", &sources)
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	read(t, "grafana/dashboards.yaml", &providers)
	if len(sources.Datasources) != 1 || len(providers.Providers) != 1 {
		t.Fatalf("%d data sources, %d providers", len(sources.Datasources), len(providers.Providers))
	}
	at, err := url.Parse(sources.Datasources[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	if to := services[at.Hostname()]; !slices.ContainsFunc(to.Ports, func(p string) bool { return strings.HasSuffix(p, ":"+at.Port()) }) {
		t.Errorf("Grafana asks %s, and that service has the ports %v", at, to.Ports)
	}
	mounted := map[string]string{}
	for _, v := range services["grafana"].Volumes {
		parts := strings.Split(v, ":")
		mounted[parts[1]] = parts[0]
	}
	folder, home := providers.Providers[0].Options.Path, services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if mounted[home] != "./deploy/dashboard.json" || path.Dir(home) != folder {
		t.Errorf("the dashboard is at %q, and the provider looks into %q; mounted: %v", home, folder, mounted)
	}
	for _, kind := range []string{"datasources", "dashboards"} {
		if mounted["/etc/grafana/provisioning/"+kind+"/tallygate.yaml"] != "./deploy/grafana/"+kind+".yaml" {
			t.Errorf("Grafana does not get %s: %v", kind, mounted)
		}
	}
}
