package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
)

// Result is the result of a Study. In JSON it is what --json writes.
type Result struct {
	Events int `json:"events"`
	// Malformed lines and records.
	Bad int `json:"bad"`
	// Older than max_lateness when the broker saw them.
	TooOld int `json:"too_old"`
	// That no rule with a sought limit counts.
	Unmatched int `json:"unmatched"`
	// Events whose id a key has counted before.
	Repeats int `json:"repeats"`
	// Limits whose window had ended.
	Late int `json:"late"`
	// With neither a time nor a broker time.
	NoTime int `json:"no_time"`
	// The earliest and the latest event time; null without events.
	From event.Micros `json:"from"`
	To   event.Micros `json:"to"`

	// Of the keys, or of the events, that the suggested limits are to hit.
	Share string `json:"share"`
	// Keys, events.
	Of     string  `json:"of"`
	Limits []Limit `json:"limits"`
	// The rules with the suggested numbers.
	Rules string `json:"rules"`
	// Why not all events were read.
	Stopped string  `json:"stopped,omitempty"`
	Seconds float64 `json:"seconds"`

	tally *replay.Tally
}

// Limit is a sought limit: what was counted under it, and which numbers it may have. A key is over a limit when it has
// counted more in a window; an event is, when its key has with it.
type Limit struct {
	// The limit's name.
	Rule string `json:"rule"`
	// Limit, or of a bucket burst.
	Field string   `json:"field"`
	Key   []string `json:"key"`
	// Over which time it counts, in words.
	Over string `json:"over"`

	// That counted something.
	Keys int `json:"keys"`
	// That added something.
	Events int `json:"events"`
	// Of the keys' highest counts.
	Highest []Quantile `json:"highest"`
	Choices []Choice   `json:"choices"`
	// 0 if nothing was counted.
	Suggest event.Decimal `json:"suggested"`
	// Those with the highest counts.
	Top []Key `json:"top"`
	// Null where the key has a uid.
	Behind *Behind `json:"behind"`

	// Numbers of events are by counts that are rounded up by less than 0.1%.
	Approximate bool     `json:"approximate,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
}

// Quantile is the least number that the highest counts of a share of the keys do not exceed.
type Quantile struct {
	Share string        `json:"share"`
	Count event.Decimal `json:"count"`
}

// Choice is a limit that a share of the keys, or of the events, is over at most.
type Choice struct {
	Share string `json:"share"`
	// Keys, events.
	Of string `json:"of"`
	// The least such limit.
	Least event.Decimal `json:"least"`
	// The next one that people would choose; Keys and Events are over this one.
	Limit event.Decimal `json:"limit"`
	// Over it.
	Keys int `json:"keys"`
	// Over it.
	Events int `json:"events"`
	// Limit as a rule file has it.
	Written string `json:"written"`
}

// Key is a key with a high count.
type Key struct {
	Key string `json:"key"`
	// Count of a window.
	Highest event.Decimal `json:"highest"`
	// The event that it had it with.
	At     event.Micros `json:"at"`
	Events int          `json:"events"`
	// A window, from its first event to its last.
	Average event.Decimal `json:"average"`
	// Hours of the day, in UTC, in which it counted something.
	Hours int `json:"hours"`
	// Uids behind it; above 64 an estimate.
	Users   int `json:"users,omitempty"`
	Without int `json:"without_uid,omitempty"`
}

// Behind counts the top keys by how many users stand behind them.
type Behind struct {
	// That were looked at: those of Limit.Top.
	Keys int `json:"keys"`
	// With ten users or more.
	Many int `json:"many"`
	One  int `json:"one"`
	// Without any uid.
	None int `json:"none"`
	// In words.
	Says string `json:"says"`
}

// Wish is the share that suggested limits are to hit.
type Wish struct {
	Share string
	// Of the events, not of the keys.
	Events bool
}

// DefaultWish is the Wish of those who have none.
var DefaultWish = Wish{Share: "0.1%"}

const (
	ofKeys   = "keys"
	ofEvents = "events"
	topKeys  = 10
)

var (
	shares    = []string{"1%", "0.1%", "0.01%"}
	quantiles = []string{"50%", "90%", "99%", "99.9%", "99.99%"}
)

// percent is all of a share in percent, as ParseShare reads it.
const percent = event.One / 100

// ParseShare reads a share such as 0.1%.
func ParseShare(text string) (event.Decimal, error) {
	number, isShare := strings.CutSuffix(text, "%")
	d, err := event.ParseDecimal(number)
	if !isShare || err != nil || d <= 0 || d > 100*event.One || d%(event.One/percent) != 0 {
		return 0, fmt.Errorf("--share: %q is no percentage up to 100%%, of at most four digits behind the point: write it as 0.1%%", text)
	}
	return d / (event.One / percent), nil
}

// of is a share of a number, rounded down.
func of(share event.Decimal, n int) int { return int(share) * n / int(event.One) }

// Result returns the result. Call it once, after Read.
func (s *Study) Result(wish Wish) (*Result, error) {
	if _, err := ParseShare(wish.Share); err != nil {
		return nil, err
	}
	t := s.Comparison.Result().Tally
	r := &Result{
		Events: t.Events, Bad: t.Bad, TooOld: t.TooOld, Unmatched: t.Unmatched, Repeats: t.Repeats, Late: t.Late, NoTime: t.NoTime,
		From: t.From, To: t.To, Share: wish.Share, Of: ofKeys, tally: t,
	}
	if wish.Events {
		r.Of = ofEvents
	}
	for _, m := range s.measures {
		m.finish()
		r.Limits = append(r.Limits, m.result(r))
	}
	var err error
	r.Rules, err = fill(s.draft, r.Limits)
	return r, err
}

// result reads a limit's measure, which is finished.
func (m *measure) result(r *Result) Limit {
	out := Limit{
		Rule: m.limit.Name, Field: "limit", Key: m.limit.Rule.Shape.Dims, Over: rules.Over(m.limit), Keys: len(m.keys), Events: m.counts.events(),
		Approximate: m.counts.coarse, Highest: []Quantile{}, Choices: []Choice{}, Top: []Key{},
	}
	if m.sought.Burst {
		out.Field = "burst"
	}
	if out.Keys == 0 {
		out.Warnings = []string{"no event was counted: nothing can be suggested"}
		return out
	}
	high := make([]event.Decimal, 0, len(m.keys))
	for _, k := range m.keys {
		high = append(high, m.highest(k))
	}
	slices.Sort(high)
	for _, share := range quantiles {
		parsed, _ := ParseShare(share)
		rank := (int(parsed)*len(high) + int(event.One) - 1) / int(event.One) // nearest rank: the least that so many do not exceed
		out.Highest = append(out.Highest, Quantile{share, high[max(rank, 1)-1]})
	}
	out.Highest = append(out.Highest, Quantile{"100%", high[len(high)-1]})
	for _, of := range []string{ofKeys, ofEvents} {
		for _, share := range shares {
			out.Choices = append(out.Choices, m.choose(share, of))
		}
	}
	chosen := m.choose(r.Share, r.Of)
	out.Suggest = chosen.Limit
	out.Top = m.top()
	out.Behind = m.behind(out.Top)
	m.warn(&out, r, &chosen)
	return out
}

// choose returns the limit for a share. The share is of those that were counted under this very limit, rounded down: of
// 240 keys 1% are two.
func (m *measure) choose(share, by string) Choice {
	parsed, _ := ParseShare(share)
	c := Choice{Share: share, Of: by}
	if by == ofEvents {
		c.Least = m.leastForEvents(of(parsed, m.counts.events()))
	} else {
		c.Least = m.leastForKeys(of(parsed, len(m.keys)))
	}
	c.Limit = m.round(c.Least)
	c.Keys, c.Events, c.Written = m.keysOver(c.Limit), m.eventsOver(c.Limit), written(c.Limit)
	return c
}

// top returns the keys with the highest counts, the highest first, and those with equal ones by name: two runs over the
// same events print the same.
func (m *measure) top() []Key {
	type named struct {
		name string
		*keyCounts
	}
	all := make([]named, 0, len(m.keys))
	for name, k := range m.keys {
		all = append(all, named{name, k})
	}
	slices.SortFunc(all, func(a, b named) int {
		return cmp.Or(cmp.Compare(m.highest(b.keyCounts), m.highest(a.keyCounts)), cmp.Compare(a.name, b.name))
	})
	out := []Key{}
	for _, k := range all[:min(len(all), topKeys)] {
		one := Key{Key: k.name, Highest: m.highest(k.keyCounts), At: k.at, Events: k.events, Average: m.average(k.keyCounts)}
		for hours := k.hours; hours > 0; hours &= hours - 1 {
			one.Hours++
		}
		if m.users {
			one.Users, one.Without = k.users.count(), k.users.absent
		}
		out = append(out, one)
	}
	return out
}

// average is a key's mean count in a window, over the time from its first event to its last. Beside the highest count it
// shows a burst: many people together have a mean that is not far below it.
func (m *measure) average(k *keyCounts) event.Decimal {
	windows := float64(k.last-k.first)/float64(m.limit.PerMin) + 1
	return event.Decimal(float64(k.total)/windows/float64(hundredth)) * hundredth
}

// hundredth rounds what is shown.
const hundredth = event.One / 100

// many users on a key make it a shared one. A family or a person's devices are fewer.
const many = 10

// behind tells, by the top keys, whether many people stand behind one key.
func (m *measure) behind(top []Key) *Behind {
	if !m.users {
		return nil
	}
	b := &Behind{Keys: len(top)}
	for _, k := range top {
		switch {
		case k.Users >= many:
			b.Many++
		case k.Users == 1:
			b.One++
		case k.Users == 0:
			b.None++
		}
	}
	b.Says = fmt.Sprintf("of the %d top keys %d have %d or more uids behind them, %d have one, and %d have none", b.Keys, b.Many, many, b.One, b.None)
	switch {
	case 2*b.Many >= b.Keys:
		b.Says += ": people share these keys, and such a limit would hit all behind one. Count by uid as well"
	case 2*b.One >= b.Keys:
		b.Says += ": most are one user each"
	case 2*b.None >= b.Keys:
		b.Says += ": the events do not tell"
	}
	return b
}

// fewWindows are too few to tell anything: of less, the highest count is that of one day, or of one sale.
const fewWindows = 5

// warn lists why the numbers may mislead.
func (m *measure) warn(out *Limit, r *Result, chosen *Choice) {
	add := func(format string, args ...any) { out.Warnings = append(out.Warnings, fmt.Sprintf(format, args...)) }
	if span := r.To - r.From; span < fewWindows*m.limit.PerMin {
		add("the events span %s, which is less than %d windows: more of them tell more", spanText(span), fewWindows)
	}
	share, _ := ParseShare(r.Share)
	n := out.Keys
	if r.Of == ofEvents {
		n = out.Events
	}
	if of(share, n) == 0 {
		add("%s of %s is less than one: the number is above all that was counted", r.Share, words.Plural(n, strings.TrimSuffix(r.Of, "s")))
	}
	if chosen.Least > m.most() {
		add("the limit can be at most %v", m.most())
	}
	w, high := &m.limit.Window, out.Highest[len(out.Highest)-1].Count
	switch many := high > maxExact; {
	case !w.Distinct || !many:
	case w.Estimates():
		add("above %v distinct values counts are estimates", maxExact)
	default:
		add("this window counts no more than %v distinct values", maxExact)
	}
	if out.Approximate {
		add("there are more than %d different counts: those of events are rounded up, by less than 0.1%%", maxCounts)
	}
}
