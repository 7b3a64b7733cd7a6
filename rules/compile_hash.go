package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// setHash is of the source and of the zone data that goes with this program.
func setHash(src []byte, files map[string][]byte) [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "tallygate rule set 1\x00zones %s\x00", windows.ZoneVersion)
	h.Write(src)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "\x00file %q %x", name, sha256.Sum256(files[name]))
	}
	return [32]byte(h.Sum(nil))
}

// sectionHash is of all that gives a limit's counters their meaning. The limit's number is
// not in it, so that a changed limit is judged against the counters there are.
func sectionHash(l *Limit) SectionHash { return sectionHashOf(l, &l.Window) }

// formerSections are those of which the counters are carried over: a sliding window's exact times, or its
// panes, and both with refunds or without.
func formerSections(l *Limit) (out []former) {
	add := func(w windows.Spec) {
		for _, refunds := range []bool{false, true} {
			w.Refunds = refunds
			if f := (former{sectionHashOf(l, &w), w}); f.hash != l.Hash && w.Validate() == nil {
				out = append(out, f)
			}
		}
	}
	add(l.Window)
	if former := windowKinds[l.Window.Kind].former; former != nil {
		for _, w := range former(l) {
			if w.Validate() == nil {
				add(w)
			}
		}
	}
	return out
}

func sectionHashOf(l *Limit, w *windows.Spec) SectionHash {
	h := sha256.New()
	fmt.Fprintf(h, "tallygate section 1\x00%q\x00%q\x00", l.Name, l.Rule.Shape.Dims)
	fmt.Fprintf(h, "count %d %q\x00", l.Rule.Count, l.Rule.Attr)
	if l.Rule.Count == CountDistinct {
		fmt.Fprintf(h, "distinct %q %t\x00", l.Rule.Field, w.Estimate)
	}
	if w.Refunds {
		fmt.Fprint(h, "refunds\x00")
	}
	if l.InFlight {
		fmt.Fprint(h, inFlight)
		return SectionHash(h.Sum(nil))
	}
	fmt.Fprint(h, windowKinds[w.Kind].hash(w))
	return SectionHash(h.Sum(nil))
}

// finish makes what follows from the rules as a whole.
func (s *Set) finish() {
	for _, r := range s.all {
		r.exemptKeys = newExemptIndex(r.exempt)
	}
	for _, l := range s.Limits {
		l.plain, l.quietTo, l.nearFrom = l.isPlain(), l.quietest(), nearest(l)
		l.Strict = l.Rule.Strict != nil && l.Rule.Mode != verdict.Shadow && !l.Shadow
		l.judged, l.displayHashes = judgedHash(l), [2]uint32{displayHash(l, false), displayHash(l, true)}
		if l.Strict { // an event may still come for a permit that was counted as lost
			s.RecentFor = max(s.RecentFor, s.MaxLateness)
		}
	}
}

// judgedHash is of what counts are judged by.
func judgedHash(l *Limit) JudgedBy {
	h := sha256.New()
	t := &l.Rule.Then
	fmt.Fprintf(h, "%d %d %d %t %t %t %v %d\x00", l.threshold(), hashedCandidate(l), l.Window.Limit, t.None, t.UntilReset, t.reached(), t.Steps, l.Rule.Mode)
	if l.Window.Most > 0 {
		fmt.Fprintf(h, "most %d\x00", l.Window.Most)
	}
	for _, tier := range l.Tiers {
		fmt.Fprintf(h, "tier %d %q\x00", hashedLimit(tier.Limit), tier.text)
	}
	if l.Told != nil {
		fmt.Fprintf(h, "told %q %d\x00", l.Told.Attr, l.Told.Most)
	}
	for _, o := range l.Overrides() {
		fmt.Fprintf(h, "override %q %d %d\x00", o.Key, hashedLimit(o.Limit), o.Until)
	}
	for _, e := range l.Rule.exempt {
		fmt.Fprintf(h, "exempt %q %d\x00", e.Key, e.Expires)
		if e.ofNetwork() {
			fmt.Fprintf(h, "in %v %x\x00", e.In, e.list.Hash())
		}
	}
	return JudgedBy(h.Sum(nil))
}

// hashedLimit is a limit as the hash has it: 0 was unlimited before there were limits of 0.
func hashedLimit(limit event.Decimal) event.Decimal {
	switch limit {
	case Unlimited:
		return 0
	case 0:
		return Unlimited
	}
	return limit
}

func hashedCandidate(l *Limit) event.Decimal {
	if l.Tries {
		return hashedLimit(l.Candidate)
	}
	return 0
}

// displayHash is of what a verdict shows besides its numbers and times; never 0.
func displayHash(l *Limit, shadow bool) uint32 {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d %t %q", l.Name, l.Rule.Then.Action, shadow || l.Shadow || l.Rule.Mode == verdict.Shadow, l.Rule.APIs)
	if l.Rule.Public != "" {
		fmt.Fprintf(h, " public %q", l.Rule.Public)
	}
	return binary.LittleEndian.Uint32(h.Sum(nil)) | 1
}

// indexAPIs makes what finds the rules that count an API's events.
func indexAPIs(rules []*Rule) *apiIndex[*Rule] {
	ix := newAPIIndex[*Rule]()
	for _, r := range rules {
		r.indexInto(ix, r.Index)
		r.indexResets(ix)
	}
	return ix
}

// indexInto adds the rule's APIs to an index.
func (r *Rule) indexInto(ix *apiIndex[*Rule], order int) {
	for place, a := range r.match.apis {
		entry := apiEntry[*Rule]{rule: r, order: order, weight: a.weight, place: place, limited: r.match.takes(event.OutcomeLimited), apiOnly: r.match.apiOnly()}
		entry.unit, _ = countAmount(event.One, a.weight)
		ix.add(a.pattern, entry)
	}
}
