package auditlog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
)

// entryBytes is about what an entry takes beside its record's value.
const entryBytes = 900

func (r *Record) size() int { return entryBytes + 2*len(r.Raw) }

// keep adds an entry. It may leave a quarter more than are to be kept, so that it seldom sorts.
func (f *Follower) keep(r *Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sorted = f.sorted && (len(f.list) == 0 || compare(f.list[len(f.list)-1], r) < 0)
	f.list = append(f.list, r)
	if f.bytes += r.size(); len(f.list) > f.cfg.Entries+f.cfg.Entries/4 || f.bytes > f.cfg.Bytes+f.cfg.Bytes/4 {
		f.shrink()
	}
}

// shrink drops the oldest.
func (f *Follower) shrink() {
	f.sort()
	n := 0
	for ; n < len(f.list)-1 && (len(f.list)-n > f.cfg.Entries || f.bytes > f.cfg.Bytes); n++ {
		f.bytes -= f.list[n].size()
	}
	if n > 0 {
		f.from = maxTime(f.from, f.list[n-1].At.Time().Add(time.Microsecond))
		f.list = slices.Clone(f.list[n:])
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (f *Follower) sort() {
	if !f.sorted {
		slices.SortFunc(f.list, compare)
		f.sorted = true
	}
}

func compare(a, b *Record) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// Found is a part of the audit, the newest first.
type Found struct {
	Entries []*Record
	Next    string // a cursor: where the next page begins; "" at the end. It names no key
}

// Find returns entries, the newest first, at most limit of them. after is the Next of the page before.
func (f *Follower) Find(want Filter, after string, limit int) (Found, error) {
	end, err := parseCursor(after)
	if err != nil {
		return Found{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sort()
	last := len(f.list)
	if end != nil {
		last, _ = slices.BinarySearchFunc(f.list, end, compare)
	}
	var found []*Record
	more := false
	for i := last - 1; i >= 0; i-- {
		if !want.From.IsZero() && f.list[i].At.Time().Before(want.From) {
			break
		}
		if !want.Wants(f.list[i].Entry) {
			continue
		}
		if more = len(found) == limit; more {
			break
		}
		found = append(found, f.list[i])
	}
	out := Found{Entries: found}
	if more {
		out.Next = cursor(found[limit-1])
	}
	inCausalOrder(out.Entries)
	return out, nil
}

// inCausalOrder puts the entries of a page, the newest first, in the order that the command line has: what a
// command brought about is newer than the command, whatever the clocks say.
func inCausalOrder(page []*Record) {
	at := len(page)
	order := newInOrder(func(o *ordered) error {
		at--
		page[at] = &o.Record
		return nil
	})
	for _, r := range slices.Backward(slices.Clone(page)) {
		_ = order.add(&ordered{Record: *r}, 0) // so early none is written yet
	}
	_ = order.flush() // the function returns no error
}

func cursor(r *Record) string { return fmt.Sprintf("%d.%d.%d", int64(r.At), r.Partition, r.Offset) }

func parseCursor(text string) (*Record, error) {
	if text == "" {
		return nil, nil
	}
	r := Record{Entry: &Entry{}}
	var at int64
	n, err := fmt.Sscanf(text, "%d.%d.%d", &at, &r.Partition, &r.Offset)
	if r.At = event.Micros(at); err != nil || n != 3 || cursor(&r) != strings.TrimSpace(text) {
		return nil, errors.New("auditlog: this is no place in the audit")
	}
	return &r, nil
}

// Health describes the feed of the audit.
type Health struct {
	From    time.Time // since when it has everything; zero: it has nothing yet
	Behind  int64     // records that are to be read yet
	Trouble error     // why it does not go on; nil while it does
	Entries int       // that it has
	Bytes   int       // about
	Bad     int       // records that cannot be read
}

// Health may be called at any time.
func (f *Follower) Health() Health {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := Health{From: f.from, Trouble: f.trouble, Entries: len(f.list), Bytes: f.bytes, Bad: f.bad}
	for _, r := range f.readers {
		p := r.Progress()
		if h.Behind += max(0, p.End-p.Next); p.Err != nil && h.Trouble == nil {
			h.Trouble = p.Err
		}
	}
	return h
}
