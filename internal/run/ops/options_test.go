package ops_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/ops"
)

// env is an environment of a test's own.
type env map[string]string

func (e env) get(name string) string { return e[name] }

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A flag beats the environment, which beats the file, which beats the default.
func TestPrecedence(t *testing.T) {
	file := write(t, "c.yaml", "max-lag: 3s\n")
	for _, c := range []struct {
		about string
		args  []string
		env   env
		want  time.Duration
	}{
		{"nothing is given", nil, nil, 4 * time.Second},
		{"the file", []string{"--config", file}, nil, 3 * time.Second},
		{"the file, named in the environment", nil, env{"TALLYGATE_CONFIG": file}, 3 * time.Second},
		{"the environment and the file", []string{"--config", file}, env{"TALLYGATE_MAX_LAG": "2s"}, 2 * time.Second},
		{"all", []string{"--config", file, "--max-lag", "1s"}, env{"TALLYGATE_MAX_LAG": "2s"}, time.Second},
		{"a flag that says the default", []string{"--max-lag=4s"}, env{"TALLYGATE_MAX_LAG": "2s"}, 4 * time.Second},
	} {
		o := ops.NewOptions("test", "", io.Discard, c.env.get)
		got := o.Duration("max-lag", 4*time.Second, "")
		if err := o.Parse(c.args); err != nil {
			t.Errorf("%s: %v", c.about, err)
		}
		if *got != c.want {
			t.Errorf("%s: %v, want %v", c.about, *got, c.want)
		}
	}
}

func TestLists(t *testing.T) {
	for about, c := range map[string]struct {
		args []string
		file string
		env  env
		want []string
	}{
		"the default": {want: []string{"a:1"}},
		"a flag":      {args: []string{"--kafka", " b:1, c:2 ,"}, want: []string{"b:1", "c:2"}},
		"environment": {env: env{"TALLYGATE_KAFKA": "b:1,c:2"}, want: []string{"b:1", "c:2"}},
		"a file":      {file: "kafka: [b:1, c:2]", want: []string{"b:1", "c:2"}},
		"in one line": {file: "kafka: b:1,c:2", want: []string{"b:1", "c:2"}},
	} {
		o := ops.NewOptions("test", "", io.Discard, c.env.get)
		got := o.List("kafka", []string{"a:1"}, "")
		if c.file != "" {
			c.args = append(c.args, "--config", write(t, "c.yaml", c.file))
		}
		if err := o.Parse(c.args); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		if !slices.Equal(*got, c.want) {
			t.Errorf("%s: %q, want %q", about, *got, c.want)
		}
	}
}

// Every mistake of a file is told at once, each with its place.
func TestMistakesInTheFile(t *testing.T) {
	path := write(t, "c.yaml", `kafka: [a:1, {b: 2}]
brokers: a:1
log_level: debug
partitions: many
config: other.yaml
max-lag:
partitions: 3
`)
	o := ops.NewOptions("test", "", io.Discard, env{}.get)
	o.List("kafka", nil, "")
	o.Log()
	o.Int("partitions", 1, "")
	o.Duration("max-lag", 0, "")
	err := o.Parse([]string{"--config", path})
	wantUsage(t, err,
		`c.yaml:1:1: option "kafka" takes a value or a list of values`,
		`c.yaml:2:1: unknown option "brokers"; there are kafka, log-format, log-level, max-lag, partitions`,
		`c.yaml:4:1: option "partitions": "many": want a whole number`,
		`c.yaml:5:1: unknown option "config"`,
		`c.yaml:6:1: option "max-lag" takes a value`,
		`c.yaml:7:1: option "partitions" is in line 4 already`)
}

