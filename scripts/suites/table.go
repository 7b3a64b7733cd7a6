package main

import (
	"slices"
	"strings"
)

// suite is a part of `make nightly`.
type suite struct {
	name    string
	seconds int      // it takes about this long on two cores
	target  string   // of make; "": those tests of `make e2e` that call servers.Nightly with its name
	touches []string // prefixes of paths: a change below one of them touches it
}

// aDraw bounds the suite that is drawn by the day, in seconds.
const aDraw = 150

var suites = []suite{
	{"adapters", 75, "adapters", []string{
		"adapters/", "bench/", "scripts/bench", "docs/measured.md", "README.md", "pipeline/enforce/httplimit/", "deploy/mixin/", "deploy/helm/",
	}},
	{"alerts", 300, "", []string{"internal/testing/e2e/alert", "deploy/alerts", "deploy/mixin/", "deploy/testdata/"}},
	{"brokers", 150, "", []string{
		"internal/testing/e2e/brokers_", "internal/testing/e2e/unclean_", "pipeline/kafkalog/", "pipeline/aggregate/topics/",
		"pipeline/aggregate/fenced/",
	}},
	{"browsers", 140, "", []string{"internal/console/", "internal/testing/e2e/clicks_", "scripts/axe"}},
	{"changes", 100, "", []string{"internal/testing/e2e/reload_", "internal/testing/e2e/upgrade_", "pipeline/aggregate/state/", "rules/"}},
	{"chaos", 80, "", []string{"internal/testing/e2e/chaos_", "internal/testing/e2e/fault_", "internal/testing/e2e/gate",
		"pipeline/aggregate/owner/", "scripts/chaos.sh"}},
	{"clients", 120, "", []string{"clients/", "examples/", "testdata/", "scripts/python", "scripts/node", "scripts/java"}},
	{"input", 60, "", []string{"internal/testing/e2e/badinput_", "internal/testing/e2e/placement_", "event/", "pipeline/emit/", "pipeline/normalize/"}},
	{"kills", 140, "", []string{
		"internal/testing/e2e/kills_", "internal/testing/e2e/zombie_", "internal/testing/e2e/silence_", "internal/testing/e2e/duplicates_",
		"pipeline/aggregate/",
	}},
	{"litellm", 140, "", []string{"clients/python/src/tallygate/litellm", "clients/litellm_", "scripts/litellm"}},
	{"mixin", 25, "", []string{"deploy/alerts", "deploy/dashboard", "deploy/mixin/", "deploy/testdata/"}},
	{"models", 120, "models", []string{"windows/", "rules/", "pipeline/aggregate/shard/", "pipeline/aggregate/state/", "internal/tools/engine/"}},
	{"outages", 80, "", []string{"internal/testing/e2e/outage_", "pipeline/blocklist/", "pipeline/kafkalog/", "internal/notify/"}},
	{"overview", 70, "", []string{"internal/testing/e2e/console_", "internal/testing/e2e/dashboard_", "internal/run/health/", "deploy/dashboard"}},
	{"packages", 100, "snapshot ONLY=1", []string{"deploy/", ".goreleaser.yaml", "scripts/snapshot.sh", "scripts/goreleaser.sh", "go.mod"}},
	{"proxies", 60, "", []string{
		"examples/proxies/", "docs/proxies.md", "pipeline/enforce/forwardauth/", "pipeline/enforce/envoylimit/",
		"internal/programs/decision/", "scripts/proxies.sh", "scripts/traefik.sh",
	}},
	{"secrets", 90, "", []string{
		"internal/testing/e2e/rotation_", "internal/testing/e2e/sentinels_", "internal/testing/e2e/rights_", "internal/run/kafkaconn/",
		"internal/run/redisconn/", "internal/run/ops/",
	}},
	{"simulate", 90, "simulate", []string{"pipeline/admit/protocol/", "pipeline/admit/internal/script/"}},
	{"site", 10, "site", []string{"docs/", "mkdocs.yml", "scripts/site"}},
	{"soak", 150, "", []string{"internal/testing/e2e/soak_"}},
	{"strict", 160, "", []string{"internal/testing/e2e/strict_", "pipeline/admit/"}},
}

// touchedBy returns those of the files that touch it.
func (s *suite) touchedBy(files []string) (by []string) {
	for _, f := range files {
		if slices.ContainsFunc(s.touches, func(p string) bool { return strings.HasPrefix(f, p) }) {
			by = append(by, f)
		}
	}
	return by
}
