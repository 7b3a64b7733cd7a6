package aggregator

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Who reads personal data is in the audit, by the credential and not by what the caller says.
func TestReadsAreInTheAudit(t *testing.T) {
	t.Parallel()
	group := groupOf(t, someRules)
	p := joined(t, group, nil, "--tokens", staff(t))
	for body, want := range map[string]int{
		`{"key":{"uid":"42"},"what":"explain","reason":"ticket 7","by":"alice"}`:               200,
		`{"key":"uid=42","what":"timeline"}`:                                                   200,
		`{"what":"export-blocked","reason":"7 verdicts as CSV"}`:                               200,
		`{"key":{"uid":"42"}}`:                                                                 400,
		`{"what":"explain"}`:                                                                   400,
		`{"key":{"nothing":"42"},"what":"explain"}`:                                            400,
		`{"key":{"uid":"42"},"what":"EXPLAIN it"}`:                                             400,
		`{"key":{"uid":"42"},"what":"explain","at":1}`:                                         400,
		`{"key":{"uid":"42"},"what":"explain"} {}`:                                             400,
		`{"key":{"uid":"42"},"what":"explain","by":"` + strings.Repeat("x", 257) + `"}`:        400,
		`{"key":{"uid":"42"},"what":"explain","reason":"` + strings.Repeat("x", 70_000) + `"}`: 400,
	} {
		if code, said := p.ask("viewer", http.MethodPost, "/v1/reads", body); code != want {
			t.Errorf("%.80s: %d %s, want %d", body, code, said, want)
		}
	}
	all := auditOf(t, group)
	if !strings.Contains(all, `"by":"the-viewer","on_behalf_of":"alice","key":"uid=42","what":"explain","reason":"ticket 7","id":"`) || strings.Count(all, `"type":"read"`) != 3 {
		t.Errorf("the audit has %s", all)
	}
	if strings.Contains(p.said.String(), "uid=42") || strings.Contains(p.said.String(), "ticket 7") {
		t.Errorf("the log has what was read: %s", p.said)
	}
}

// Enforcers that are switched off or on are in the audit.
func TestTheAuditHasKillSwitches(t *testing.T) {
	t.Parallel()
	kafka, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	beat := func(enabled bool, cause string) {
		t.Helper()
		b := presence.Beat{ID: "QX", Kind: "go", Name: "edge-1", At: time.Now(), Enabled: enabled, OffCause: cause}
		if !enabled {
			b.OffSince = time.Now().Add(-time.Minute)
		}
		if err := presence.Write(t.Context(), client, "reads", b); err != nil {
			t.Fatal(err)
		}
	}
	beat(false, "file")
	began(t, kafka.Kafka, "reads", nil, "--tokens", staff(t), "--redis", server.Addr(), "--instance-id", "agg-1")
	switched := func(about, want string) {
		t.Helper()
		testrun.Eventually(t, about, func() bool { return strings.Contains(audited(t, kafka.Kafka, "reads"), want) })
	}
	switched("that it is off at first", `"by":"agg-1","enforcer":"edge-1","enforcer_id":"QX","enabled":false,"cause":"file","since":"`)
	beat(true, "")
	switched("that it is on again", `"enforcer":"edge-1","enforcer_id":"QX","enabled":true`)
}

// What is told of enforcers: changes, and at first those that are off.
func TestSwitches(t *testing.T) {
	var told []aggregate.KillSwitch
	s := switches{tell: func(k aggregate.KillSwitch) { told = append(told, k) }}
	at := time.Unix(1000, 0)
	off := presence.Beat{ID: "1", Name: "a", OffCause: "file", OffSince: at}
	on := presence.Beat{ID: "1", Name: "a", Enabled: true, At: at.Add(time.Minute)}
	other := presence.Beat{ID: "2", Name: "b", Enabled: true}
	long := presence.Beat{ID: "3", Name: strings.Repeat("ä", 300)}
	for i, c := range []struct {
		beats []presence.Beat
		want  []aggregate.KillSwitch
	}{
		{nil, nil},
		{[]presence.Beat{off, other}, []aggregate.KillSwitch{{Enforcer: "a", ID: "1", Cause: "file", Since: at}}},
		{[]presence.Beat{off, other}, nil},
		{[]presence.Beat{on, other}, []aggregate.KillSwitch{{Enforcer: "a", ID: "1", Enabled: true, Since: at.Add(time.Minute)}}},
		{[]presence.Beat{on}, nil},
		{[]presence.Beat{on, other}, nil},
		{[]presence.Beat{off}, []aggregate.KillSwitch{{Enforcer: "a", ID: "1", Cause: "file", Since: at}}},
		{nil, nil},
		{[]presence.Beat{long}, []aggregate.KillSwitch{{Enforcer: strings.Repeat("ä", 128), ID: "3"}}},
	} {
		told = nil
		if s.take(c.beats); !slices.Equal(told, c.want) {
			t.Errorf("%d: told is %+v, want %+v", i, told, c.want)
		}
	}
}
