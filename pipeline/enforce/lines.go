package enforce

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/pipeline/enforce/shape"
	"github.com/tallygate/tallygate/verdict"
)

// lines are the lines of those who wait for the end of a throttle, one for each key and rule.
type lines struct {
	shape.Shaper

	mu    sync.Mutex // held while rules are changed
	rules atomic.Pointer[[]lineRule]
}

// lineRule is a rule for which someone waits, or did. By it a request that nothing denies any more
// finds the line in which it would wait.
type lineRule struct {
	verdict *verdict.Verdict // without a key and times
	shape   *index.Shape     // of the key
}

// maxLineRules bounds how many rules are remembered: more than a rule file has that throttle.
const maxLineRules = 256

// note remembers a rule before anyone waits for it.
func (l *lines) note(r lineRule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []lineRule
	if known := l.rules.Load(); known != nil {
		all = *known
	}
	i := slices.IndexFunc(all, func(o lineRule) bool {
		return o.verdict.Rule == r.verdict.Rule && slices.Equal(o.shape.Names(), r.shape.Names())
	})
	if i >= 0 && all[i].verdict == r.verdict {
		return
	}
	all = slices.Clone(all)
	if i >= 0 { // loaded again, perhaps with other APIs
		all = slices.Delete(all, i, i+1)
	}
	all = append(all[max(len(all)-maxLineRules+1, 0):], r)
	l.rules.Store(&all)
}

// appendKey appends what the line of a rule is called for someone with these dimensions and this API; ok
// is false when they lack one.
func (r *lineRule) appendKey(dst []byte, api string, dims []event.Dim) (key []byte, ok bool) {
	hash, ok := r.shape.Hash(api, dims)
	if !ok {
		return dst, false
	}
	return binary.LittleEndian.AppendUint64(append(append(dst, r.verdict.Rule...), 0), hash), true
}

// lineKeyBytes is room for most lines' keys: each request looks for its lines while anyone waits.
const lineKeyBytes = 128

// ruleOf returns whose verdict decided; ok is false when it is gone already.
func (t *Table) ruleOf(d Decision, api string, dims []event.Dim) (r lineRule, ok bool) {
	t.index.Each(api, dims, func(rec index.Record) bool {
		rec.Each(func(c *index.Class, _, until event.Micros) {
			if c.Decides && until == d.until && c.Verdict.Rule == d.Rule() {
				r, ok = lineRule{&c.Verdict, rec.Shape()}, true
			}
		})
		return !ok
	})
	return r, ok
}
