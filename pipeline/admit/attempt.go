package admit

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
	"github.com/tallygate/tallygate/pipeline/admit/limits"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// attempt is one request on its way to a permit.
type attempt struct {
	a     *Admitter
	r     Request
	e     event.Event
	attrs [8]event.Attr

	instance *instance.Permit // what it holds under this process' limits
	allowed  *instance.Result // these limits have let it in
	asks     []ask
	movedAt  int     // the one of them that other rules are in force for
	passed   []place // in doubt, and let through
	gaveUp   int     // ids of the request's own name that were given back
	inDoubt  string  // why
	failed   error   // of the last question
	local    []share
	inLine   bool // its turn has come
	line     line
	turn     uint64 // of the spares of the key that it asks for
}

// ask asks for one key.
type ask struct {
	protocol.Ask
	v        *version
	by       []*rules.Limit // of Wants
	inFlight bool           // asked apart: it is given back at the end, and the rest by the event
	turn     uint64         // of the key's spares; 0: none are for it
	sent     protocol.Clock // the last question
}

// place is a key as requests ask for it.
type place struct {
	key      string
	inFlight bool
}

// maxKeys bounds the keys of a request's permits: so many an event may name.
const maxKeys = event.MaxPermitKeys

// maxVersions bounds the new beginnings of a request because other rules are in force.
const maxVersions = 3

// event is the event that the request will be, as far as it is known.
func (r *Request) event(attrs []event.Attr) event.Event {
	return limits.Event(append(attrs, r.Attrs...), r.API, r.Dims, r.Cost)
}

// end makes the attempt ready for another request.
func (t *attempt) end() {
	clear(t.asks)
	*t = attempt{a: t.a, asks: t.asks[:0]}
	t.a.attempts.Put(t)
}

// run is one try. It leaves in line where to wait before the next one.
func (t *attempt) run(ctx context.Context) (*Permit, error) {
	t.line = line{}
	if t.e.API == "" {
		t.e = t.r.event(t.attrs[:0])
	}
	p := t.a.book.current.Load()
	if p == nil {
		return t.unknown(), nil
	}
	if denied := t.askInstance(p); denied != nil {
		return denied, nil
	}
	for try := 0; ; try++ {
		spare, doubted := t.gather(p, try)
		switch {
		case spare != nil:
			return spare, nil
		case doubted != nil:
			return doubted, nil
		case t.line.behind:
			return nil, nil //nolint:nilnil // it waits first
		case len(t.asks) == 0:
			return t.permit(""), nil
		}
		permit, again, err := t.ask(ctx, p)
		if permit != nil || err != nil {
			return permit, err
		}
		if again == moved && try >= maxVersions {
			if denied := t.doubt(&t.asks[t.movedAt], "the rules keep changing"); denied != nil {
				return denied, nil
			}
		}
		p = t.a.book.current.Load()
	}
}

// unknown is while the rules are not known.
func (t *attempt) unknown() *Permit {
	const why = "the rules are not known yet"
	if t.a.cfg.OnDoubt == Closed {
		return t.denyInDoubt(nil, "", why)
	}
	t.logDoubt(letIn, nil, why)
	t.inDoubt = why
	return t.permit("")
}

// askInstance asks the limits of this process, once.
func (t *attempt) askInstance(p *page) *Permit {
	if p.instance == nil || t.allowed != nil {
		return nil
	}
	res, held := p.instance.Admit(&t.e)
	if res.Allowed {
		t.allowed, t.instance = &res, held
		return nil
	}
	held.Done()
	key := keyOf(res.Limit, &t.e)
	return t.deny(res.Limit, key, res.Numbers, t.e.Cost, "")
}

// keyOf is the key of a limit of this process.
func keyOf(l *rules.Limit, e *event.Event) string {
	if l == nil {
		return ""
	}
	var text []byte
	for _, dim := range l.Rule.Shape.Dims {
		if value, ok := e.Dim(dim); ok {
			text = event.AppendDim(text, dim, value)
		}
	}
	return string(text)
}

