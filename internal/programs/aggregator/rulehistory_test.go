package aggregator

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// limitText is a set whose limit is a version's.
func limitText(limit int) string {
	return strings.Replace(someRules, "limit: 1,", fmt.Sprintf("limit: %d,", limit), 1)
}

// whichRules holds the fields of a version that a test looks at.
type whichRules struct {
	Version, From      int64
	By, Reason, Source string
}

// Administrators roll back over HTTP. A restart, SIGHUP, a touched file and a reload leave it as it is; a changed file
// is published.
func TestRollBackOverHTTP(t *testing.T) {
	t.Parallel()
	kafka, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	const prefix = "history"
	brokers := kafka.Kafka
	path := rulesFile(t, limitText(1))
	p := began(t, brokers, prefix, nil, "--tokens", staff(t), "--rules", path)
	// write changes a file, as if so long from now.
	write := func(path string, limit int, at time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, []byte(limitText(limit)), 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(at)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(q *program, version int64, limit int) {
		t.Helper()
		testrun.Eventually(t, fmt.Sprintf("version %d runs", version), func() bool {
			is := told[whichRules](q, "viewer", "/v1/rules")
			return is.Version == version && is.Source == limitText(limit)
		})
	}
	back := func(body string, want int, about string) {
		t.Helper()
		if code, said := p.ask("admin", http.MethodPost, "/v1/rules/rollback", body); code != want || !strings.Contains(said, about) {
			t.Errorf("%.80s: %d %s, want %d with %s", body, code, said, want, about)
		}
	}
	write(path, 2, time.Second)
	runs(p, 2, 2)
	write(path, 3, 2*time.Second)
	runs(p, 3, 3)

	back(`{"version":4,"reason":"r"}`, http.StatusNotFound, "no such version")
	back(`{"version":3,"reason":"r"}`, http.StatusConflict, "already")
	if code, _ := p.ask("operator", http.MethodPost, "/v1/rules/rollback", `{"version":1,"reason":"r"}`); code != http.StatusForbidden {
		t.Errorf("an operator rolls back: %d", code)
	}
	back(`{"version":1,"reason":"too strict","by":"alice"}`, http.StatusOK, `{"version":4,"changed":true}`)
	runs(p, 4, 1)
	write(path, 3, time.Hour) // the same, of an hour from now
	if code, said := p.ask("admin", http.MethodPost, "/-/reload", ""); code != http.StatusConflict || !strings.Contains(said, "rolled back") {
		t.Errorf("a reload of what was rolled back: %d %s", code, said)
	}
	own := rulesFile(t, limitText(3)) // of one file, two could publish a change at once: two versions with one text
	write(own, 3, time.Hour)
	q := began(t, brokers, prefix, nil, "--tokens", staff(t), "--rules", own)
	runs(q, 4, 1)
	is := told[whichRules](q, "viewer", "/v1/rules?version=4")
	if is.From != 1 || is.By != "the-admin" || is.Reason != "too strict" {
		t.Errorf("%+v", is)
	}
	if is = told[whichRules](q, "viewer", "/v1/rules?version=3"); is.Source != limitText(3) || is.Version != 3 {
		t.Errorf("%+v", is)
	}
	write(path, 5, 2*time.Hour)
	if code, said := p.ask("admin", http.MethodPost, "/-/reload", ""); code != http.StatusOK {
		t.Errorf("a reload of a changed file: %d %s", code, said)
	}
	runs(q, 5, 5)
	list := told[struct {
		Versions []whichRules
		More     bool
	}](q, "viewer", "/v1/rules/versions?limit=2&before=5")
	if len(list.Versions) != 2 || list.Versions[0].Version != 4 || !list.More {
		t.Errorf("%+v", list)
	}
	testrun.Eventually(t, "the audit has the roll back", func() bool {
		all := audited(t, brokers, prefix)
		return strings.Contains(all, `"by":"the-admin","on_behalf_of":"alice","version":4,"name":"shop"`) && strings.Contains(all, `"from":1,"reason":"too strict"`) && strings.Count(all, `"type":"rules"`) == 5
	})
}

// What is no roll back is refused, with the reason, and so is what is no question.
func TestRollBacksThatAreNone(t *testing.T) {
	t.Parallel()
	p := joined(t, groupOf(t, someRules), nil, "--tokens", staff(t))
	back := func(body string, want int, about string) {
		t.Helper()
		if code, said := p.ask("admin", http.MethodPost, "/v1/rules/rollback", body); code != want || !strings.Contains(said, about) {
			t.Errorf("%.80s: %d %s, want %d with %s", body, code, said, want, about)
		}
	}
	for body, why := range map[string]string{
		`{"version":1}`:                    "reason",
		`{"reason":"r"}`:                   "which version",
		`{"version":1,"reason":"r","x":1}`: "unknown field",
		`{"version":1,"reason":"r"}{}`:     "follows",
		`{"version":"1","reason":"r"}`:     "read the body",
		`{"version":1,"reason":" "}`:       "reason",
		`{"version":1,"reason":"r","by":"` + strings.Repeat("x", 300) + `"}`: "at most 256",
		`{"version":1,"reason":"` + strings.Repeat("x", 70_000) + `"}`:       "too large",
		`{"version":1,"reason":"` + strings.Repeat("x", 5000) + `"}`:         "at most 4096",
	} {
		back(body, http.StatusBadRequest, why)
	}
	back(`{"version":4,"reason":"r"}`, http.StatusNotFound, "no such version")
	back(`{"version":1,"reason":"r"}`, http.StatusConflict, "already")
	for query, want := range map[string]int{"?version=99": 404, "?version=0": 400, "?version=x": 400, "?uid=42": 400} {
		if code, said := p.ask("viewer", http.MethodGet, "/v1/rules"+query, ""); code != want {
			t.Errorf("%s: %d %s", query, code, said)
		}
	}
	for query, want := range map[string]int{"?limit=0": 400, "?limit=1001": 400, "?before=0": 400, "?x=1": 400} {
		if code, said := p.ask("viewer", http.MethodGet, "/v1/rules/versions"+query, ""); code != want {
			t.Errorf("%s: %d %s", query, code, said)
		}
	}
}
