package layers

import (
	"slices"
	"strings"
	"testing"
)

// Folders below stand for themselves and for all packages in them, names without a dot in
// their first element for folders of this module, and others for modules.
var (
	goka       = "github.com/lovoo/goka"
	franz      = "github.com/twmb/franz-go"
	kafkaGo    = "github.com/segmentio/kafka-go"
	sarama     = "github.com/IBM/sarama"
	redis      = "github.com/redis/go-redis/v9"
	yaml       = "go.yaml.in/yaml/v4"
	prometheus = "github.com/prometheus"
	grpc       = "google.golang.org/grpc"
	oidc       = "github.com/coreos/go-oidc"
	envoy      = "github.com/envoyproxy"
	mail       = "github.com/wneessen/go-mail"
	// What speaks Kafka, and what only that needs: Kerberos and SCRAM.
	kafkaClients = []string{goka, sarama, franz, kafkaGo, "github.com/jcmturner", "github.com/xdg-go"}
	embedded     = []string{"github.com/twmb/franz-go/pkg/kfake", "github.com/alicebob/miniredis", "internal/run/devstack"}
	// For tests only.
	helpers = []string{"internal/testing/apitest", "internal/console/browsertest", "internal/tools/engine/enginetest", "internal/testing/oidctest", "internal/testing/servers", "internal/testing/testca", "internal/testing/testrun",
		"pipeline/aggregate/ask/asktest", "pipeline/aggregate/owner/memlog", "pipeline/blocklist/internal/rig", "pipeline/enforce/internal/rig",
		"github.com/chromedp", "github.com/google/go-cmp", "github.com/santhosh-tekuri/jsonschema", "go.uber.org/goleak", "pgregory.net/rapid"}
)

// imports: beside the standard library, a package under folder imports these and nothing else.
var imports = []struct {
	folder  string
	allowed []string
}{
	{"api", []string{"event", "verdict"}}, // which own their records
	{"event", nil},
	{"verdict", []string{"event"}},
	{"windows", []string{"event"}},
	{"rules", []string{"windows", "event", "verdict",
		"github.com/expr-lang/expr", yaml, "github.com/cespare/xxhash/v2",
		"github.com/rivo/uniseg"}}, // how wide a line is, for the caret below it
	// What rules are read with, and states' bytes, know no rules.
	{"rules/document", []string{"event", "rules/internal/scalar", yaml, "github.com/rivo/uniseg"}},
	{"rules/when", []string{"event", "rules/internal/network", "rules/internal/logic", "rules/internal/scalar", "github.com/expr-lang/expr"}},
	{"rules/internal/logic", nil},
	{"rules/didyoumean", nil},
	{"rules/internal/scalar", []string{"event", "windows", "rules/didyoumean"}},
	{"rules/internal/keystate", []string{"event", "windows"}},
	{"pipeline/enforce/shape", nil},
	{"pipeline/enforce/gate", []string{"pipeline/enforce", "event", "verdict"}},
	{"pipeline/emit", []string{"event", "internal/base/retry", "internal/base/logonce", kafkaGo}},
	{"pipeline/normalize", []string{"golang.org/x/text/unicode/norm"}},
	{"pipeline/kafkalog/record", nil},
	{"pipeline/kafkalog", []string{"pipeline/kafkalog/record", "internal/base/retry", franz, "github.com/klauspost/compress", "github.com/pierrec/lz4/v4"}},
	{"pipeline/aggregate/shard", []string{"pipeline/aggregate/hotkeys", "pipeline/aggregate/state", "event", "pipeline/kafkalog/record", "verdict",
		"pipeline/admit/protocol", "rules", "internal/base/wire", "github.com/cespare/xxhash/v2"}},
	{"internal/programs/completion", []string{"internal/run/ops"}},
	{"internal/base/httpjson", []string{"api"}},
	{"internal/base/retry", nil},
	{"internal/base/logonce", nil},
	{"internal/testing/testrun", nil},
	{"internal/base/wire", nil},
}

type linking struct {
	folder string
	only   []string // nothing beside the standard library and these
	never  []string
}