// gather makes the questions, by the rules of each key's partition. It returns a permit that was granted
// ahead, if there is one, or a denial of what nobody can ask for.
func (t *attempt) gather(p *page, try int) (spare, denied *Permit) {
	t.asks, t.turn = t.asks[:0], 0
	if len(p.inUse) == 0 {
		return nil, nil
	}
	now := t.a.now()
	id := t.r.ID
	switch {
	case id == "" && try == 0 && len(p.inUse) == 1: // it may not need one
	case id == "":
		id = t.a.newID()
	case t.gaveUp > 0: // what was given back is not granted again
		id = fmt.Sprint(id, "~", t.gaveUp)
	}
	for _, v := range p.inUse {
		q := v.requests.Get().(*rules.Requests)
		if q.Concern(t.e.API) {
			spare, denied = t.gatherBy(p, v, q, id, now)
		}
		v.requests.Put(q)
		if spare != nil || denied != nil {
			return spare, denied
		}
	}
	if len(t.asks) > maxKeys {
		return nil, t.refuse(t.asks[0].by[0], t.asks[0].Key, uncountable, fmt.Sprintf("it would need permits for %d keys, at most %d are possible", len(t.asks), maxKeys))
	}
	slices.SortFunc(t.asks, func(a, b ask) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(len(a.IDs[0]), len(b.IDs[0])))
	})
	return nil, nil
}

// uncounted says why nobody knows what a request will add to a limit. Its event may add something. All
// of it is the caller's doing, so the request is refused: a caller must not choose to be in doubt.
var uncounted = map[string]string{
	rules.SkipAbsent:   "what it sums is absent",
	rules.SkipNumber:   "what it sums is no number",
	rules.SkipNegative: "what it sums is negative",
	rules.SkipFraction: "its cost comes to no whole number",
	rules.SkipKey:      "its key is too long",
	rules.SkipLimit:    "the attribute that tells the limit is absent, or no limit",
}

func (t *attempt) gatherBy(p *page, v *version, q *rules.Requests, id string, now protocol.Clock) (spare, denied *Permit) {
	wants := q.Wants(&t.e, event.NoTime)
	for _, s := range q.Skipped {
		if says := uncounted[s.Reason]; says != "" {
			why := "the rule " + s.Rule.Name + " cannot count the request: " + says
			if s.Reason == rules.SkipAbsent {
				why = "the request lacks the attribute " + s.Rule.Attr + ", which the rule " + s.Rule.Name + " sums"
			}
			return nil, t.refuse(s.Rule.Limits[0], "", uncountable, why)
		}
	}
	n := 1
	if v == p.newest && len(p.inUse) == 1 && t.r.ID == "" && !t.inLine {
		if ahead := aheadOf(wants); ahead > 0 && p.of[p.partition(wants[0].Hash)] == v {
			if spare, n = t.spare(p, v, wants, ahead, now); spare != nil {
				return spare, nil
			}
		}
	}
	if id == "" && len(wants) > 0 {
		id = t.a.newID()
	}
	for i := range wants {
		w := &wants[i]
		partition := p.partition(w.Hash)
		if w.Exempt || p.of[partition] != v || t.hasPassed(w) {
			continue
		}
		one := t.askFor(v, w, partition, id)
		l := v.limits[w.Limit]
		one.Wants, one.by = append(one.Wants, l.Want(w, now.Wall)), append(one.by, w.Limit)
		if !t.inLine {
			t.behind(w)
		}
	}
	if len(t.asks) == 1 {
		one := &t.asks[0]
		one.turn = t.turn
		for len(one.IDs) < n {
			one.IDs = append(one.IDs, t.a.newID())
		}
	}
	return nil, nil
}

