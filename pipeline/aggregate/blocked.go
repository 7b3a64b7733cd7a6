package aggregate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// blockedReply is what GET /v1/blocked answers.
type blockedReply struct {
	Partitions int32        `json:"partitions"` // how many there are
	Partition  int32        `json:"partition"`
	Keys       []blockedKey `json:"keys"`
}

// blockedKey is a key that has something in force.
type blockedKey struct {
	Key   map[string]string `json:"key"`
	Rules []string          `json:"rules"`
}

// ServeBlocked answers GET /v1/blocked?partition=0[&rule=…]: the keys of a partition that have
// something in force, of any rule or of one; from the instance that owns the partition.
func (a *Aggregator) ServeBlocked(w http.ResponseWriter, r *http.Request) {
	found := a.found.Load()
	if found == nil || !a.online.Load() {
		problem(w, http.StatusServiceUnavailable, "the topics have not been checked yet")
		return
	}
	n, err := strconv.ParseInt(r.URL.Query().Get("partition"), 10, 32)
	if err != nil || n < 0 || int32(n) >= found.Partitions {
		problem(w, http.StatusBadRequest, fmt.Sprintf("which partition? 0 to %d", found.Partitions-1))
		return
	}
	rule := r.URL.Query().Get("rule")
	if rule != "" && !a.book.current.Load().set.Names(rule) {
		problem(w, http.StatusBadRequest, noRule(rule).Error())
		return
	}
	reply := blockedReply{Partitions: found.Partitions, Partition: int32(n)}
	reply.Keys, err = a.blocked(reply.Partition, rule, now())
	switch {
	case errors.Is(err, ErrNotOwner) && r.Header.Get(forwardedHeader) == "":
		a.forward(w, r, reply.Partition, a.peers.ask, nil)
	case errors.Is(err, ErrNotOwner):
		problem(w, http.StatusServiceUnavailable, "the partition is changing its owner: try again")
	case err != nil:
		problem(w, http.StatusInternalServerError, err.Error())
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(reply) // a client that went away is no error of ours
	}
}

// blocked looks through a partition in slices between events.
func (a *Aggregator) blocked(id int32, rule string, at event.Micros) ([]blockedKey, error) {
	p := a.partition(id)
	if p == nil || !p.opened.Load() || p.ctx.Err() != nil {
		return nil, fmt.Errorf("%w: partition %d", ErrNotOwner, id)
	}
	out := []blockedKey{}
	for part := range state.Parts {
		for keys := p.copyKeys(part); len(keys) > 0; {
			n, err := p.blockedSome(keys, rule, at, &out)
			if err != nil {
				return nil, err
			}
			keys = keys[n:]
		}
	}
	return out, nil
}

func (p *partition) copyKeys(part int) [][]byte {
	p.lock()
	defer p.mu.Unlock()
	return p.keysOfPart(part)
}

// ruleOf is the rule that a limit's name belongs to.
func ruleOf(limit string) string {
	rule, _, _ := strings.Cut(limit, "/")
	return rule
}

// blockedSome looks at the first of the keys for as long as events may be kept waiting.
func (p *partition) blockedSome(keys [][]byte, rule string, at event.Micros, out *[]blockedKey) (n int, err error) {
	p.lock()
	defer p.mu.Unlock()
	for began := time.Now(); n < len(keys) && (n == 0 || time.Since(began) < sliceTime); n++ {
		ref, ok := p.table.Get(keys[n])
		if !ok {
			continue // it left meanwhile
		}
		b, err := decodeBlock(p.table.Block(ref))
		if err != nil {
			return n, err
		}
		var by []string
		for _, e := range p.rules.set.Explain(b.state, keys[n], at, "") {
			if e.Verdict != nil && e.Verdict.Mode == verdict.Enforce && (rule == "" || rule == e.Rule || rule == ruleOf(e.Rule)) {
				by = append(by, e.Rule)
			}
		}
		if len(by) == 0 {
			continue
		}
		dims, err := event.ParseKey(keys[n])
		if err != nil {
			return n, err
		}
		*out = append(*out, blockedKey{Key: byName(dims), Rules: slices.Compact(by)})
	}
	return n, nil
}
