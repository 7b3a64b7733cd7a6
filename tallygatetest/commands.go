package tallygatetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// Block is `tallygate block`: the key is blocked for a time, whatever it has counted.
func (h *Harness) Block(key string, lasts time.Duration, reason string) {
	h.t.Helper()
	if lasts <= 0 {
		h.t.Fatalf("tallygatetest: Block(%q): a block lasts for more than %v", key, lasts)
	}
	h.command(shard.CommandRecord{Command: "block", Key: key, For: event.FromDuration(lasts), Reason: reason})
}

// Unblock is `tallygate unblock`: what is in force for the key ends, or what these rules have issued. What
// was counted stays, so the next event may block it again.
func (h *Harness) Unblock(key string, rules ...string) {
	h.t.Helper()
	h.commandEach(shard.CommandRecord{Command: "unblock", Key: key}, rules)
}

// Reset is `tallygate reset`: Unblock, and what was counted is forgotten.
func (h *Harness) Reset(key string, rules ...string) {
	h.t.Helper()
	h.commandEach(shard.CommandRecord{Command: "reset", Key: key}, rules)
}

// Exempt is `tallygate exempt`: the key is counted, and not blocked for a time. 0 ends an exemption.
func (h *Harness) Exempt(key string, lasts time.Duration, rules ...string) {
	h.t.Helper()
	if lasts < 0 {
		h.t.Fatalf("tallygatetest: Exempt(%q): an exemption lasts for %v at least; 0 ends one", key, time.Duration(0))
	}
	h.commandEach(shard.CommandRecord{Command: "exempt", Key: key, For: event.FromDuration(lasts)}, rules)
}

func (h *Harness) commandEach(c shard.CommandRecord, rules []string) {
	h.t.Helper()
	if len(rules) == 0 {
		rules = []string{""}
	}
	for _, c.Rule = range rules {
		h.command(c)
	}
}

func (h *Harness) command(c shard.CommandRecord) {
	h.t.Helper()
	h.key(c.Key)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids++
	c.ID, c.By = fmt.Sprint("command-", h.ids), "tallygatetest"
	if err := h.engine.Command(&c, h.now(), &h.out); err != nil {
		h.t.Fatalf("tallygatetest: %s %s: %v", c.Command, c.Key, err)
	}
	h.settle()
}

// key reads a key as rules have it.
func (h *Harness) key(text string) []event.Dim {
	h.t.Helper()
	dims, err := event.ParseKey([]byte(text))
	if err != nil {
		h.t.Fatalf("tallygatetest: %q is no key: want for example uid=7, or ip=192.0.2.1&uid=7: %v", text, err)
	}
	return dims
}

// who reads what a service knows of a request.
func (h *Harness) who(text string) []event.Dim {
	h.t.Helper()
	dims := h.key(text)
	for _, d := range dims {
		if d.Name != "uid" && d.Name != "ip" && !strings.HasPrefix(d.Name, "attrs.") {
			h.t.Fatalf("tallygatetest: %q: a request has uid, ip and attrs.NAME, and no %s: networks follow from ip", text, d.Name)
		}
	}
	return dims
}

// whyNotCounted says why a limit has no counts of a key.
func (h *Harness) whyNotCounted(limit string) string {
	known := map[string]string{}
	for _, r := range h.set.All() {
		for _, l := range r.Limits {
			if l.Name == limit && (r.Scope == rules.ScopeInstance || l.InFlight) {
				return "it decides before the action, and counts no events"
			}
			if l.Name == limit {
				return "it counts by " + strings.Join(r.Shape.Dims, " and ")
			}
			known[l.Name] = r.Name
		}
	}
	return "there is no such limit: there are " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}
