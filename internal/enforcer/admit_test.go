package enforcer

import (
	"io"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
)

func parsed(t *testing.T, args ...string) (*Program, error) {
	t.Helper()
	args = append([]string{"--listen", "127.0.0.1:0", "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0"}, args...)
	e, err := parse(args, io.Discard, io.Discard, testrun.NoEnv)
	if err == nil {
		t.Cleanup(func() { _, _, _ = e.HTTP.Close(), e.Metrics.Close(), e.Redis.Close() })
	}
	return e, err
}

func TestOptionsOfPermits(t *testing.T) {
	e, err := parsed(t, "--on-doubt", "local", "--on-doubt-of", "sms=closed,search=open", "--enforcers", "4", "--admit-proxies", "--emit-admitted", "--kafka", "k:1")
	if err != nil {
		t.Fatal(err)
	}
	if c := e.Admit; c.OnDoubt != admit.Local || c.OnDoubtOf["sms"] != admit.Closed || c.OnDoubtOf["search"] != admit.Open || len(c.OnDoubtOf) != 2 || c.Enforcers != 4 || !e.Config.AdmitProxies || e.Kafka.Brokers[0] != "k:1" {
		t.Errorf("%+v %+v", e.Admit, e.Kafka)
	}
	if e, err := parsed(t, "--emit-denied", "--kafka", "k:2"); err != nil || e.Kafka == nil || e.Kafka.Brokers[0] != "k:2" || !e.EmitDenied || e.Config.EmitAdmitted {
		t.Errorf("what is denied is emitted alone: %+v, %v", e, err)
	}
	if e, err := parsed(t, "--kafka", "k:1", "--kafka-sasl", "plain"); err != nil || e.Kafka != nil || e.Admit.OnDoubt != admit.Closed || e.Config.AdmitProxies {
		t.Errorf("by default nothing is emitted, and Kafka's options are not looked at: %v", err)
	}
	for want, args := range map[string][]string{
		`want closed, open or local`:                                  {"--on-doubt", "last-known"},
		`--on-doubt-of: sms="maybe": want closed`:                     {"--on-doubt-of", "sms=maybe"},
		`--max-waiting 0, --max-waiting-per-key 100: want at least 1`: {"--max-waiting", "0"},
		`--enforcers 0: want at least 1`:                              {"--enforcers", "0"},
		`--kafka-sasl needs --kafka-user`:                             {"--emit-admitted", "--kafka-sasl", "plain"},
		`--kafka-user and --kafka-password-file n`:                    {"--emit-admitted", "--kafka-user", "x"},
	} {
		if _, err := parsed(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// Each of the two options has its own events, and one without the other emits nothing of the other's.
func TestWhoseEventsAreEmitted(t *testing.T) {
	for option, want := range map[string][2]bool{"--emit-admitted": {true, false}, "--emit-denied": {false, true}} {
		e, err := parsed(t, option, "--kafka", "127.0.0.1:1")
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
