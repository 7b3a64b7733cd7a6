package enforce

import (
	"slices"
	"sync"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// localLimit stands in for a rule while the table is in doubt: a bucket for each key, as GCRA (ITU-T I.371) has it. It takes a lock,
// which other checks don't: in doubt there is nothing better.
type localLimit struct {
	reason reason
	apis   verdict.Verdict // of which only APIs is set
	key    []string        // sorted
	every  float64         // µs until a token is back
	burst  float64         // tokens

	mu   sync.Mutex
	full map[string]event.Micros // by key: when its bucket is full again
}

// maxLocalKeys bounds a limiter's memory. Keys beyond it are let through: they are not those that come again and again.
const maxLocalKeys = 1 << 17

func newLocalLimit(name string, r RuleInDoubt, instances int) *localLimit {
	l := &localLimit{
		reason: reason{rule: name, action: verdict.ActBlock, limit: event.Decimal(r.Limit) * event.One},
		apis:   verdict.Verdict{APIs: slices.Clone(r.APIs)},
		key:    slices.Sorted(slices.Values(r.Key)),
		burst:  float64(max(r.Limit/instances, 1)),
		full:   map[string]event.Micros{},
	}
	if len(l.key) == 0 {
		l.key = []string{dimUID}
	}
	l.every = float64(r.Per.Microseconds()) * float64(instances) / float64(r.Limit)
	return l
}

// take takes a token. ok is false when there is none before until.
func (l *localLimit) take(at event.Micros, api string, dims []event.Dim) (until event.Micros, ok bool) {
	if len(dims) == 0 || !l.apis.Covers(api) {
		return 0, true
	}
	q := query{dims: dims, addr: new(address)}
	var key []event.Dim
	for _, name := range l.key {
		v := q.value(name)
		if v.text == "" && len(v.bytes) == 0 {
			return 0, true
		}
		key = append(key, event.Dim{Name: name, Value: v.text + string(v.bytes)})
	}
	text := event.FormatKey(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	full, known := l.full[text]
	if !known && len(l.full) >= maxLocalKeys {
		l.forget(at)
		if len(l.full) >= maxLocalKeys {
			return 0, true
		}
	}
	full = max(full, at)
	if next := full + event.Micros(l.every); float64(next-at) <= l.burst*l.every+1 {
		l.full[text] = next
		return 0, true
	}
	return full + event.Micros(l.every) - event.Micros(l.burst*l.every), false
}

func (l *localLimit) forget(at event.Micros) {
	for key, full := range l.full {
		if full <= at {
			delete(l.full, key)
		}
	}
}
