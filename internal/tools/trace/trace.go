package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// traced holds the reactions of rules to one event.
type traced struct {
	Event    json.RawMessage   `json:"event"`
	Where    string            `json:"where,omitempty"`      // FILE:LINE, or TOPIC/PARTITION@OFFSET
	Live     bool              `json:"live,omitempty"`       // nothing is counted: it is what would happen
	At       event.Micros      `json:"at"`                   // when it counts; null when it has no time
	NotAtAll *rules.Reason     `json:"not_at_all,omitempty"` // why no rule counts it, whatever else it is
	Rules    []ruleTrace       `json:"rules"`                // those that count it, then those that it misses least
	More     int               `json:"more,omitempty"`       // how many rules are left out
	Verdicts []verdict.Verdict `json:"verdicts,omitempty"`   // that it issues, moves or ends; not with --live
}

// ruleTrace is a rule's reaction to the event.
type ruleTrace struct {
	Rule   string            `json:"rule"`
	Does   string            `json:"does"`            // passes, counts, takes_back, resets, tells
	Unmet  []rules.Reason    `json:"unmet,omitempty"` // the conditions that the event does not meet
	Met    int               `json:"met,omitempty"`   // how many it does
	Key    map[string]string `json:"key,omitempty"`
	Notes  []rules.Reason    `json:"notes,omitempty"`
	Repeat bool              `json:"repeat,omitempty"`  // the key counted its id before
	NoSuch bool              `json:"no_such,omitempty"` // the key remembers no event that it could take back
	Limits []limitTrace      `json:"limits,omitempty"`

	key string
}

// limitTrace is the effect on a count.
type limitTrace struct {
	Limit     string           `json:"name"` // rule, or rule/limit
	Amount    event.Decimal    `json:"amount"`
	Before    event.Decimal    `json:"before"`
	After     *event.Decimal   `json:"after"`            // null when it is not known
	Of        event.Decimal    `json:"limit"`            // 0: unlimited, or closed
	Closed    bool             `json:"closed,omitempty"` // the limit is 0: it allows nothing
	Tier      int              `json:"tier,omitempty"`
	LimitFrom string           `json:"limit_from,omitempty"`
	Mode      verdict.Mode     `json:"mode"`
	Exempt    string           `json:"exempt,omitempty"` // by what the key is counted and not judged
	Late      string           `json:"late,omitempty"`   // why it does not add to the count, or tells no limit
	InForce   *verdict.Verdict `json:"in_force"`         // what is in force afterwards; with --live, before
	Passes    bool             `json:"over"`             // the count passes the limit: a verdict is issued, unless one is in force

	distinct string // what the limit tells apart
}

// counter counts events, or asks who does.
type counter interface {
	// broker returns the event's broker time, NoTime if that is not known.
	broker(rec *replay.Record) event.Micros
	// count counts an event at a time, and fills in the counts of the rules that do not pass it over, if
	// somebody wants to know. It returns the verdicts that follow.
	count(ctx context.Context, rec *replay.Record, at event.Micros, to []target, wanted bool) ([]verdict.Verdict, error)
}

// target is a rule that counts the event, and what is told of it.
type target struct {
	why *rules.Why
	to  *ruleTrace
}

// tracer traces one event after the other.
type tracer struct {
	set    *rules.Set
	why    *rules.Tracer
	counts counter
	all    bool
	live   bool // the events are not counted here
}

// nearest bounds the shown rules that pass an event over; of those for quite other APIs only as many as make up a
// few.
const (
	nearest = 5
	few     = 2
)

// trace counts an event, and says what was done with it if that is wanted.
func (t *tracer) trace(ctx context.Context, rec *replay.Record, wanted bool) (*traced, error) {
	shown := rec.Event
	shown.BrokerTime = rec.Broker
	rec.Broker = t.counts.broker(rec)
	if !wanted {
		_, err := t.counts.count(ctx, rec, event.NoTime, nil, false)
		return nil, err
	}
	at, all := t.why.Why(&rec.Event, rec.Broker)
	out := &traced{Event: event.AppendJSON(nil, &shown), At: at, NotAtAll: notAtAll(all), Live: t.live}
	slices.SortStableFunc(all, closer)
	passed := 0
	for i := range all {
		w := &all[i]
		if w.Does == rules.Passes {
			if passed++; !t.all && (passed > nearest || passed > few && order(w) > alike) {
				out.More++
				continue
			}
		}
		out.Rules = append(out.Rules, of(w))
	}
	var to []target
	for i := range out.Rules {
		if all[i].Does != rules.Passes {
			to = append(to, target{&all[i], &out.Rules[i]})
		}
	}
	var err error
	out.Verdicts, err = t.counts.count(ctx, rec, at, to, true)
	return out, err
}

