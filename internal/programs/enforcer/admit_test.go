package enforcer

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/options"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
)

func parse(args []string, stdout, stderr io.Writer, getenv func(string) string) (*Program, error) {
	return Kafka(nil).parse(args, stdout, stderr, getenv)
}

// emitted collects events in Kafka's place.
type emitted []event.Event

func (e *emitted) Emit(ev event.Event) bool { *e = append(*e, ev); return true }

// parsed returns the program with the first of Kafka's brokers, "" if nothing goes there.
func parsed(t *testing.T, args ...string) (e *Program, broker string, err error) {
	t.Helper()
	args = append([]string{"--listen", "127.0.0.1:0", "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0"}, args...)
	e, err = Kafka(func(o *options.Options) (Events, error) {
		broker = (*o.Brokers)[0]
		return func(*Program) (admit.Emitter, func(), error) { return new(emitted), func() {}, nil }, nil
	}).parse(args, io.Discard, io.Discard, testrun.NoEnv)
	if err == nil {
		t.Cleanup(func() { _, _, _ = e.HTTP.Close(), e.Metrics.Close(), e.Redis.Close() })
	}
	return e, broker, err
}

func TestOptionsOfPermits(t *testing.T) {
	e, broker, err := parsed(t, "--on-doubt", "local", "--on-doubt-of", "sms=closed,search=open", "--enforcers", "4", "--admit-proxies", "--emit-admitted", "--kafka", "k:1")
	if err != nil {
		t.Fatal(err)
	}
	if c := e.Admit; c.OnDoubt != admit.Local || c.OnDoubtOf["sms"] != admit.Closed || c.OnDoubtOf["search"] != admit.Open || len(c.OnDoubtOf) != 2 || c.Enforcers != 4 || !e.Config.AdmitProxies || broker != "k:1" {
		t.Errorf("%+v %+v", e.Admit, broker)
	}
	if e, broker, err := parsed(t, "--emit-denied", "--kafka", "k:2"); err != nil || broker != "k:2" || !e.EmitDenied || e.Config.EmitAdmitted {
		t.Errorf("what is denied is emitted alone: %+v, %v", e, err)
	}
	if e, _, err := parsed(t, "--kafka", "k:1", "--kafka-sasl", "plain"); err != nil || e.Events != nil || e.Admit.OnDoubt != admit.Closed || e.Config.AdmitProxies {
		t.Errorf("by default nothing is emitted, and Kafka's options are not looked at: %v", err)
	}
	for want, args := range map[string][]string{
		`want closed, open or local`:                                  {"--on-doubt", "last-known"},
		`--on-doubt-of: sms="maybe": want closed`:                     {"--on-doubt-of", "sms=maybe"},
		`--max-waiting 0, --max-waiting-per-key 100: want at least 1`: {"--max-waiting", "0"},
		`--enforcers 0: want at least 1`:                              {"--enforcers", "0"},
	} {
		if _, _, err := parsed(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// Each of the two options has its own events, and one without the other emits nothing of the other's.
func TestWhoseEventsAreEmitted(t *testing.T) {
	for option, want := range map[string][2]bool{"--emit-admitted": {true, false}, "--emit-denied": {false, true}} {
		e, _, err := parsed(t, option)
		if err != nil {
			t.Fatal(err)
		}
		_, closeEvents, err := e.admitter()
		if err != nil {
			t.Fatal(err)
		}
		closeEvents()
		if got := [2]bool{e.Config.EmitAdmitted, e.Config.Denied != nil}; got != want {
			t.Errorf("%s emits what is admitted, and denied: %v, want %v", option, got, want)
		}
	}
}

// Units and images start enforcer, whatever its options are: enforcer-kafka, beside it, runs in its place, with the same
// arguments and environment.
func TestWithoutAKafkaClientTheOtherProgramRuns(t *testing.T) {
	var said strings.Builder
	if status := Command(testrun.Context(t), []string{"--emit-denied"}, &said, &said, testrun.NoEnv); status != ops.ExitUsage ||
		!strings.Contains(said.String(), "are for the program enforcer-kafka, which has a client of Kafka: run ") {
		t.Errorf("where it is not there: %d, %s", status, said.String())
	}
	if runtime.GOOS == "windows" {
		t.Skip("no process can be replaced there")
	}
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"enforcer": self, withKafka: []byte("#!/bin/sh\necho \"$*, $" + asProgram + "\"\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "tallygate-enforcer")
	if err := os.Symlink(filepath.Join(dir, "enforcer"), link); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), link, "--emit-admitted", "--kafka", "k:1")
	run.Env = append(os.Environ(), asProgram+"=of this process")
	if out, err := run.CombinedOutput(); err != nil || string(out) != "--emit-admitted --kafka k:1, of this process\n" {
		t.Errorf("%s, %v", out, err)
	}
}
