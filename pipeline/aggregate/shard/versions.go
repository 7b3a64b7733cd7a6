package shard

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// Enforcers ask for permits by a version of the rules, and are told when the partition counts by another
// one. So the version is in the verdict topic as well: behind the levels of all keys with limits that
// became strict, of which nobody has said so far what they have counted. These levels go out while the
// keys are judged by the new rules. Enforcers ask by the version before until then, also under limits
// that the new rules lack: levels name these, so that none is taken for unused. A version is in the changelog
// before it is in the verdict topic: who takes over behind a crash knows of each by which they may ask.

// sayingKey is the key of the changelog's record of the version that was said last, or is about to be.
const sayingKey = "\x00saying"

// announcement is a due statement about the rules.
type announcement struct {
	said   spoken             // last, and durable
	saying spoken             // what the changelog named when the partition was taken over
	heard  []spoken           // by which enforcers may ask: the last one, and those on their way
	set    *rules.Set         // the present one
	gone   []protocol.Section // limits of heard that it lacks, for levels that come before its version

	pass bool   // limits became strict: the pass over all keys publishes their levels
	due  *Rules // to be said behind the levels that were queued before

	queued, taken  int // levels, since the shard was made
	asked, durable int // their states
	behindQueued   int // due waits until so many are taken
	behindAsked    int // and then until so many are durable; -1: these are not known yet
}

// spoken is a version of the rules that was said.
type spoken struct {
	name   string   // see Rules.name
	number uint64   // see Rules.Published
	limits []string // the strict ones that levels are of, by their names there
}

// sayingRecord is the content of the record at sayingKey.
type sayingRecord struct {
	Name   string   `json:"name"`
	Number uint64   `json:"version"`
	Limits []string `json:"limits"`
}

func spokenOf(r *Rules) spoken {
	is := spoken{name: r.name(), number: r.Published}
	for _, l := range r.Set.Limits {
		if l.Strict && !l.InFlight {
			is.limits = append(is.limits, l.Hash.String())
		}
	}
	return is
}

// lacks lists the limits that a set has no more. Until its version is said, enforcers ask under them, and its
// levels say nothing of them.
func (v *spoken) lacks(set *rules.Set) (gone []protocol.Section) {
	for _, name := range v.limits {
		if hash, ok := limitHash(name); ok && set.StrictLimit(hash) == nil {
			gone = append(gone, protocol.Gone(name, v.number))
		}
	}
	return gone
}

// limitHash reads a limit's name in levels and permits.
func limitHash(name string) (hash rules.SectionHash, ok bool) {
	return hash, unhex(hash[:], name) == nil
}

// name tells versions apart, also those that are in no topic.
func (r *Rules) name() string { return fmt.Sprintf("%d %s", r.Published, r.hash()) }

// becomeStrict reports whether a set has strict limits that another one has not, or whose levels it calls
// otherwise; of no set, any.
func becomeStrict(now, before *rules.Set) bool {
	for _, l := range now.Limits {
		if !l.Strict {
			continue
		}
		if before == nil {
			return true
		}
		if same := before.StrictLimit(l.Hash); same == nil || same.Hash != l.Hash {
			return true
		}
	}
	return false
}

// Said is the version of the rules that enforcers ask by: it is durable in the verdict topic.
func (l *Levels) Said() uint64 { return l.announced.said.number }

// announce notes that another version is in force from here on. It reports whether a pass over all keys has to publish
// their levels first.
func (l *Levels) announce(before *rules.Set) (pass bool) {
	a := &l.announced
	was := before != nil && before.NewPermits() != nil
	a.set = l.rules.Set
	a.lack()
	switch {
	case !l.on && !was && a.said.name == "", a.said.name == l.rules.name():
		return false
	case becomeStrict(l.rules.Set, before):
		a.pass, a.due = true, nil
		return true
	case !a.pass:
		l.say()
	}
	return false
}

// say has the version said behind all levels that wait.
func (l *Levels) say() {
	a := &l.announced
	r := l.rules.Rules // a copy: newer ones may come first
	a.due, a.behindQueued, a.behindAsked = &r, a.queued, -1
	l.sayIfDue()
}

// sayIfDue says the version when all levels before it are on their way.
func (l *Levels) sayIfDue() {
	a := &l.announced
	if a.due == nil || a.taken < a.behindQueued {
		return
	}
	if a.behindAsked < 0 {
		a.behindAsked = a.asked
	}
	if a.durable < a.behindAsked {
		return
	}
	is := spokenOf(a.due)
	value, err := json.Marshal(sayingRecord{is.name, is.number, is.limits})
	if err != nil {
		panic(err) // of texts and a number
	}
	a.due = nil
	if !slices.ContainsFunc(a.heard, func(v spoken) bool { return v.name == is.name }) {
		a.heard = append(a.heard, is)
	}
	a.lack()
	l.log.out.States = append(l.log.out.States, Append{Key: []byte(sayingKey), Value: value, Urgent: true, Ack: &Ack{saying: &is}})
}

// says takes in that a version goes out: levels behind it need not name what the ones before had.
func (a *announcement) says(is *spoken) {
	if i := slices.IndexFunc(a.heard, func(v spoken) bool { return v.name == is.name }); i > 0 {
		a.heard = a.heard[i:]
	}
	a.lack()
}

// lack notes what levels say of limits that the present rules have no more.
func (a *announcement) lack() {
	a.gone = nil
	for i := range a.heard {
		a.gone = append(a.gone, a.heard[i].lacks(a.set)...)
	}
}

func (a *announcement) load(value []byte) error {
	var rec sayingRecord
	if err := json.Unmarshal(value, &rec); err != nil {
		return fmt.Errorf("%w: which version of the rules is said: %w", ErrFinal, err)
	}
	a.saying = spoken{rec.Name, rec.Number, rec.Limits}
	return nil
}

// resumes takes over what the last checkpoint says. It may be of before the last version was said.
func (a *announcement) resumes(said spoken) {
	a.said, a.heard = said, []spoken{said}
	if a.saying.name != "" && a.saying.name != said.name {
		a.heard = append(a.heard, a.saying)
	}
}