// links: what a program that imports the package carries along, all the way down. Applications
// import emit and enforce: it is a promise to them.
var links = []linking{
	// The root package, which puts the parts together. YAML comes with pipeline/admit, if it is asked for.
	{folder: "", never: []string{goka, sarama, franz, yaml, grpc, "rules", "pipeline/admit"}},
	{folder: "api", only: []string{"event", "verdict"}},
	{folder: "event", only: []string{}},
	{folder: "verdict", only: []string{"event"}},
	{folder: "pipeline/enforce", only: []string{"pipeline/enforce/internal", "pipeline/enforce/shape", "event", "verdict"}},
	{folder: "pipeline/enforce/httplimit", only: []string{"pipeline/enforce", "event", "verdict"}},
	{folder: "pipeline/enforce/forwardauth", only: []string{"pipeline/enforce", "event", "verdict"}},
	{folder: "pipeline/enforce/envoylimit", never: []string{goka, kafkaGo, yaml, redis, prometheus, "rules", "pipeline/admit"}},
	{folder: "pipeline/enforce/client", only: []string{"internal/base/retry"}},
	{folder: "pipeline/enforce/grpclimit", never: []string{goka, yaml, redis, kafkaGo, prometheus, "rules", "pipeline/admit"}},
	{folder: "pipeline/emit", never: []string{goka, franz, yaml, grpc, redis, prometheus, "rules"}},
	{folder: "pipeline/normalize", only: []string{"golang.org/x/text"}},
	{folder: "pipeline/blocklist", never: slices.Concat(kafkaClients, []string{yaml, grpc, prometheus})},
	{folder: "pipeline/blocklist/presence", never: slices.Concat(kafkaClients, []string{yaml, grpc, prometheus})},
	{folder: "pipeline/blocklist/publish", never: []string{goka, sarama, franz, yaml, grpc, prometheus}},
	{folder: "pipeline/admit/standing", only: []string{"event"}},
	{folder: "pipeline/admit", never: slices.Concat(kafkaClients, []string{grpc, prometheus})},
	{folder: "pipeline/admit/limits", never: slices.Concat(kafkaClients, []string{redis, grpc, prometheus})},
	{folder: "pipeline/admit/instance", never: slices.Concat(kafkaClients, []string{redis, grpc, prometheus})},
	{folder: "pipeline/admit/publish", never: []string{goka, sarama, franz, yaml, grpc, prometheus}},
	{folder: "internal/run/ops", never: slices.Concat(kafkaClients, []string{redis, "windows", "pipeline/admit", "pipeline/aggregate", "pipeline/blocklist", "pipeline/emit", "pipeline/enforce", "pipeline/kafkalog", "pipeline/normalize"})},
	{folder: "internal/run/redisconn", never: kafkaClients},
	{folder: "internal/run/access", never: []string{oidc, "golang.org/x/oauth2", "github.com/go-jose"}}, // who needs an issuer brings it
	{folder: "internal/programs/decision", never: kafkaClients},
	{folder: "pipeline/aggregate/owner", never: []string{goka, kafkaGo, grpc, redis}},
	{folder: "pipeline/aggregate/ask", never: []string{goka, kafkaGo, grpc, redis}},
	{folder: "windows", only: []string{"event"}},
	{folder: "internal/tools/engine", never: slices.Concat(kafkaClients, []string{redis, grpc, prometheus})},
	{folder: "tallygatetest", never: slices.Concat(kafkaClients, []string{redis, grpc, prometheus})}, // tests of applications

	// Programs, and what they are made of. TestProgramsAreListed wants each of them here.
	{folder: "cmd/aggregator", never: slices.Concat(embedded, helpers, []string{grpc, envoy, mail, "internal/programs/cli", "internal/console", "internal/programs/decision", "internal/tools/doctor", "internal/notify"})},
	{folder: "cmd/enforcer", never: slices.Concat(embedded, helpers, kafkaClients, []string{oidc, mail, "pipeline/kafkalog", "pipeline/aggregate", "pipeline/emit",
		"pipeline/blocklist/publish", "pipeline/admit/publish", "internal/programs/aggregator", "internal/programs/cli", "internal/console", "internal/tools/doctor", "internal/notify"})},
	// It may emit, and reads nothing of Kafka.
	{folder: "cmd/enforcer-kafka", never: slices.Concat(embedded, helpers, []string{goka, sarama, franz, oidc, mail, "github.com/jcmturner", "pipeline/kafkalog", "pipeline/aggregate",
		"pipeline/blocklist/publish", "pipeline/admit/publish", "internal/programs/aggregator", "internal/programs/cli", "internal/console", "internal/tools/doctor", "internal/notify"})},
	{folder: "cmd/tallygate", never: helpers}, // its dev brings the embedded servers
	// Services that emit and follow the blocklist; those that ask for permits bring rules, and YAML with them.
	{folder: "examples/orders", never: slices.Concat(embedded, helpers, []string{goka, sarama, franz, yaml, grpc, oidc, "rules", "pipeline/admit", "pipeline/aggregate"})},
	{folder: "examples/topups", only: []string{}},
	{folder: "examples/worker", never: slices.Concat(embedded, helpers, []string{goka, sarama, franz, yaml, grpc, oidc, "rules", "pipeline/admit", "pipeline/aggregate"})},
	{folder: "examples/ai", never: slices.Concat(embedded, helpers, []string{goka, sarama, franz, grpc, oidc, "pipeline/aggregate"})},
	{folder: "examples/quickstart", never: slices.Concat(embedded, helpers, []string{goka, sarama, franz, grpc, oidc, "pipeline/aggregate"})},
	{folder: "examples/guarded", never: slices.Concat(embedded, helpers, []string{goka, sarama, franz, grpc, oidc, prometheus, "pipeline/aggregate"})},
	{folder: "examples/proxies/app", only: []string{}},
	{folder: "examples/shop", never: slices.Concat(embedded, helpers, []string{goka, sarama, franz, grpc, oidc, prometheus, "pipeline/aggregate"})},
}

