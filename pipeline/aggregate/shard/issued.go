package shard

import (
	"slices"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// A verdict is never lost, and never without its state. The state is written first, with the
// verdict in it marked unpublished. Only when that is durable does the verdict go out, with the
// record's offset as its seq. Once it is out too, the key's next write drops the mark.

// issuedVerdicts are the verdicts between the two acknowledgements, by key, oldest first.
type issuedVerdicts map[string][]*issued

type issued struct {
	unpublished
	v      verdict.Verdict
	broker event.Micros // of the event that caused it
	traced *Traced      // nil: it was not traced
}

// of returns a key's unpublished verdicts, oldest first.
func (m issuedVerdicts) of(key []byte) []unpublished {
	list := m[string(key)]
	if len(list) == 0 {
		return nil
	}
	out := make([]unpublished, len(list))
	for i, is := range list {
		out[i] = is.unpublished
	}
	return out
}

// remove reports whether it was the key's last one.
func (m issuedVerdicts) remove(key string, is *issued) (last bool) {
	list := slices.DeleteFunc(m[key], func(x *issued) bool { return x == is })
	if len(list) > 0 {
		m[key] = list
		return false
	}
	delete(m, key)
	return true
}

// cloneVerdict copies what a Step's result shares with its buffers.
func cloneVerdict(v *verdict.Verdict) verdict.Verdict {
	c := *v
	c.Key = make([]event.Dim, len(v.Key))
	for i, d := range v.Key {
		c.Key[i] = event.Dim{Name: strings.Clone(d.Name), Value: strings.Clone(d.Value)}
	}
	c.APIs = slices.Clone(v.APIs)
	c.Cause.ID = strings.Clone(v.Cause.ID)
	return c
}

// lastOfEach leaves out what is replaced at once, as where a rule's window is another one and its
// first event is over the limit: what the old one had in force is cleared, and a block is issued.
// Both would have one seq, and readers keep what came first. Notices are each of their own.
func lastOfEach(changes []verdict.Verdict) []verdict.Verdict {
	replaced := func(i int) bool {
		return changes[i].State != verdict.Warn && slices.ContainsFunc(changes[i+1:], func(v verdict.Verdict) bool {
			return v.State != verdict.Warn && v.Rule == changes[i].Rule
		})
	}
	kept := changes[:0:0]
	for i := range changes {
		if !replaced(i) {
			kept = append(kept, changes[i])
		}
	}
	return kept
}
