package auditlog

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
)

// inOrder puts entries of the audit in the order of their times. They come in the order in which the
// brokers got them: entries that instances write at the same time change places on the way, and the
// clocks of instances and brokers differ. What has one record key keeps its log's order, and what a
// command brought about comes behind the command.
type inOrder struct {
	write   func(*ordered) error
	waiting earliest
	latest  map[string]*ordered     // by record key: the last entry that waits
	causes  map[string][]*ordered   // by the event or command: the verdicts of it that wait
	given   map[string]event.Micros // by id: the commands that wait, or were written a moment ago
	number  int
}

// ordered is an entry, and where it belongs.
type ordered struct {
	Record

	at     event.Micros // its time, or that of what it comes behind
	number int          // of those that came
	index  int          // in the heap
}

const (
	// orderWithin bounds an entry's delay behind its time.
	orderWithin = event.Micros(Late / time.Microsecond)

	// orderEntries bounds the entries that wait: in an attack there are thousands a second.
	orderEntries = 200_000
)

func newInOrder(write func(*ordered) error) *inOrder {
	return &inOrder{write: write, latest: map[string]*ordered{}, causes: map[string][]*ordered{}, given: map[string]event.Micros{}}
}

// add takes an entry that the brokers got at a time, and writes those that none can come before any more.
func (l *inOrder) add(o *ordered, got event.Micros) error {
	l.number++
	o.at, o.number = o.At, l.number
	if before := l.latest[o.Record.Key]; o.Record.Key != "" && before != nil && before.Partition == o.Partition {
		o.at = max(o.at, before.at)
	}
	if v := o.Verdict; v != nil && v.Cause.ID != "" {
		o.at = max(o.at, l.given[v.Cause.ID])
		l.causes[v.Cause.ID] = append(l.causes[v.Cause.ID], o)
	}
	if o.Type == Command && o.ID != "" {
		l.given[o.ID] = max(o.at, l.given[o.ID])
	}
	l.latest[o.Record.Key] = o
	heap.Push(&l.waiting, o)
	if o.Type == Command && o.ID != "" {
		for _, of := range l.causes[o.ID] { // a broker whose clock is behind got them
			l.number++
			of.at, of.number = max(of.at, o.at), l.number
			heap.Fix(&l.waiting, of.index)
		}
	}
	for len(l.waiting) > 0 && (len(l.waiting) > orderEntries || l.waiting[0].at <= got-orderWithin) {
		if err := l.first(); err != nil {
			return err
		}
	}
	return nil
}

// flush writes what waits.
func (l *inOrder) flush() error {
	for len(l.waiting) > 0 {
		if err := l.first(); err != nil {
			return err
		}
	}
	return nil
}

// first writes the first entry that waits.
func (l *inOrder) first() error {
	o, _ := heap.Pop(&l.waiting).(*ordered)
	if l.latest[o.Record.Key] == o {
		delete(l.latest, o.Record.Key)
	}
	if v := o.Verdict; v != nil && v.Cause.ID != "" {
		l.causes[v.Cause.ID] = without(l.causes[v.Cause.ID], o)
		if len(l.causes[v.Cause.ID]) == 0 {
			delete(l.causes, v.Cause.ID)
		}
	}
	if o.Type == Command {
		delete(l.given, o.ID)
	}
	return l.write(o)
}

// without removes one of a list: nearly always the first one.
func without(list []*ordered, o *ordered) []*ordered {
	if len(list) > 0 && list[0] == o {
		return list[1:]
	}
	return slices.DeleteFunc(list, func(other *ordered) bool { return other == o })
}

// earliest is a heap: the entry with the earliest time is first, of one time the one that came first.
type earliest []*ordered

func (h earliest) Len() int { return len(h) }
func (h earliest) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].number, h[j].number)) < 0
}
func (h earliest) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *earliest) Push(x any) {
	o, _ := x.(*ordered)
	o.index = len(*h)
	*h = append(*h, o)
}
func (h *earliest) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