// closer puts rules first that take the event, then those for its API, then those for one like it; and of these
// the ones first that it misses least.
func closer(a, b rules.Why) int {
	return cmp.Or(
		cmp.Compare(order(&a), order(&b)),
		cmp.Compare(len(a.Unmet), len(b.Unmet)),
		cmp.Compare(b.Met, a.Met),
	)
}

// The orders of rules: for the event's API, for one that is spelled much like it, for others.
const (
	taken = iota
	near
	alike
	far
)

func order(w *rules.Why) int {
	switch {
	case w.Does != rules.Passes:
		return taken
	case w.Near():
		return near
	case w.Alike:
		return alike
	}
	return far
}

// notAtAll takes what no rule counts the event for out of what is said of each.
func notAtAll(all []rules.Why) (why *rules.Reason) {
	for i := range all {
		unmet := all[i].Unmet
		if n := len(unmet); n > 0 && (unmet[n-1].Code == rules.PassTooOld || unmet[n-1].Code == rules.PassNoTime) {
			why, all[i].Unmet = &unmet[n-1], unmet[:n-1]
		}
	}
	return why
}

func of(w *rules.Why) ruleTrace {
	r := ruleTrace{Rule: w.Rule.Name, Does: w.Does.String(), Unmet: w.Unmet, Met: w.Met, Notes: w.Notes, key: string(w.Key)}
	if w.Does == rules.Passes {
		return r
	}
	r.Key = map[string]string{}
	for _, d := range dimsOf(w.Key) {
		r.Key[d.Name] = d.Value
	}
	for i := range w.Hits {
		hit := &w.Hits[i]
		l := hit.Limit
		lt := limitTrace{Limit: l.Name, Amount: hit.Amount, Mode: w.Rule.Mode}
		lt.bound(hit.LimitOf())
		if l.Shadow {
			lt.Mode = verdict.Shadow
		}
		if w.Rule.Count == rules.CountDistinct {
			if lt.distinct = w.Rule.Field; w.Rule.Attr != "" {
				lt.distinct = "attrs." + w.Rule.Attr
			}
		}
		r.Limits = append(r.Limits, lt)
	}
	return r
}

// dimsOf are the dimensions of a key that a rule made.
func dimsOf(key []byte) []event.Dim {
	dims, err := event.ParseKey(key)
	if err != nil {
		return nil // not reached: AppendDim made the text
	}
	return dims
}

// bound sets the limit, which may be rules.Unlimited.
func (lt *limitTrace) bound(limit event.Decimal) { lt.Of, lt.Closed = max(limit, 0), limit == 0 }

// explained fills in what an explanation says of a limit before or after the event.
func (lt *limitTrace) explained(x *rules.Explanation, r *rules.Rule, key []byte) {
	lt.bound(x.Bound())
	lt.Tier, lt.LimitFrom, lt.Mode, lt.InForce = x.Tier, x.LimitFrom, x.Mode, x.Verdict
	if !x.Exempt {
		return
	}
	lt.Exempt = "a command"
	if by := r.ExemptBy(dimsOf(key), x.Latest); by != nil {
		lt.Exempt = exemption(by)
	}
}

// tellsNothing says why a denial tells a limit nothing of a key that stands so; "" where it tells.
func tellsNothing(x *rules.Explanation, at event.Micros) string {
	switch {
	case x.Counted == event.NoTime || x.Count == 0 && x.Verdict == nil:
		return "nothing of it counts"
	case at < x.Counted:
		return toldLater
	}
	return ""
}

const toldLater = "a later event has told its limit"

// exemption says in words what a key is exempt by.
func exemption(by *rules.Exemption) string {
	var parts []string
	for _, d := range by.Key {
		parts = append(parts, d.Name+"="+d.Value)
	}
	if by.List != "" {
		parts = append(parts, "ip in "+by.List)
	} else if by.In.IsValid() {
		parts = append(parts, "ip in "+by.In.String())
	}
	text := strings.Join(parts, " ") + " (" + by.Reason + ")"
	if by.Expires != event.NoTime {
		text += " until " + by.Expires.String()
	}
	return text
}

func now() event.Micros { return event.FromTime(time.Now()) }
