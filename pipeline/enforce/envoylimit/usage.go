package envoylimit

import (
	"cmp"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Usage marks descriptors that report: they ask for nothing, but say that an action happened, and how much it used.
// Gateways send such requests when a model's answer has ended, with its tokens as hits_addend. The zero value marks
// none.
type Usage struct {
	// Domain is that of requests whose descriptors report if they have hits_addend, or the request has, above 0. Gateways
	// that ask and report alike ask with 0. "" is no domain.
	Domain string
	// Entries mark single descriptors of any domain: one with such an entry, of this name and value, reports, of 0, too.
	Entries map[string]string

	// Quotas are the reports of the rate limit quota service: see RegisterQuotas.
	Quotas bool

	// Attr names an attribute of the event that is the amount, as a number, for rules that sum one. "" is none: the
	// amount is the event's cost only.
	Attr string

	// Events gets the event of each report. It has to send a cost of 0 as it is, which is AsIs of emit.Config. Required
	// for Domain, Entries and Quotas.
	Events httplimit.Emitter
	// Reported is called for each report; nil is no call.
	Reported func(Reported)
}

// Reported is the result of a report, as a label.
type Reported string

// The results of reports. Those behind Dropped are wrong: of them there is no event.
const (
	Emitted   Reported = "emitted"
	WithoutID Reported = "without_id" // emitted; sent again, it counts again
	BadPermit Reported = "bad_permit" // emitted, without the permit, which cannot be read
	Dropped   Reported = "dropped"    // not taken: the queue to Kafka is full, or no event can be made of it

	NoAPI    Reported = "no_api"
	NoKey    Reported = "no_key"    // no dimension says whose it is
	Negative Reported = "negative"  // only an event that names another one takes something back
	TooLarge Reported = "too_large" // more than an event's cost can be
)

// AllReported are the results of reports.
func AllReported() []Reported {
	return []Reported{Emitted, WithoutID, BadPermit, Dropped, NoAPI, NoKey, Negative, TooLarge}
}

// On reports whether anything could report.
func (u *Usage) On() bool { return u.Domain != "" || len(u.Entries) > 0 || u.Quotas }

// marks reports whether a descriptor reports, and of how many hits.
func (u *Usage) marks(domain string, d *ratelimitv3.RateLimitDescriptor, hits uint32) (n uint64, reports bool) {
	n = uint64(hits)
	if own := d.GetHitsAddend(); own != nil {
		n = own.GetValue()
	}
	if u.Domain != "" && domain == u.Domain && n > 0 {
		return n, true
	}
	for _, e := range d.GetEntries() {
		if value, ok := u.Entries[e.GetKey()]; ok && value == e.GetValue() {
			return n, true
		}
	}
	return 0, false
}

// report emits the event of a report, if it is one.
func (u *Usage) report(said described, negative bool, hits uint64) {
	result := u.emit(said, negative, hits)
	if u.Reported != nil {
		u.Reported(result)
	}
}

func (u *Usage) emit(said described, negative bool, hits uint64) Reported {
	switch {
	case said.api == "":
		return NoAPI
	case len(said.dims) == 0:
		return NoKey
	case negative && hits > 0:
		return Negative
	case hits > uint64(event.MaxDecimal/event.One):
		return TooLarge
	}
	e := event.Event{
		API: said.api, ID: said.id, Outcome: cmp.Or(said.outcome, event.OutcomeSuccess), Cost: event.Decimal(hits) * event.One,
		Time: event.FromTime(time.Now()), BrokerTime: event.NoTime,
	}
	for _, dim := range said.dims {
		switch name, isAttr := strings.CutPrefix(dim.Name, "attrs."); {
		case isAttr && name != u.Attr:
			e.Attrs = append(e.Attrs, event.Attr{Name: name, Value: event.StringValue(dim.Value)})
		case dim.Name == "uid":
			e.UID = dim.Value
		case dim.Name == "ip":
			e.IP, _ = event.ParseAddress(dim.Value)
		}
	}
	if u.Attr != "" {
		e.Attrs = append(e.Attrs, event.Attr{Name: u.Attr, Value: event.NumberValue(e.Cost)})
	}
	result := Emitted
	if said.id == "" {
		result = WithoutID
	}
	var err error
	if e.Permit, err = event.ParsePermit(said.permit); err != nil {
		e.Permit, result = event.Permit{}, BadPermit
	}
	if !u.Events.Emit(e) {
		return Dropped
	}
	return result
}

// described has the entries of a descriptor by their meaning.
type described struct {
	api, method, path string
	dims              []event.Dim

	id, outcome, permit string // of a report
}

// text returns the field for entries of a meaning; nil if that is no field, but a dimension or unknown.
func (d *described) text(meaning string) *string {
	switch meaning {
	case "api":
		return &d.api
	case "method":
		return &d.method
	case "path":
		return &d.path
	case "id":
		return &d.id
	case "outcome":
		return &d.outcome
	case "permit":
		return &d.permit
	}
	return nil
}
