package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
	"github.com/tallygate/tallygate/verdict"
)

const (
	checkWithin   = time.Second
	checksAtOnce  = 8
	maxChecked    = 100     // enforcers
	maxCheckBytes = 1 << 20 // of an answer
)

// checked is one enforcer's present answer.
type checked struct {
	Name, Kind string
	Answer     string // in words
	Level      string // ok: allowed; bad: denied; unknown: no answer
	Staleness  string
	Differs    string // from what the aggregator says; "": it does not
	allowed    bool
	answered   bool
}

// checkBody asks for a key under an API; nil if no check can have such a key.
func checkBody(key []event.Dim, api string) []byte {
	body := map[string]any{"api": api}
	attrs := map[string]string{}
	for _, d := range key {
		name, isAttr := strings.CutPrefix(d.Name, "attrs.")
		switch {
		case isAttr:
			attrs[name] = d.Value
		case d.Name == "uid":
			body["uid"] = d.Value
		case d.Name == "api":
			body["api"] = d.Value
		case d.Name == "ip":
			body["ip"] = d.Value
		case strings.HasPrefix(d.Name, "ip/"):
			if net, err := netip.ParsePrefix(d.Value); err == nil {
				body["ip"] = net.Addr().String()
			}
		}
	}
	if len(attrs) > 0 {
		body["attrs"] = attrs
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil
	}
	return text
}

// apiFor is an API that the verdicts on a key are about: what they cover first, with letters for what a pattern
// leaves open. "" where none is in force.
func apiFor(list []verdict.Verdict) string {
	for i := range list {
		if v := &list[i]; v.Decides() && len(v.APIs) > 0 {
			return strings.ReplaceAll(v.APIs[0], "*", "x")
		}
	}
	return ""
}

// enforcers asks each decision server. expected is whether a verdict in force denies the API.
func (k *Keys) enforcers(ctx context.Context, key []event.Dim, api string, expected bool) ([]checked, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*checkWithin)
	defer cancel()
	beats, err := presence.List(ctx, k.redis, k.prefix)
	if err != nil {
		return nil, err
	}
	body := checkBody(key, api)
	out := make([]checked, len(beats))
	var g errgroup.Group
	g.SetLimit(checksAtOnce)
	var asked int
	for i := range beats {
		b := &beats[i]
		out[i] = checked{Name: words.Cell(b.Name, 128), Kind: words.Cell(b.Kind, 32), Level: "unknown", Staleness: behindText(b.Staleness)}
		switch {
		case b.Gone():
			out[i].Answer = "it has not been heard of for " + span(b.Age)
		case b.URL == "":
			out[i].Answer = "it is inside a service, and cannot be asked"
			if !b.Enabled {
				out[i].Answer += "; its kill switch is on: it allows everything"
			}
		case asked == maxChecked:
			out[i].Answer = fmt.Sprintf("not asked: only the first %d are", maxChecked)
		default:
			asked++
			g.Go(func() error {
				k.check(ctx, b, body, &out[i])
				return nil
			})
		}
	}
	_ = g.Wait() // what failed is in the answers
	compareChecks(out, expected)
	return out, nil
}

func behindText(s float64) string {
	if s < 0 {
		return "no snapshot yet"
	}
	return span(time.Duration(s * float64(time.Second)))
}

// check asks one enforcer.
func (k *Keys) check(ctx context.Context, b *presence.Beat, body []byte, out *checked) {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	resp, err := k.checks.Do(ctx, http.MethodPost, b.URL, "/v1/check", body)
	if errors.Is(err, apiclient.ErrAddress) {
		out.Answer = apiclient.ErrAddress.Error()
		return
	}
	if err != nil {
		out.Answer = "no answer: " + reasonOf(err)
		return
	}
	defer resp.Body.Close()
	var a api.Decision
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCheckBytes))
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(text, &a) != nil {
		out.Answer = "it answers " + resp.Status
		return
	}
	out.answered, out.allowed = true, a.Allowed
	out.Level, out.Answer = "ok", "allowed"
	if !a.Allowed {
		out.Level, out.Answer = "bad", words.Cell(a.Action, 32)+" by "+words.Cell(a.Rule, 128)
	}
	if a.InDoubt {
		out.Answer += ", since its blocklist is stale"
	}
	if a.Staleness != "" {
		out.Staleness = words.Cell(a.Staleness, 32)
	}
}

// reasonOf is an error without the address.
func reasonOf(err error) string { return words.Cell(httpjson.Cause(err).Error(), 200) }

// compareChecks marks the answers that are not what the verdicts in force say.
func compareChecks(list []checked, expected bool) {
	for i := range list {
		switch c := &list[i]; {
		case c.answered && expected && c.allowed:
			c.Differs = "differs: a verdict in force denies this"
		case c.answered && !expected && !c.allowed:
			c.Differs = "differs: no verdict in force on this key denies this"
		}
	}
}

// checksOf is the table of what enforcers answer.
func checksOf(list []checked) table {
	t := table{
		Caption: "What each enforcer answers now", Hidden: true, Head: []column{{Text: "Enforcer"}, {Text: "Answer"}, {Text: "Behind"}, {Text: "Differs"}},
		Empty: empty{Title: "No enforcer has announced itself", Text: "Enforcers write a heartbeat into Redis every two seconds. Those of older versions do not."},
	}
	for _, c := range list {
		r := row{Cells: []cell{{Text: c.Name, Note: c.Kind, Head: true}, {Text: c.Answer, Tag: c.Level}, {Text: c.Staleness}, {Text: c.Differs}}}
		if c.Differs != "" {
			r.Class = "bad"
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}
