package proxies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// builtIn is removed when the tests have ended.
var builtIn string

// programs are this repository's, as the pages run them: built once.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tallygate-proxies-")
	if builtIn = dir; err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+"/", "../../cmd/tallygate", "../../cmd/enforcer", "../../cmd/enforcer-kafka", "./app").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, err
})

// inShell makes commands of a page mean here what they mean on a machine of one's own: go runs what was
// built, and nginx has its files in a folder of the test's.
const inShell = `
go() {
  local program=${2##*/}
  shift 2
  if [[ $program == app ]]; then set -- --listen "$APP"; fi
  exec "$PROGRAMS/$program" "$@"
}
sudo() { "$@"; }
apt-get() { :; }
nginx() { [[ $1 == -t ]] || return 1; command nginx -t -q -p "$HERE" -c main.conf -e stderr; }
systemctl() { exec nginx -p "$HERE" -c main.conf -e stderr; }
envoy() { exec envoy --use-dynamic-base-id --concurrency 1 --log-level warning "$@"; }
`

// page runs the commands of a page's section.
type page struct {
	*rig
	dir, programs     string
	app, http, grpc   string
	kafka, redis, api string // of dev
	warms             func() // sends a request of the user warm-up that is counted
}

// shown is a command that a page shows, and what it prints.
type shown struct {
	command string
	prints  []string
}

var consoles = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// readPage returns the commands of the section with this heading.
func readPage(t *testing.T, path, section string) (all []shown) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, behind, ok := strings.Cut(string(content), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("%s has no section %s", path, section)
	}
	text, _, _ := strings.Cut(behind, "\n## ")
	for _, block := range consoles.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", "")) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				all = append(all, shown{command: strings.TrimSpace(command)})
			} else if line = strings.TrimSpace(line); line != "" {
				last := &all[len(all)-1]
				last.prints = append(last.prints, line)
			}
		}
	}
	return all
}

// newPage prepares a folder with the files of this one, in which the usual addresses are free ones, and
// windows are short.
func newPage(t *testing.T) *page {
	t.Helper()
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	free := servers.FreePorts(t, 4)
	addr := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", free[i]) }
	p := &page{rig: &rig{t: t, proxy: addr(0)}, dir: t.TempDir(), programs: built, app: addr(1), http: addr(2), grpc: addr(3)}
	p.warms = func() { p.ask(http.MethodGet, "/search", "X-User: warm-up") }
	files, err := filepath.Glob("*")
	if err != nil {
		t.Fatal(err)
	}
	p.write("log/nginx/empty", "")
	p.write("etc/nginx/conf.d/empty", "")
	p.write("main.conf", strings.Replace(nginxMain, "include nginx.conf", "include etc/nginx/conf.d/*.conf", 1))
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err == nil && !strings.HasSuffix(name, ".go") {
			p.write("examples/proxies/"+name, strings.ReplaceAll(p.here(string(content)), "per: 30s", "per: 10s"))
		}
	}
	return p
}

func (p *page) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		p.t.Fatal(err)
	}
}

// here is a text with addresses and folders of the test's.
func (p *page) here(text string) string {
	pairs := here(map[string]string{"8008": p.proxy, "8000": p.app, "8080": p.http, "8082": p.grpc, "8090": "127.0.0.1:0", "8091": p.api, "9091": "127.0.0.1:0"})
	return strings.NewReplacer(append(pairs, "/var/log/", p.dir+"/log/", "/etc/nginx/", p.dir+"/etc/nginx/")...).Replace(text)
}

// shell is a command of a page.
func (p *page) shell(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", inShell+p.here(command))
	cmd.Dir = p.dir
	me, err := user.Current()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin", "HERE="+p.dir, "APP="+p.app, "PROGRAMS="+p.programs, "USER="+me.Username,
		"HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir, "XDG_DATA_HOME="+p.dir, "XDG_STATE_HOME="+p.dir,
		"TALLYGATE_KAFKA="+p.kafka, "TALLYGATE_REDIS="+p.redis, "TALLYGATE_LISTEN="+p.http)
	return cmd
}

// background starts a program, which ends with the test.
func (p *page) background(command string) {
	p.t.Helper()
	cmd := p.shell(context.Background(), command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := &testrun.Output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	p.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and whatever it has started
		<-exited
		if p.t.Failed() {
			p.t.Logf("%s said:\n%s", command, said)
		}
	})
	p.eventually(command+" is up", func() bool {
		select {
		case <-exited:
			p.t.Fatalf("%s has ended: %v", command, cmd.ProcessState)
		default:
		}
		return p.isUp(command, said.String())
	})
}

var (
	devKafka = regexp.MustCompile(`  Kafka +([0-9.:]+),`)
	devRedis = regexp.MustCompile(`  Redis +([0-9.:]+)`)
	devAPI   = regexp.MustCompile(`  aggregator +http://([0-9.:]+)/`)
)

// isUp reports whether a program that was started can be asked.
func (p *page) isUp(command, said string) bool {
	switch {
	case strings.Contains(command, "tallygate dev"):
		kafka, rds, api := devKafka.FindStringSubmatch(said), devRedis.FindStringSubmatch(said), devAPI.FindStringSubmatch(said)
		if !strings.Contains(said, "Traffic: none") || kafka == nil || rds == nil || api == nil {
			return false
		}
		p.kafka, p.redis, p.api = kafka[1], rds[1], api[1]
		return p.answers("http://" + p.api + "/readyz")
	case strings.Contains(command, "/cmd/enforcer"):
		return p.answers("http://" + p.http + "/readyz")
	case strings.Contains(command, "tallygate emit"):
		return true
	case strings.Contains(command, "/app"):
		return dials(p.app)
	}
	return p.answers("http://" + p.proxy + "/up") // nginx -t listens for a moment, and Traefik before it knows its routes
}

