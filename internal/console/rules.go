package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/console/rulewatch"
	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// ruleSide serves the pages about rules and data.
type ruleSide struct {
	watch   *rulewatch.Watch
	bench   *workbench.Bench
	letters *deadLetters
	// mask hides a key; the pages about keys know how.
	mask func(key []event.Dim) string
}

// newRuleSide asks nothing yet. What it reads in the background it asks for with the console's own token. Without
// Kafka past events and dead letters cannot be read.
func newRuleSide(p *Program) *ruleSide {
	kafka, prefix := p.Doctor.Kafka, cmp.Or(p.Doctor.Prefix, "tallygate")
	r := &ruleSide{mask: maskAll, letters: &deadLetters{topic: prefix + ".dead-letters", kafka: kafka}}
	if p.Keys != nil {
		r.mask = func(key []event.Dim) string { return p.Keys.refs.Mask(key) }
	}
	bench := workbench.Config{Mask: r.maskText}
	if kafka != nil {
		bench.Events = func(ctx context.Context, from time.Time) (replay.Source, error) {
			return replay.TopicFrom(ctx, kafka, prefix+".events", from)
		}
	}
	r.bench = workbench.New(bench)
	r.watch = rulewatch.New(rulewatch.Config{Get: p.API.Get, Now: p.Now, Enforcers: apiclient.NewEnforcers(p.Enforcers), Beats: func() []presence.Beat {
		if s := p.Health.State(); s != nil {
			return s.Readings.Enforcers.Value
		}
		return nil
	}})
	return r
}

// maskText hides a key that is given as the text of a record key.
func (s *ruleSide) maskText(key string) string {
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		return masked
	}
	return s.mask(dims)
}

// masked stands for what is hidden.
const masked = "•••"

// maskAll hides every value of a key but the API's.
func maskAll(key []event.Dim) string {
	text := ""
	for _, d := range key {
		if text != "" {
			text += " "
		}
		if d.Name == "api" {
			text += "api=" + d.Value
		} else {
			text += d.Name + "=" + masked
		}
	}
	return text
}

// running is the version of the rules that the group runs.
func (r *request) running() (*rulewatch.Opened, error) { return r.version(0) }

// version is a version of the rules; 0 is the one that runs. Readers may all see the same, so that it is asked
// for with the console's own credential.
func (r *request) version(number int64) (*rulewatch.Opened, error) {
	o, err := r.server.rules.watch.Book.Open(r.ctx(), number)
	if refused, ok := errors.AsType[*api.Refusal](err); ok && refused.Status == http.StatusNotFound && number != 0 {
		return nil, &Problem{Status: http.StatusNotFound, Title: "There is no such version", Detail: refused.Detail, Do: "Choose one from the list.", Link: "/versions"}
	}
	return o, err
}

// noSuchRule is shown where a rule is asked for that the running version does not have.
func noSuchRule(name string, version int64) *Problem {
	return &Problem{Status: http.StatusNotFound, Title: "There is no such rule", Detail: "Version " + number(version) + " of the rules has no rule " + name + ".",
		Do: "It may be gone: the versions say when.", Link: "/versions"}
}
