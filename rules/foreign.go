package rules

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// fromOthers is the page that says how limits of others are written here.
const fromOthers = "docs/from-other-limiters.md"

// foreign says in one line what a file of another program is; "" for one that is meant to be a rule file.
func foreign(root *yaml.Node) string {
	has := map[string]*yaml.Node{}
	top := root
	if root.Kind == yaml.SequenceNode && len(root.Content) > 0 { // a list of rules, as Sentinel has it
		top = root.Content[0]
	}
	switch top.Kind {
	case yaml.MappingNode:
	case yaml.ScalarNode:
		return foreignText([]string{top.Value})
	default:
		return ""
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		has[top.Content[i].Value] = top.Content[i+1]
	}
	allOf := func(names ...string) bool {
		for _, name := range names {
			if has[name] == nil {
				return false
			}
		}
		return true
	}
	anyOf := func(names ...string) bool {
		for _, name := range names {
			if has[name] != nil {
				return true
			}
		}
		return false
	}
	is := func(what, section string) string {
		if section == "" {
			return fmt.Sprintf("this is %s, not a rule file; %s shows how limits of others are written here", what, fromOthers)
		}
		return fmt.Sprintf("this is %s, not a rule file; %s#%s says how to write it here", what, fromOthers, section)
	}
	switch {
	case anyOf("spec", "apiVersion") && (has["kind"] == nil || has["kind"].Value == kind || scalar.Closest(has["kind"].Value, []string{kind}) != ""):
		return "" // ours, perhaps with mistakes
	case anyOf("leakspeed", "groupby") || allOf("type", "filter") || allOf("type", "capacity"):
		return is("a scenario of CrowdSec", "crowdsec")
	case anyOf("descriptors") || allOf("domain", "rate_limit"):
		return is("a configuration of Envoy's ratelimit", "envoys-ratelimit")
	case allOf("resource") && anyOf("grade", "count", "paramIdx", "controlBehavior", "limitApp"):
		return is("a list of Sentinel's rules", "sentinel")
	case anyOf("unique_key", "uniqueKey") || requestsOfGubernator(has["requests"]):
		return is("a request to Gubernator", "")
	case anyOf("static_resources", "http_filters"):
		return is("a configuration of Envoy", "envoys-ratelimit")
	case anyOf("rule_files") && anyOf("tests"):
		return "this is a file of tests, not a rule file: `tallygate test` runs it"
	case allOf("apiVersion", "kind"):
		return fmt.Sprintf("this is a %s of Kubernetes, not a rule file: a rule file begins with `apiVersion: %s` and `kind: %s`, and may be the data of a ConfigMap",
			scalar.Shortened(has["kind"].Value), apiVersion, kind)
	case configurationOf(has) != "":
		return is(configurationOf(has), "")
	case anyOf("http", "routers") && !anyOf("rules"):
		return is("a configuration of a proxy", "")
	}
	return ""
}

// configurationOf says whose configuration begins with one of some fields; "" when none of them is there.
func configurationOf(has map[string]*yaml.Node) string {
	switch {
	case has["_format_version"] != nil:
		return "a configuration of Kong"
	case has["resilience4j"] != nil || has["resilience4j.ratelimiter"] != nil || has["resilience4j.bulkhead"] != nil:
		return "a configuration of resilience4j"
	case has["hystrix"] != nil:
		return "a configuration of Hystrix"
	}
	return ""
}

func requestsOfGubernator(n *yaml.Node) bool {
	if n == nil || n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return false
	}
	for _, field := range n.Content[0].Content {
		if field.Value == "unique_key" || field.Value == "uniqueKey" {
			return true
		}
	}
	return false
}

// foreignText is foreign for what is no YAML, or but text.
func foreignText(lines []string) string {
	if isQuery(strings.ToUpper(strings.Join(lines, " "))) {
		return "this is a query of Flink or ksqlDB, not a rule file; " + fromOthers + "#flink-kafka-streams-and-ksqldb says how to write it here"
	}
	for _, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "limit_req") {
			return "this is a configuration of nginx, not a rule file; " + fromOthers + "#nginx-limit_req says how to write it here"
		}
	}
	return ""
}

// isQuery tells a query over windows.
func isQuery(text string) bool {
	if !strings.Contains(text, "SELECT") {
		return false
	}
	for _, window := range []string{"WINDOW HOPPING", "WINDOW TUMBLING", "WINDOW SESSION", "HOP(", "TUMBLE(", "CUMULATE("} {
		if strings.Contains(text, window) {
			return true
		}
	}
	return false
}
