package classics

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = "../../../../docs/from-other-limiters.md"

// row is a line of the page's tables of limiters: what it is, and its rule in a flow of YAML.
var row = regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([^`|]+)` \\| ([^|]+) \\|$")

// classics are the tests of the page's lines, by what the page calls them.
var classics = map[string]func(t *testing.T, line string){
	"`INCR` of a key with the minute in its name": incrOfAMinute,
	"`INCR`, and `EXPIRE` with the first":         incrAndExpire,
	"`ZSET` of times":                             setOfTimes,
	"hash of sub-blocks":                          hashOfBlocks,
	"hash of sub-blocks, and the one that leaves": hashOfBlocksAndOne,
	"redis-cell": redisCell,
	"`DECR` of a stock, `INCR` when it fails":   stock,
	"semaphore: a `ZSET` of holders":            setOfHolders,
	"cycle limiter: reset at a period's end":    cycle,
	"Spring Cloud Gateway's `RedisRateLimiter`": springs,
	"Envoy's global rate limit":                 envoyGlobal,
	"Kong, `policy: redis`":                     kong,
	"Kong, `policy: local`":                     kongHere,
	"Envoy's local rate limit":                  envoyLocal,
	"nginx `limit_req`, `nodelay`":              nginxRequests,
	"nginx `limit_conn`":                        atOnceHere,
	"Guava's `RateLimiter`":                     guavas,
	"Guava's, with a warm-up":                   guavaWarmsUp,
	"Go's `x/time/rate`":                        goRate,
	"resilience4j's `RateLimiter`":              resilience,
	"resilience4j's `Bulkhead`":                 atOnceHere,
	"Hystrix' semaphore":                        atOnceHere,
	"Sentinel's QPS":                            sentinelQPS,
	"Sentinel's warm-up":                        sentinelWarmsUp,
	"Sentinel's hot parameters":                 sentinelHot,
	"Dubbo's TPS limiter":                       dubbo,
	"`INCR` of failures, read before":           failures,
	"fail2ban":                                  fail2ban,
}

// Each line of the page compiles, and has a test.
func TestEachLine(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		name, line := strings.TrimSpace(m[1]), m[2]
		test := classics[name]
		if test == nil || found[name] {
			t.Errorf("%q has no test, or two lines", name)
			continue
		}
		found[name] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, line)
		})
	}
	for name := range classics {
		if !found[name] {
			t.Errorf("the page has no line of %q", name)
		}
	}
}

// compile makes a set of a line.
func compile(t *testing.T, line string) (set *rules.Set, source string) {
	t.Helper()
	if !strings.Contains(line, "match:") {
		line = "match: {api: x}, " + line
	}
	source = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: classics}\nspec:\n  rules:\n    - {name: line, " + line + "}\n"
	set, err := rules.Compile("rules.yaml", []byte(source))
	if err != nil {
		t.Fatalf("%v\nof %s", err, source)
	}
	return set, source
}
