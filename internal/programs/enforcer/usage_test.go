package enforcer

import (
	"io"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestOptionsOfReports(t *testing.T) {
	e, broker, err := parsed(t, "--usage-domain", "ai", "--usage-descriptors", "usage=tokens,kind=cost", "--usage-attr", "tokens", "--kafka", "k:1")
	if err != nil {
		t.Fatal(err)
	}
	if u := e.Config.Usage; u.Domain != "ai" || u.Entries["usage"] != "tokens" || u.Entries["kind"] != "cost" ||
		u.Attr != "tokens" || broker != "k:1" || e.Config.EmitAdmitted {
		t.Errorf("%+v, %s", u, broker)
	}
	if e, broker, err := parsed(t, "--usage-descriptors", "usage=tokens", "--kafka", "k:2"); err != nil || broker != "k:2" || !e.Config.Usage.On() {
		t.Errorf("an entry alone: %v, %v", e, err)
	}
	if e, broker, err := parsed(t, "--rlqs", "--usage-attr", "tokens", "--kafka", "k:3"); err != nil || broker != "k:3" || !e.Config.Usage.Quotas {
		t.Errorf("Envoy's quotas alone: %v, %v", e, err)
	}
	for want, args := range map[string][]string{
		"--usage-attr needs --usage-domain":   {"--usage-attr", "tokens"},
		`"usage" is not NAME=VALUE`:           {"--usage-descriptors", "usage"},
		"this program has no client of Kafka": {"--usage-domain", "ai"},
	} {
		_, err := parse(append([]string{"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}, args...), io.Discard, io.Discard, testrun.NoEnv)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
