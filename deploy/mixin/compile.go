package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-jsonnet"
	"go.yaml.in/yaml/v4"
)

// Where the outputs are. The page has the table of alerts between two comments.
const (
	alertsFile    = "../alerts.yaml"
	quickFile     = "../testdata/alerts_quick.yaml"
	dashboardFile = "../dashboard.json"
	pageFile      = "../../docs/runbooks.md"

	tableBegins, tableEnds = "<!-- alerts: make mixin -->\n", "<!-- /alerts -->\n"
)

// Rules are groups of alerts, in the order in which Prometheus' files have their fields.
type Rules struct {
	Groups []Group `json:"groups" yaml:"groups"`
}

// Group is evaluated as one.
type Group struct {
	Name  string  `json:"name" yaml:"name"`
	Rules []Alert `json:"rules" yaml:"rules"`
}

// Alert is one rule.
type Alert struct {
	Alert       string            `json:"alert" yaml:"alert"`
	Expr        string            `json:"expr" yaml:"expr"`
	For         string            `json:"for" yaml:"for,omitempty"`
	Labels      map[string]string `json:"labels" yaml:"labels"`
	Annotations map[string]string `json:"annotations" yaml:"annotations"`
}

// compile returns the content of each output, by its path.
func compile() (map[string][]byte, error) {
	alerts, err := alertsOf(`import 'mixin.libsonnet'`)
	if err != nil {
		return nil, err
	}
	quick, err := alertsOf(`import 'quick.libsonnet'`)
	if err != nil {
		return nil, err
	}
	dashboards, err := evaluate(`(import 'mixin.libsonnet').grafanaDashboards['tallygate.json']`)
	if err != nil {
		return nil, err
	}
	var dashboard bytes.Buffer
	if err := json.Indent(&dashboard, dashboards, "", " "); err != nil {
		return nil, fmt.Errorf("indent the dashboard: %w", err)
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		return nil, fmt.Errorf("read the page of runbooks: %w", err)
	}
	table, err := withTable(string(page), alerts)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{dashboardFile: dashboard.Bytes(), pageFile: []byte(table)}
	if out[alertsFile], err = written("Prometheus rules for Tallygate. docs/runbooks.md has a section for each of them.", alerts); err != nil {
		return nil, err
	}
	out[quickFile], err = written("The alerts of deploy/alerts.yaml with short waits, for tests.", quick)
	return out, err
}

// evaluate returns the JSON that a jsonnet program makes.
func evaluate(program string) ([]byte, error) {
	out, err := jsonnet.MakeVM().EvaluateAnonymousSnippet("mixin", program)
	if err != nil {
		return nil, fmt.Errorf("compile the mixin: %w", err)
	}
	return []byte(out), nil
}

// alertsOf returns the alerts of a mixin.
func alertsOf(mixin string) (*Rules, error) {
	text, err := evaluate("(" + mixin + ").prometheusAlerts")
	if err != nil {
		return nil, err
	}
	var rules Rules
	if err := json.Unmarshal(text, &rules); err != nil {
		return nil, fmt.Errorf("read the compiled alerts: %w", err)
	}
	return &rules, nil
}

func written(what string, rules *Rules) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# " + what + "\n# `make mixin` writes this file from deploy/mixin.\n")
	text, err := yaml.Dump(rules, yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("write alerts as YAML: %w", err)
	}
	return append(b.Bytes(), text...), nil
}

// withTable is the page with the alerts in its table.
func withTable(page string, rules *Rules) (string, error) {
	before, rest, ok := strings.Cut(page, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !ok || !ends {
		return "", fmt.Errorf("%s has no %q and %q, between which the table of alerts is", pageFile, tableBegins, tableEnds)
	}
	var b strings.Builder
	b.WriteString(before + tableBegins + "\n| alert | severity | expression | for |\n|---|---|---|---|\n")
	for _, g := range rules.Groups {
		for _, a := range g.Rules {
			fmt.Fprintf(&b, "| [%s](#%s) | %s | `%s` | %s |\n", a.Alert, strings.ToLower(a.Alert), a.Labels["severity"],
				strings.ReplaceAll(a.Expr, "|", `\|`), a.For) // a bare | ends a cell
		}
	}
	b.WriteString("\n" + tableEnds + after)
	return b.String(), nil
}
