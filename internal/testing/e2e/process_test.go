package e2e

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// within is how long anything may take that has to happen. It is for a machine with other
// things to do; nothing waits that long when all is well.
var within = time.Minute

// Process is a program that runs, or did. It may be started again after Kill or Stop, with
// the same arguments and on the same port. It is for the test's own goroutine.
type Process struct {
	t    *testing.T
	name string // for messages
	path string
	args []string
	addr string // of its HTTP API

	metrics string // the address of its metrics

	log   *logBuffer
	races string // what the files begin with that the race detector writes its reports to

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// newProcess prepares a program with an HTTP API on a port of its own.
func newProcess(t *testing.T, name, path string, args ...string) *Process {
	t.Helper()
	addr, metrics := servers.FreeAddr(t), servers.FreeAddr(t)
	p := &Process{t: t, name: name, path: path, addr: addr, metrics: metrics, log: &logBuffer{}, races: filepath.Join(t.TempDir(), "race"),
		args: append([]string{"--listen", addr, "--metrics-listen", metrics}, args...)}
	t.Cleanup(func() {
		if p.Running() {
			p.Kill()
		}
		for _, report := range p.dataRaces() {
			t.Errorf("%s has a data race:\n%s", name, report)
		}
		if t.Failed() {
			t.Logf("the end of %s's log:\n%s", name, p.log.tail(80))
		}
	})
	return p
}

// dataRaces are the race detector's reports, of all runs of the program. Each run has a file of its
// own: in the log, other lines would stand among a report's.
func (p *Process) dataRaces() (reports []string) {
	p.t.Helper()
	files, err := filepath.Glob(p.races + ".*")
	if err != nil {
		p.t.Error(err)
	}
	for _, file := range files {
		report, err := os.ReadFile(file)
		if err != nil {
			p.t.Error(err)
		}
		reports = append(reports, string(report))
	}
	return reports
}

// Start starts the program; Ready waits for it.
func (p *Process) Start() *Process {
	p.t.Helper()
	cmd := exec.Command(p.build(), p.args...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// Its usual port may be another test's.
	cmd.Env = append(os.Environ(), "TALLYGATE_GRPC_LISTEN=none",
		"GORACE="+os.Getenv("GORACE")+" log_path="+p.races)
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // its status is in cmd.ProcessState
		close(exited)
	}()
	return p
}

// older is an aggregator of another build, such as of the commit before; "" is none. With it every
// second start of an aggregator, in any test, is of that build: partitions move back and forth
// between the two.
var older = os.Getenv("TALLYGATE_TEST_OLDER")

// starts counts those of aggregators.
var starts atomic.Int64

// build is the program to start.
func (p *Process) build() string {
	if older == "" || filepath.Base(p.path) != "aggregator" || starts.Add(1)%2 == 0 {
		return p.path
	}
	p.t.Logf("%s is of the other build", p.name)
	return older
}

// Ready waits until /readyz says so.
func (p *Process) Ready() *Process {
	p.t.Helper()
	p.t.Logf("%s (pid %d) was ready %v after the wait for it began", p.name, p.cmd.Process.Pid, p.awaitReady().Round(time.Millisecond))
	return p
}

func (p *Process) awaitReady() time.Duration {
	p.t.Helper()
	began := time.Now()
	eventually(p.t, p.name+" is ready", func() bool {
		if !p.Running() {
			p.t.Fatalf("%s ended with status %d before it was ready:\n%s", p.name, p.cmd.ProcessState.ExitCode(), p.log.tail(40))
		}
		status, _ := get(p.url("/readyz"))
		return status == http.StatusOK
	})
	return time.Since(began)
}

// Kill ends the program by SIGKILL, and returns when it is gone.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	p.wait()
}

// Stop asks the program to end, and returns its exit status.
func (p *Process) Stop() int {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	p.wait()
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal. A process that has ended already takes none.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %v to %s: %v", s, p.name, err)
	}
}

func (p *Process) wait() {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(within):
		p.t.Fatalf("%s does not end", p.name)
	}
}

// Running reports whether the program was started and has not ended.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Logs returns all that the program has written, over all its starts.
func (p *Process) Logs() string { return p.log.String() }

func (p *Process) url(path string) string { return "http://" + p.addr + path }

// metric returns the value of a metric without labels.
func (p *Process) metric(name string) float64 {
	p.t.Helper()
	_, body := get("http://" + p.metrics + "/metrics")
	for line := range strings.Lines(string(body)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				p.t.Fatalf("metric %s of %s: %v", name, p.name, err)
			}
			return v
		}
	}
	p.t.Fatalf("%s has no metric %s", p.name, name)
	return 0
}

// client keeps enough connections for all that asks at once.
var client = &http.Client{
	Timeout:   20 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 16},
}

// get returns a reply's status and body; status 0 means that there was none.
func get(url string) (status int, body []byte) {
	resp, err := client.Get(url)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, body
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testrun.Eventually(t, what, ok)
}

// logBuffer is a program's output.
type logBuffer struct{ testrun.Output }

func (b *logBuffer) tail(lines int) string {
	all := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i := range all {
		if len(all[i]) > 600 {
			all[i] = all[i][:600] + "…"
		}
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
