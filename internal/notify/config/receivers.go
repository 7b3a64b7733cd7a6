package config

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/notify/receive"
	"github.com/tallygate/tallygate/rules/document"
)

func (r *reader) receiver(n *yaml.Node) {
	o, ok := r.Object(n, "a receiver", append([]string{"name", "keys", "timeout", "max_age"}, receive.Names()...)...)
	if !ok {
		return
	}
	to := &Receiver{Name: r.name(o, "a receiver"), Timeout: defaultTimeout}
	if r.c.Receiver(to.Name) != nil && to.Name != "" {
		r.Fail(o.At("name"), "", "there are two receivers of this name")
	}
	if n := o.Get("keys"); n != nil {
		word, _ := r.Word(n, "keys", "masked", "shown")
		to.Shown = word == "shown"
	}
	r.SpanOf(o, "timeout", &to.Timeout)
	r.SpanOf(o, "max_age", &to.MaxAge)
	if to.Timeout < 100*time.Millisecond || to.Timeout > time.Minute {
		r.Fail(o.At("timeout"), "", "timeout is from 100ms to 1m")
	}
	given := slices.DeleteFunc(slices.Clone(receive.Types), func(t *receive.Type) bool { return !o.Has(t.Name) })
	if len(given) != 1 {
		r.Fail(o.Node, "as in {name: chat, slack: {url_file: /etc/tallygate/slack-url}}", "a receiver is one of %s", strings.Join(receive.Names(), ", "))
		return
	}
	given[0].Read(&r.Fields, o.Get(given[0].Name), to)
	r.c.Receivers = append(r.c.Receivers, to)
}

// watch reads when states begin.
func (r *reader) watch(n *yaml.Node) {
	w := &r.c.Watch
	*w = Watch{Poll: defaultPoll, HitsAbove: defaultAbove, HitsFor: defaultHitsFor, HitsKeys: defaultKeys, LagAbove: defaultLag, LagFor: defaultFor, StaleFor: defaultFor, GoneFor: defaultFor}
	defer func() {
		if w.HitsBelow == 0 {
			w.HitsBelow = w.HitsAbove * 0.8
		}
	}()
	if n == nil {
		return
	}
	o, ok := r.Object(n, "watch", "poll", "hits", "lag", "enforcers", "aggregators")
	if !ok {
		return
	}
	r.SpanOf(o, "poll", &w.Poll)
	if w.Poll < time.Second || w.Poll > time.Minute {
		r.Fail(o.At("poll"), "", "poll is from 1s to 1m")
	}
	inside := func(field string, known ...string) *document.Object {
		if n := o.Get(field); n != nil {
			if o, ok := r.Object(n, field, known...); ok {
				return o
			}
		}
		return &document.Object{Node: n}
	}
	hits := inside("hits", "above", "below", "for", "keys")
	r.share(hits, "above", &w.HitsAbove)
	r.share(hits, "below", &w.HitsBelow)
	r.SpanOf(hits, "for", &w.HitsFor)
	if n := hits.Get("keys"); n != nil {
		w.HitsKeys = r.number(n, "keys")
	}
	if w.HitsBelow > w.HitsAbove {
		r.Fail(hits.At("below"), "the state ends below it, so it is the smaller one", "below is more than above")
	}
	lag := inside("lag", "above", "for")
	r.SpanOf(lag, "above", &w.LagAbove)
	r.SpanOf(lag, "for", &w.LagFor)
	r.SpanOf(inside("enforcers", "for"), "for", &w.StaleFor)
	r.SpanOf(inside("aggregators", "for"), "for", &w.GoneFor)
}