func dials(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

func (p *page) answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// run runs the commands. What prints something else than the page is run again, because a verdict needs
// some time; loops are not, because their requests count.
func (p *page) run(commands []shown) {
	p.t.Helper()
	counting := false
	for _, c := range commands {
		if program, ok := strings.CutSuffix(c.command, "&"); ok {
			p.background(program)
			continue
		}
		if strings.Contains(c.command, "systemctl") {
			p.background(c.command)
			continue
		}
		if !counting && strings.Contains(p.here(c.command), p.proxy) {
			counting = true
			p.warmUp()
		}
		var printed []byte
		again := func() bool {
			var said bytes.Buffer
			ctx, cancel := context.WithTimeout(p.t.Context(), patience)
			defer cancel()
			cmd := p.shell(ctx, c.command)
			cmd.Stderr = &said
			out, err := cmd.Output()
			if printed = out; err != nil {
				p.t.Fatalf("%s: %v\n%s%s", c.command, err, out, &said)
			}
			p.t.Logf("$ %s\n%s", c.command, out)
			return prints(string(out), c.prints)
		}
		if strings.HasPrefix(c.command, "for ") {
			if !again() {
				p.t.Fatalf("%s prints\n%s", c.command, printed)
			}
			continue
		}
		p.eventually(c.command+" prints what the page says", again)
	}
}

var numbers = regexp.MustCompile(`[0-9a-f]{32}|[0-9]+(?:\.[0-9]+)?`) // an event's id, too

// prints reports whether each line that is wanted was printed, apart from numbers, ids and blanks. Numbers
// that are statuses are not passed over.
func prints(out string, want []string) bool {
	plain := func(line string) string {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "HTTP/") && strings.Trim(line, "0123456789 ") != "" {
			line = numbers.ReplaceAllString(line, "0")
		}
		return strings.Join(strings.Fields(line), " ")
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out) {
		printed[plain(line)] = true
	}
	return !slices.ContainsFunc(want, func(line string) bool { return !printed[plain(line)] })
}

// warmUp sends requests until one of them is counted: then everything runs.
func (p *page) warmUp() {
	p.t.Helper()
	p.eventually("a request is counted", func() bool {
		p.warms()
		return p.count("uid=warm-up") > 0
	})
}

// count is what the aggregator has counted of a key.
func (p *page) count(query string) float64 {
	resp, err := http.Get("http://" + p.api + "/v1/explain?" + query)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Rules []struct{ Count float64 } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		p.t.Fatal(err)
	}
	total := 0.0
	for _, r := range answer.Rules {
		total += r.Count
	}
	return total
}

// untilDenied sends requests until one is denied, and returns how many were not.
func (p *page) untilDenied(local, method, path string, headers ...string) (passed int, denied answer) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("%s %.20s is denied %s %v", method, path, local, headers), func() bool {
		if denied = p.askFrom(local, method, path, headers...); denied.status == http.StatusTooManyRequests {
			return true
		}
		passed++
		return false
	})
	return passed, denied
}

// limits checks what the page does not show: who is denied, and who is not, whatever clients send.
func (p *page) limits() {
	p.t.Helper()
	if n := p.count("uid=42"); n > 5 {
		p.t.Errorf("requests that were denied are counted: %v", n)
	}
	long := "/%73earch?q=" + strings.Repeat(url.QueryEscape(`"`), 1000)
	mask := []string{"X-User: 44", "X-Tallygate-Uid: 45", "X-Tallygate-Api: harmless", "X-Envoy-Original-Path: /harmless", "X-Original-Uri: /harmless",
		"X-Forwarded-Uri: /harmless", "X-Forwarded-For: 127.0.0.10", "X-Request-Id: always-the-same"}
	if n, _ := p.untilDenied("", http.MethodGet, long, mask...); n < 5 {
		p.t.Errorf("a client with headers of its own: %d requests passed", n)
	}
	if n := p.count("uid=45"); n != 0 {
		p.t.Errorf("%v requests are counted for a user that a client made up", n)
	}
	if n, a := p.untilDenied("127.0.0.9", http.MethodPost, "/signup", "X-Forwarded-For: 127.0.0.10"); n < 3 || a.header.Get("Retry-After") == "" {
		p.t.Errorf("an address, without a user: %d requests passed; %+v", n, a)
	}
	if a := p.askFrom("127.0.0.10", http.MethodPost, "/signup"); a.status != http.StatusOK {
		p.t.Errorf("another address: %+v", a)
	}
	for _, who := range []string{"uid=42", "uid=44"} {
		p.eventually("the window of "+who+" ends", func() bool {
			return p.ask(http.MethodGet, "/search", "X-User: "+strings.TrimPrefix(who, "uid=")).status == http.StatusOK
		})
	}
}

// Each recipe of the page works from end to end, with the real programs: the requests of an app that
// knows of nothing are counted from its proxy's log, and who is over the limit gets 429 from the proxy.
func TestRecipes(t *testing.T) {
	for name, c := range recipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program(t, c.program)
			commands := append(readPage(t, "../../docs/proxies.md", "What runs"), readPage(t, "../../docs/proxies.md", c.section)...)
			for i := range commands {
				if c.section == "Envoy" {
					commands[i].command = strings.ReplaceAll(commands[i].command, "envoy-ratelimit.yaml", c.file)
				}
			}
			p := newPage(t)
			p.run(commands)
			p.limits()
			http.DefaultClient.CloseIdleConnections()
		})
	}
}
