package servers

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// proc is a server that one test owns, run by a script of this repository. Its methods fail
// the test when the script does; call them from the test's own goroutine.
type proc struct {
	t      testing.TB
	script string
	dir    string
	env    []string
	addr   string
}

// KafkaProc is a broker of the test's own: one node, on a free port that it keeps.
type KafkaProc struct{ proc }

// RedisProc is a Redis of the test's own, on a free port that it keeps. It writes nothing to
// disk: after Stop or Kill it starts empty, unless its arguments say otherwise.
type RedisProc struct{ proc }

// StartKafka starts a broker with these properties on top of the script's own, and stops it
// when the test ends. It takes some 5 s. Without TALLYGATE_TEST_KAFKA, which says that real
// servers are wanted, the test is skipped. env are more variables for scripts/kafka.sh, such as
// "KAFKA_DATA=/mnt".
func StartKafka(t testing.TB, props map[string]string, env ...string) *KafkaProc {
	t.Helper()
	return StartKafkaBehind(t, props, nil, env...)
}

// StartKafkaBehind starts a broker that some of its clients reach through proxies. It has one
// more listener for each; whoever connects to that is told the proxy's address.
func StartKafkaBehind(t testing.TB, props map[string]string, behind []Listener, env ...string) *KafkaProc {
	t.Helper()
	Kafka(t)
	p := &KafkaProc{newProc(t, "kafka.sh", append(slices.Clone(env), append(kafkaEnv(props, behind), "KAFKA_HEAP=512m", "KAFKA_SESSION=6000", quickJava)...)...)}
	p.Start()
	return p
}

// quickJava makes the best of a broker that lives for a minute or two, on few cores: what the
// second compiler works for that long does not pay, nor do the threads of another collector.
const quickJava = "KAFKA_JAVA=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

// kafkaEnv are the variables by which scripts/kafka.sh knows a node's properties and listeners.
func kafkaEnv(props map[string]string, behind []Listener) (env []string) {
	var extra strings.Builder
	for _, name := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&extra, "%s=%s\n", name, props[name])
	}
	if len(behind) > 0 {
		var listen, advertised []string
		protocols := "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
		for i, l := range behind {
			name := fmt.Sprintf("PROXIED%d", i)
			listen = append(listen, name+"://"+l.Addr)
			advertised = append(advertised, name+"://"+l.Proxy)
			protocols += "," + name + ":PLAINTEXT"
		}
		fmt.Fprintf(&extra, "listener.security.protocol.map=%s\n", protocols)
		env = append(env, "KAFKA_LISTENERS="+strings.Join(listen, ","), "KAFKA_ADVERTISED="+strings.Join(advertised, ","))
	}
	return append(env, "KAFKA_EXTRA="+extra.String())
}

// Listener is a broker's, for one proxy. Addresses are host:port.
type Listener struct {
	Addr  string // where the broker listens
	Proxy string // what it tells its clients
}

// StartRedis starts a Redis with more arguments for its command line, such as "--maxmemory",
// "10mb", and stops it when the test ends. Without TALLYGATE_TEST_REDIS, which says that real
// servers are wanted, the test is skipped.
func StartRedis(t testing.TB, args ...string) *RedisProc {
	t.Helper()
	Redis(t)
	p := &RedisProc{newProc(t, "redis.sh", "REDIS_EXTRA="+strings.Join(args, " "))}
	p.Start()
	return p
}

func newProc(t testing.TB, script string, env ...string) proc {
	t.Helper()
	p := proc{t: t, script: filepath.Join(root(), "scripts", script), dir: t.TempDir(), env: env}
	t.Cleanup(func() {
		// The data goes with the test, so a quick end does.
		if out, err := p.command("kill9", p.dir); err != nil {
			t.Logf("end a server: %v\n%s", err, out)
		}
	})
	return p
}

// Addr returns the server's host:port, the same after every start.
func (p *proc) Addr() string { return p.addr }

// Start starts the server again after Stop or Kill, on its data and its port, and returns
// when it answers.
func (p *proc) Start() {
	p.t.Helper()
	p.addr = strings.TrimSpace(p.run("start", p.dir))
}

// Stop ends the server as an operator would, and returns when it is gone.
func (p *proc) Stop() {
	p.t.Helper()
	p.run("stop", p.dir)
}

// Kill ends the server by SIGKILL, and returns when it is gone.
func (p *proc) Kill() {
	p.t.Helper()
	p.run("kill9", p.dir)
}

// Pid returns the server's process id.
func (p *proc) Pid() int {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

func (p *proc) run(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...)
	if err != nil {
		p.t.Fatalf("%s %v: %v\n%s", filepath.Base(p.script), args, err, out)
	}
	return out
}

// command runs the script, and returns its standard output, or what it said when it failed.
func (p *proc) command(args ...string) (string, error) {
	cmd := exec.Command("bash", append([]string{p.script}, args...)...)
	cmd.Env = append(os.Environ(), p.env...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return failure.String(), err
	}
	return string(out), nil
}

// root is the module's folder: tests run in their packages' folders below it.
func root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(fmt.Sprintf("servers: where the tests run: %v", err))
	}
	for parent := dir; ; parent = filepath.Dir(parent) {
		if _, err := os.Stat(filepath.Join(parent, "go.mod")); err == nil {
			return parent
		}
		if parent == filepath.Dir(parent) {
			panic("servers: no go.mod above " + dir)
		}
	}
}