// importers: these may be imported, tests included, by packages in these folders only.
var importers = []struct {
	target string
	by     []string
}{
	{goka, []string{"pipeline/aggregate"}},
	{"cmd", nil},
	// Options for Kafka become SASL in one place. Beside it there is what applications give to an emitter.
	{kafkaGo + "/sasl", []string{"internal/run/kafkaconn", "pipeline/emit", "internal/testing/e2e"}},
	{franz + "/pkg/sasl", nil},
	{"github.com/xdg-go/scram", nil},
	// Tokens of issuers are checked in one place.
	{oidc, []string{"internal/run/access/issuer"}},
	// Spans are encoded in one place. Only part of this module links no gRPC.
	{"go.opentelemetry.io", []string{"internal/run/tracing"}},
}

func TestImports(t *testing.T) {
	all := list(t)
	for _, rule := range imports {
		for _, p := range in(t, all, rule.folder) {
			allowed := append([]string{rule.folder}, rule.allowed...)
			for _, path := range p.Imports {
				if !all[path].Standard && !within(path, allowed) {
					t.Errorf("%s imports %s; allowed are the standard library and %v", p.ImportPath, path, allowed)
				}
			}
		}
	}
}

func TestLinks(t *testing.T) {
	all := list(t)
	for _, rule := range links {
		p, ok := all[strings.TrimSuffix(module+"/"+rule.folder, "/")]
		if !ok {
			t.Logf("there is no %s", rule.folder)
			continue
		}
		for _, path := range p.Deps {
			switch {
			case within(path, rule.never):
				t.Errorf("%s links %s", p.ImportPath, path)
			case rule.only != nil && !all[path].Standard && !within(path, rule.only):
				t.Errorf("%s links %s; allowed are the standard library and %v", p.ImportPath, path, rule.only)
			}
		}
	}
}

func TestImporters(t *testing.T) {
	all := list(t)
	for _, p := range all {
		if !strings.HasPrefix(p.ImportPath, module) {
			continue
		}
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for _, rule := range importers {
				if within(path, []string{rule.target}) && !within(p.ImportPath, append([]string{rule.target}, rule.by...)) {
					t.Errorf("%s imports %s; only %v may", p.ImportPath, path, rule.by)
				}
			}
		}
	}
}

// What is for tests is for tests.
func TestTestHelpersStayInTests(t *testing.T) {
	for _, p := range list(t) {
		if !strings.HasPrefix(p.ImportPath, module) || within(p.ImportPath, helpers) {
			continue
		}
		for _, path := range p.Imports {
			if within(path, helpers) {
				t.Errorf("%s imports %s outside its tests", p.ImportPath, path)
			}
		}
	}
}

// linked counts the packages of other modules in a program. A change that adds one says so, by hand.
var linked = measure{name: "links", slack: 4, mend: "a package of another module is in the program that was not: do without it"}

func TestProgramsAreListed(t *testing.T) {
	all := list(t)
	count := map[string]int{}
	for _, p := range all {
		folder := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.Name != "main" || !within(p.ImportPath, []string{"cmd", "examples"}) {
			continue
		}
		if !slices.ContainsFunc(links, func(l linking) bool { return l.folder == folder }) {
			t.Errorf("%s is a program: say in links what it never carries along", folder)
		}
		for _, path := range p.Deps {
			if !all[path].Standard && path != module && !strings.HasPrefix(path, module+"/") {
				count[folder]++
			}
		}
	}
	linked.hold(t, count)
}

func TestWithin(t *testing.T) {
	for path, want := range map[string]bool{
		module + "/windows": true, module + "/windows/deep": true, module + "/windowsill": false,
		"windows": false, goka: true, goka + "/storage": true, goka + "x": false,
	} {
		if got := within(path, []string{"windows", goka}); got != want {
			t.Errorf("within(%s) is %v", path, got)
		}
	}
}

// within reports whether the package is one of the folders, or in one.
func within(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		if first, _, _ := strings.Cut(f, "/"); !strings.Contains(first, ".") {
			f = module + "/" + f
		}
		return path == f || strings.HasPrefix(path, f+"/")
	})
}

// in returns the packages in a folder.
func in(t *testing.T, all map[string]pkg, folder string) []pkg {
	var out []pkg
	for path, p := range all {
		if within(path, []string{folder}) {
			out = append(out, p)
		}
	}
	if out == nil {
		t.Logf("there is no %s", folder)
	}
	return out
}