// One file serves all programs: each takes its own section first, then what stands outside, and
// passes over what is another's.
func TestOneFileForAllPrograms(t *testing.T) {
	path := write(t, "all.yaml", `redis: [r:1]
session-timeout: 10s
listen: 127.0.0.1:1
aggregator: {listen: "127.0.0.1:2", rules: rules.yaml}
enforcer:
  listen: 127.0.0.1:3
  max_staleness: 30s
tallygate: {}
`)
	for name, want := range map[string]string{"aggregator": "127.0.0.1:2", "enforcer": "127.0.0.1:3", "tallygate blocks": "127.0.0.1:1", "tallygate doctor": "127.0.0.1:2"} {
		o := ops.NewOptions(name, "", io.Discard, env{}.get)
		redis, listen := o.List("redis", nil, ""), o.String("listen", "", "")
		if err := o.Parse([]string{"--config", path}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(*redis, []string{"r:1"}) || *listen != want {
			t.Errorf("%s: redis %q, listen %q", name, *redis, *listen)
		}
	}
	path = write(t, "wrong.yaml", `sesion-timeout: 10s
aggregator:
enforcer: {max-stalenes: 1s}
tallygate: {redis: r:1}
tallygate: {redis: r:2}
`)
	o := ops.NewOptions("enforcer", "", io.Discard, env{}.get)
	o.List("redis", nil, "")
	wantUsage(t, o.Parse([]string{"--config", path}),
		`wrong.yaml:1:1: unknown option "sesion-timeout"`,
		`wrong.yaml:2:1: "aggregator" is a program's section`,
		`wrong.yaml:3:12: unknown option "max-stalenes"`,
		`wrong.yaml:5:1: the section "tallygate" is in line 4 already`)
}

// The flag package says no more than that an option is not defined.
func TestMisspelledOptions(t *testing.T) {
	path := write(t, "c.yaml", "agregator: a:1\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--agregator", "a:1"}, `there is no option --agregator; did you mean "--aggregator"? --help lists the options`},
		{[]string{"--max_lag=1s"}, `there is no option --max_lag; did you mean "--max-lag"? --help lists the options`},
		{[]string{"x", "--aggregatro=a:1"}, `did you mean "--aggregator"?`},
		{[]string{"--quite-another"}, "there is no option --quite-another; --help lists the options"},
		{[]string{"-x"}, "there is no option -x; --help lists the options"},
		{[]string{"--config", path}, `c.yaml:1:1: unknown option "agregator"; did you mean "aggregator"?`},
	} {
		o := ops.NewOptions("test", "", io.Discard, env{}.get)
		o.String("aggregator", "", "")
		o.Duration("max-lag", 0, "")
		wantUsage(t, o.Parse(c.args), c.want)
	}
}

// A console's file names the aggregators, and notify's its receivers, under a name that is a section elsewhere;
// and a command's own section comes before that of all commands.
func TestSectionsAndOptionsOfOneName(t *testing.T) {
	single := write(t, "console.yaml", "aggregator: [\"https://a:1\", \"https://b:1\"]\nnotify: receivers.yaml\nkafka-user: u\n")
	all := write(t, "all.yaml", `kafka-user: tallygate
aggregator: {rules: rules.yaml, listen: "a:1"}
doctor: {redis-user: tallygate-doctor}
tallygate: {aggregator: "https://a:1", notify: receivers.yaml, kafka-user: TOOL, token-file: token}
console: {aggregator: ["https://a:1", "https://b:1"], kafka-user: CONSOLE, listen: "c:1"}
notify: {kafka-user: NOTIFY}
`)
	for _, c := range []struct{ name, path, want string }{
		{"tallygate console", single, "https://a:1,https://b:1 u "},
		{"aggregator", single, " u "},
		{"tallygate console", all, "https://a:1,https://b:1 CONSOLE token"},
		{"tallygate notify", all, "https://a:1 NOTIFY token"},
		{"tallygate doctor", all, "https://a:1 TOOL token"},
		{"tallygate blocks", all, "https://a:1 TOOL token"},
		{"aggregator", all, " tallygate "},
	} {
		o := ops.NewOptions(c.name, "", io.Discard, env{}.get)
		aggregators, token := new(string), new(string)
		if c.name != "aggregator" {
			aggregators, token = o.String("aggregator", "", ""), o.String("token-file", "", "")
		}
		user := o.String("kafka-user", "", "")
		if err := o.Parse([]string{"--config", c.path}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := *aggregators + " " + *user + " " + *token; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestUnreadableFiles(t *testing.T) {
	for text, want := range map[string]string{
		"- a\n- b\n": ":1:1: the config is a list of name: value",
		"a: [":       "read the config",
	} {
		o := ops.NewOptions("test", "", io.Discard, env{}.get)
		wantUsage(t, o.Parse([]string{"--config", write(t, "c.yaml", text)}), want)
	}
	o := ops.NewOptions("test", "", io.Discard, env{}.get)
	wantUsage(t, o.Parse([]string{"--config", "/there/is/none.yaml"}), "read the config: open /there/is/none.yaml")
	o = ops.NewOptions("test", "", io.Discard, env{}.get)
	if err := o.Parse([]string{"--config", write(t, "empty.yaml", "# nothing\n")}); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"--nosuch"}, {"--partitions", "many"}, {"--partitions"}, {"stray"}} {
		o := ops.NewOptions("test", "", io.Discard, env{}.get)
		o.Int("partitions", 1, "")
		wantUsage(t, o.ParseOnly(args), "--help lists")
	}
	o := ops.NewOptions("test", "", io.Discard, env{"TALLYGATE_PARTITIONS": "many"}.get)
	o.Int("partitions", 1, "")
	wantUsage(t, o.Parse(nil), `TALLYGATE_PARTITIONS="many"`)
}

// Options may stand before, between and behind the arguments.
func TestMixedArguments(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
		json bool
	}{
		{"a b", "a b", false},
		{"--json a b", "a b", true},
		{"a --json b", "a b", true},
		{"a b --json", "a b", true},
		{"a - --json", "a -", true},
		{"a -- --json b", "a --json b", false},
	} {
		o := ops.NewOptions("test", "", io.Discard, env{}.get)
		asJSON := o.Bool("json", false, "")
		if err := o.Parse(strings.Fields(c.args)); err != nil {
			t.Errorf("%s: %v", c.args, err)
		}
		if got := strings.Join(o.Args(), " "); got != c.want || *asJSON != c.json || o.NArg() != len(o.Args()) || o.Arg(0) != "a" || o.Arg(9) != "" {
			t.Errorf("%s: arguments %q, json %v", c.args, got, *asJSON)
		}
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	o := ops.NewOptions("test", "\ntest does nothing.\n\n  test --kafka k:9092\n", &out, env{}.get)
	o.List("kafka", []string{"127.0.0.1:9092"}, "Kafka's bootstrap brokers, `HOST:PORT,…`")
	err := o.Parse([]string{"--help"})
	if !errors.Is(err, ops.ErrHelp) || ops.Exit(io.Discard, "test", err) != ops.ExitOK {
		t.Errorf("help ends with %v", err)
	}
	for _, want := range []string{"test does nothing.", "  test --kafka k:9092\n", "  --kafka HOST:PORT,…\n", "(default 127.0.0.1:9092)", "TALLYGATE_NAME"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, &out)
		}
	}
}

