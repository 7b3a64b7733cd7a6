package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	yamlfile "go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/completion"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/rules"
)

// takes are the options of the programs by name, and of the tool's commands as in "tallygate emit".
func takes(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	var add func(name string, p completion.Program)
	add = func(name string, p completion.Program) {
		for _, o := range p.Options {
			all[name] = append(all[name], o.Name)
		}
		for _, c := range p.Commands {
			add(name+" "+c.Name, c)
		}
	}
	for _, p := range cli.Programs(t.Context()) {
		add(p.Name, p)
	}
	return all
}

// A unit starts a program of the package, with options that it has, and the environment that it reads.
func TestUnitsStartWhatThereIs(t *testing.T) {
	options := takes(t)
	units, err := filepath.Glob(root + "/deploy/systemd/*")
	if err != nil || len(units) < 4 {
		t.Fatal(units, err)
	}
	program := regexp.MustCompile(`^ExecStart=/usr/(?:lib/tallygate|bin)/([a-z]+)( [a-z]+)? (.*)$`)
	variable := regexp.MustCompile(`^Environment=(TALLYGATE_[A-Z_]+)=`)
	starts := 0
	for _, unit := range units {
		content, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			line = strings.TrimSpace(line)
			if m := program.FindStringSubmatch(line); m != nil {
				starts++
				for arg := range strings.FieldsSeq(m[3]) {
					if strings.HasPrefix(arg, "--") && !slices.Contains(options[m[1]+m[2]], arg) {
						t.Errorf("%s: %s%s has no option %s", unit, m[1], m[2], arg)
					}
				}
			} else if strings.HasPrefix(line, "ExecStart=") {
				t.Errorf("%s: %s: a program of the package was expected", unit, line)
			}
			if m := variable.FindStringSubmatch(line); m != nil {
				wantVariable(t, unit, m[1], options["aggregator"])
			}
		}
	}
	if starts != 5 {
		t.Errorf("%d units start a program, want 5", starts)
	}
}

// wantVariable fails unless a variable is that of an option.
func wantVariable(t *testing.T, file, name string, options []string) {
	t.Helper()
	if !slices.ContainsFunc(options, func(o string) bool { return ops.EnvName(strings.TrimPrefix(o, "--")) == name }) {
		t.Errorf("%s: no option is read from %s", file, name)
	}
}

// What the package puts into /etc/tallygate has options that there are, also in lines that are comments.
func TestThePackagesConfigHasOptions(t *testing.T) {
	options := takes(t)
	src, err := os.ReadFile(root + "/deploy/package/tallygate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(src), regexp.MustCompile(`(?m)^(  )# ([a-z-]+: )`).ReplaceAllString(string(src), "$1$2")} {
		var file map[string]yamlfile.Node
		if err := yamlfile.Unmarshal([]byte(regexp.MustCompile(`(?m)^  listen: 127.*$`).ReplaceAllString(text, "")), &file); err != nil {
			t.Fatal(err)
		}
		for name, value := range file {
			if value.Kind != yamlfile.MappingNode {
				if !slices.Contains(options["aggregator"], "--"+name) {
					t.Errorf("no program has an option %s", name)
				}
				continue
			}
			for i := 0; i < len(value.Content); i += 2 {
				known := slices.Concat(options[name], options["tallygate "+name]) // a program's section, or a command's
				if o := "--" + value.Content[i].Value; !slices.Contains(known, o) {
					t.Errorf("%s has no option %s", name, o)
				}
			}
		}
	}
	for file, program := range map[string]string{"aggregator": "aggregator", "enforcer": "enforcer", "emit-nginx": "tallygate emit"} {
		file := root + "/deploy/package/" + file + ".env"
		env, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^#?(TALLYGATE_[A-Z_]+)=`).FindAllStringSubmatch(string(env), -1) {
			if m[1] != "TALLYGATE_LOG" { // the unit's own: it is an argument
				wantVariable(t, file, m[1], options[program])
			}
		}
	}
}

// Who starts an aggregator before having written rules blocks nobody.
func TestThePackagesRulesOnlyWatch(t *testing.T) {
	src, err := os.ReadFile(root + "/deploy/package/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile("rules.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(src); len(set.Rules) == 0 || strings.Count(text, "mode: shadow") != 1 || strings.Contains(text, "\n      mode:") {
		t.Errorf("a rule of the package's does more than watch:\n%s", text)
	}
}