func (t *attempt) hasPassed(w *rules.Want) bool {
	return slices.ContainsFunc(t.passed, func(p place) bool { return p.inFlight == w.Limit.InFlight && p.key == string(w.Key) })
}

// askFor returns the question that a want belongs to.
func (t *attempt) askFor(v *version, w *rules.Want, partition int32, id string) *ask {
	for i := range t.asks {
		if one := &t.asks[i]; one.inFlight == w.Limit.InFlight && one.Key == string(w.Key) {
			return one
		}
	}
	one := ask{v: v, inFlight: w.Limit.InFlight, Ask: protocol.Ask{
		Partition: partition, Key: string(w.Key), IDs: []string{id}, Version: v.number, Named: t.r.ID != "",
	}}
	switch {
	case one.inFlight: // it has no event that could be taken for another one's
		one.IDs[0] += inFlightID
	case one.Named: // for as long as the owner knows that it was counted
		one.Remember, one.Renews = v.set.RecentFor, isOurs(t.r.ID)
	}
	t.asks = append(t.asks, one)
	return &t.asks[len(t.asks)-1]
}

// aheadOf is within which time permits for all of the wants may be used, if they are of one key; 0 if
// they are not, or may not be asked for ahead.
func aheadOf(wants []rules.Want) (ahead event.Micros) {
	for i := range wants {
		w := &wants[i]
		own := w.Limit.Rule.Strict.Ahead
		if own == 0 || w.Exempt || w.Limit.InFlight || i > 0 && !bytes.Equal(w.Key, wants[0].Key) {
			return 0
		}
		if ahead == 0 || own < ahead {
			ahead = own
		}
	}
	return ahead
}

// permit makes a permit that lets the request in.
func (t *attempt) permit(id string) *Permit {
	p := &Permit{ID: id, a: t.a}
	if t.allowed != nil {
		p.By, p.Numbers = t.allowed.Limit, t.allowed.Numbers
	}
	t.admit(p)
	return p
}

// admit makes a permit one that lets the request in.
func (t *attempt) admit(p *Permit) {
	p.Admitted, p.InDoubt, p.Reason = true, t.inDoubt != "", t.inDoubt
	if t.instance != nil || len(t.local) > 0 {
		x := p.change()
		x.instance, x.local = t.instance, t.local
	}
	if t.a.cfg.Events != nil {
		e := t.e.Clone() // the attempt's memory is another one's next
		e.ID, e.Time = cmp.Or(p.ID, t.r.ID), event.FromTime(time.Now())
		if e.ID == "" {
			e.ID = t.a.newID()
		}
		p.change().event = &e
	}
}

// deny makes a permit that does not, and says where the request may wait.
func (t *attempt) deny(by *rules.Limit, key string, n Numbers, amount event.Decimal, why string) *Permit {
	if by != nil && by.Rule.Action == verdict.ActThrottle && n.RetryAfter > 0 && n.RetryAfter != Never && t.maxDelay() >= 0 {
		t.line = lineOf(by, key, n, amount)
	}
	return &Permit{a: t.a, By: by, Key: key, Numbers: n, Reason: why}
}

func (t *attempt) denyInDoubt(by *rules.Limit, key, why string) *Permit {
	t.logDoubt("a strict limit is in doubt, and requests are denied", by, why)
	return &Permit{a: t.a, By: by, Key: key, InDoubt: true, Reason: why, Numbers: Numbers{Limited: true, RetryAfter: time.Second}}
}

const letIn = "a strict limit is in doubt, and requests are let in"

// logDoubt logs a message now and then.
func (t *attempt) logDoubt(message string, by *rules.Limit, why string) {
	left, due := t.a.doubts.Due()
	if !due {
		return
	}
	about := []any{"rule", "", "reason", why, "left_out", left}
	if by != nil {
		about[1] = by.Rule.Name
	}
	if t.failed != nil {
		about = append(about, "error", t.failed)
	}
	t.a.cfg.Logger.Warn(message, about...)
}