func TestSecrets(t *testing.T) {
	e := env{"SECRET": "from the environment"}
	o := ops.NewOptions("test", "", io.Discard, e.get)
	file := write(t, "secret", "from the file\n")
	for path, want := range map[string]string{"": "from the environment", file: "from the file"} {
		if got, err := o.Secret("SECRET", path); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	for _, path := range []string{"/there/is/none", write(t, "empty", "\n")} {
		if got, err := o.Secret("SECRET", path); err == nil || got != "" {
			t.Errorf("%s is no secret, but is read as %q", path, got)
		}
	}
}

func TestExit(t *testing.T) {
	usage := &ops.UsageError{Err: errors.New("wrong")}
	for err, want := range map[error]int{
		nil:                                 ops.ExitOK,
		errors.New("broken"):                ops.ExitError,
		usage:                               ops.ExitUsage,
		fmt.Errorf("start: %w", usage):      ops.ExitUsage,
		errors.Join(errors.New("x"), usage): ops.ExitUsage,
	} {
		var out bytes.Buffer
		if got := ops.Exit(&out, "test", err); got != want {
			t.Errorf("%v: status %d, want %d", err, got, want)
		}
		if err != nil && out.String() != "test: "+err.Error()+"\n" {
			t.Errorf("%v is told as %q", err, &out)
		}
	}
}

// wantUsage checks that err is a UsageError that says all of what.
func wantUsage(t *testing.T, err error, what ...string) {
	t.Helper()
	if _, ok := errors.AsType[*ops.UsageError](err); !ok {
		t.Errorf("%v is no UsageError", err)
		return
	}
	for _, w := range what {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error lacks %q:\n%v", w, err)
		}
	}
}

// A table is NAME=VALUE,… as a flag, and a table in the file.
func TestTable(t *testing.T) {
	for about, args := range map[string][]string{
		"flag": {"--entries", "a=x, b="},
		"file": {"--config", write(t, "c.yaml", "entries: {a: x, b: ''}\n")},
	} {
		o := ops.NewOptions("test", "", io.Discard, env(nil).get)
		table := o.Table("entries", "")
		if err := o.Parse(args); err != nil || len(table) != 2 || table["a"] != "x" || table.String() != "a=x,b=" {
			t.Errorf("%s: %v, %v", about, table, err)
		}
	}
	for _, content := range []string{"entries: [a=x]", "entries: a", "entries:", "entries: {}", "entries: {a: {b: c}}", "entries: {a: }"} {
		o := ops.NewOptions("test", "", io.Discard, env(nil).get)
		o.Table("entries", "")
		if err := o.Parse([]string{"--config", write(t, "c.yaml", content)}); err == nil {
			t.Errorf("%s is accepted", content)
		}
	}
}
