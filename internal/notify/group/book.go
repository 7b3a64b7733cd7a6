// Package group decides which Notes become one Message, when a Message is due, and up to where the audit has
// been told. It is pure: no I/O, clock, goroutine or lock; time is an argument.
//
// A Book is that of one receiver. Notes come in by Read, with the place of their entry in the audit, or by
// Tell, for states, which no entry has. Next gives the Message that is due; at most one is on its way. Done
// says that the receiver has it. Progress is what may be committed: the first entry of each partition that no
// receiver was told yet, and a journal of what lies behind it. Whoever begins there again makes the same
// Message of the same entries, with the same id.
package group

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
)

// Route selects Notes for a receiver, and groups them.
type Route struct {
	Name  string
	Wants func(*note.Note) bool

	Wait  time.Duration // how long a first Note waits for others like it
	Every time.Duration // how far apart Messages about the same are; both 0: each Note is a Message

	Messages int           // at most so many
	Per      time.Duration // in that time; 0 is no bound
}

// Config configures a Book.
type Config struct {
	Receiver   string
	Routes     []Route
	Shown      bool          // keys are shown
	PerSubject bool          // states of different subjects are told one by one
	MaxAge     time.Duration // older Notes are dropped; 0: none are
	Examples   int           // of a Message; 0 is 5
	Link       string        // to the console
}

// most bounds the groups that wait. Then the Book is Full, and reading the audit pauses.
const most = 1000

// Book is the Notes of one receiver. Make it with New.
type Book struct {
	cfg    Config
	groups map[string]*batch // open ones, by what they are about
	order  []*batch          // all that wait, in the order in which they began
	sent   *batch            // on its way; nil: none
	quiet  map[string]time.Time
	limits map[string]*bucket // by route
	parts  map[int32]*part
	lost   map[string]int // Notes dropped, by route, that no Message has said yet

	restored map[string]*batch // by what they are about: Messages that were on their way before
}

// batch is Notes that become one Message.
type batch struct {
	id       string
	hash     string // of what it is about
	route    *Route
	first    note.Note
	count    int
	from, to time.Time
	examples []example   // the earliest, in order
	states   []note.Note // those that are states
	opened   time.Time
	dropped  int

	spans map[int32]*span // of its entries
	whole bool            // restored: no other Note comes in
	parts []int32         // restored: of which partitions its entries are
}

// span is of a batch's entries in one partition.
type span struct{ First, Last int64 }

// part is a partition of the audit.
type part struct {
	next int64            // the entry that is read next
	told map[string]int64 // by what Messages were about: the last entry that the receiver has been told
}

// New makes a Book.
func New(cfg Config) *Book {
	if cfg.Examples == 0 {
		cfg.Examples = 5
	}
	b := &Book{cfg: cfg, quiet: map[string]time.Time{}, limits: map[string]*bucket{}, lost: map[string]int{}, groups: map[string]*batch{}, parts: map[int32]*part{}}
	for i := range cfg.Routes {
		if r := &cfg.Routes[i]; r.Per > 0 {
			b.limits[r.Name] = &bucket{most: float64(r.Messages), left: float64(r.Messages), per: r.Per}
		}
	}
	return b
}

// Full reports whether so much waits that no more entries should be read.
func (b *Book) Full() bool { return len(b.order) >= most && !b.restoring() }

// restoring reports whether a Message that was on its way before still is to be sent. Until then no other one of
// entries is: the journal would have to tell of both.
func (b *Book) restoring() bool {
	return slices.ContainsFunc(b.order, func(g *batch) bool { return g.whole })
}

// Waiting counts the Notes that the receiver has not been told.
func (b *Book) Waiting() (n int) {
	for _, g := range b.order {
		n += g.count
	}
	if b.sent != nil {
		n += b.sent.count
	}
	return n
}

// Tell takes in a state. It reports whether a route wants it.
func (b *Book) Tell(n *note.Note, now time.Time) (wanted bool) {
	for i := range b.cfg.Routes {
		if r := &b.cfg.Routes[i]; r.Wants(n) {
			wanted = true
			g := b.group(r, n, now, -1, 0)
			g.add(n, -1, int64(len(g.states)), b.cfg.Examples)
			g.states = append(g.states, *n)
		}
	}
	return wanted
}

// Read takes in an entry of the audit; nil is one that is nothing to tell. It reports how many Notes it drops,
// because they are too old.
func (b *Book) Read(partition int32, offset int64, n *note.Note, now time.Time) (dropped int) {
	p := b.parts[partition]
	if p == nil || offset < p.next {
		return 0 // of a partition that is another's now
	}
	p.next = offset + 1
	if n == nil {
		return 0
	}
	for i := range b.cfg.Routes {
		r := &b.cfg.Routes[i]
		if !r.Wants(n) {
			continue
		}
		if b.cfg.MaxAge > 0 && now.Sub(n.At) > b.cfg.MaxAge {
			b.lost[r.Name]++
			dropped++
			continue
		}
		hash := b.hashOf(r, n, partition, offset)
		if last, ok := p.told[hash]; ok && offset <= last {
			continue
		}
		g := b.group(r, n, now, partition, offset)
		g.add(n, partition, offset, b.cfg.Examples)
		s := g.spans[partition]
		if s == nil {
			g.spans[partition] = &span{offset, offset}
		} else {
			s.Last = max(s.Last, offset)
		}
	}
	return dropped
}

// hashOf names what a Note is about: Notes of one hash become one Message.
func (b *Book) hashOf(r *Route, n *note.Note, partition int32, offset int64) string {
	texts := []string{r.Name, string(n.Kind), string(n.State), n.Rule}
	if b.cfg.PerSubject {
		texts = append(texts, n.Subject)
	}
	if r.Wait <= 0 && r.Every <= 0 { // each by itself
		texts = append(texts, n.ID(), fmt.Sprint(partition, offset))
	}
	return note.Hash(texts...)
}

// group is that of a Note; a new one if there is none.
func (b *Book) group(r *Route, n *note.Note, now time.Time, partition int32, offset int64) *batch {
	hash := b.hashOf(r, n, partition, offset)
	if g := b.restored[hash]; g != nil && partition >= 0 {
		if s := g.spans[partition]; s != nil && offset >= s.First && offset <= s.Last {
			if g.count == 0 {
				g.first, g.route, g.opened = *n, r, now
			}
			return g
		}
	}
	g := b.groups[hash]
	if g == nil {
		g = &batch{hash: hash, route: r, first: *n, opened: now, spans: map[int32]*span{}}
		b.groups[hash] = g
		b.order = append(b.order, g)
	}
	return g
}

// example is a Note with its place: entries of one moment have an order, too.
type example struct {
	note.Note
	partition int32
	offset    int64
}

func (e example) compare(o example) int {
	return cmp.Or(e.At.Compare(o.At), cmp.Compare(e.partition, o.partition), cmp.Compare(e.offset, o.offset))
}

func (g *batch) add(n *note.Note, partition int32, offset int64, examples int) {
	if g.count++; g.count == 1 || n.At.Before(g.from) {
		g.from = n.At
	}
	if g.count == 1 || n.At.After(g.to) {
		g.to = n.At
	}
	// The earliest are examples, whichever partition is read first: a Message that is sent once more, by another
	// process, is the same.
	e := example{*n, partition, offset}
	at, _ := slices.BinarySearchFunc(g.examples, e, example.compare)
	if g.examples = slices.Insert(g.examples, at, e); len(g.examples) > examples {
		g.examples = g.examples[:examples]
	}
	g.first = g.examples[0].Note
}

// Batch is a Message that is due.
type Batch struct {
	*note.Message
	Entries bool        // it has entries of the audit: without its partitions it is not this Book's to tell
	States  []note.Note // its states
}

// Next takes the Message that is due. Nil: none is, or one is on its way; then next is when to ask again, zero
// for never.
func (b *Book) Next(now time.Time) (due *Batch, next time.Time) {
	if b.sent != nil {
		return nil, time.Time{}
	}
	b.order = slices.DeleteFunc(b.order, func(g *batch) bool { // of a route that there was, and is no more
		return g.whole && g.count == 0 && g.read(b.parts)
	})
	restoring := b.restoring()
	for i, g := range b.order {
		at, ok := b.due(g, now)
		if !ok || restoring && !g.whole && len(g.spans) > 0 {
			continue
		}
		if at.After(now) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		b.order = slices.Delete(b.order, i, i+1)
		if b.groups[g.hash] == g {
			delete(b.groups, g.hash)
		}
		b.sent = g
		b.limits[g.route.Name].take(now)
		g.dropped += b.lost[g.route.Name]
		delete(b.lost, g.route.Name)
		if g.id == "" {
			g.id = b.idOf(g)
		}
		return b.message(g), time.Time{}
	}
	return nil, next
}

// due returns the moment at which a batch is to go; ok false: not before another entry is read.
func (b *Book) due(g *batch, now time.Time) (at time.Time, ok bool) {
	if g.whole {
		return now, g.count > 0 && g.read(b.parts)
	}
	at = g.opened.Add(g.route.Wait)
	if quiet := b.quiet[g.hash]; quiet.After(at) {
		at = quiet
	}
	if free := b.limits[g.route.Name].free(now); free.After(at) {
		at = free
	}
	return at, true
}

// read reports whether all entries of a restored batch were read.
func (g *batch) read(parts map[int32]*part) bool {
	for partition, s := range g.spans {
		if p := parts[partition]; p != nil && p.next <= s.Last {
			return false
		}
	}
	return true
}

// idOf names a delivery by what is in it.
func (b *Book) idOf(g *batch) string {
	texts := []string{b.cfg.Receiver, g.hash}
	for _, p := range g.partitions() {
		texts = append(texts, fmt.Sprint(p, g.spans[p].First, g.spans[p].Last))
	}
	for i := range g.states {
		texts = append(texts, g.states[i].ID(), g.states[i].At.UTC().String())
	}
	return note.Hash(texts...) + note.Hash(slices.Insert(texts, 0, "more")...)[:10]
}

func (g *batch) partitions() []int32 {
	var all []int32
	for p := range g.spans {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

func (b *Book) message(g *batch) *Batch {
	m := &note.Message{
		Version: 1, ID: g.id, Kind: g.first.Kind, State: g.first.State, Route: g.route.Name, Rule: g.first.Rule, Subject: g.first.Subject,
		Count: g.count, Dropped: g.dropped, First: g.from.UTC(), Last: g.to.UTC(), Link: b.cfg.link(&g.first),
	}
	for i := range g.examples {
		m.Examples = append(m.Examples, note.ExampleOf(&g.examples[i].Note, b.cfg.Shown))
		if g.examples[i].Subject != m.Subject {
			m.Subject = ""
		}
	}
	if g.count > len(g.examples) && len(g.examples) > 1 {
		m.Subject = ""
	}
	return &Batch{Message: m, Entries: len(g.spans) > 0, States: g.states}
}

// link leads to the console's page about a Note.
func (c *Config) link(n *note.Note) string {
	switch base := strings.TrimSuffix(c.Link, "/"); {
	case base == "":
		return ""
	case n.Rule != "":
		rule, _, _ := strings.Cut(n.Rule, "/")
		return base + "/rules/" + rule
	default:
		return base + "/"
	}
}

// Done says that the receiver has the Message that was on its way, or that it is given up.
func (b *Book) Done(now time.Time) {
	g := b.sent
	if g == nil {
		return
	}
	b.sent = nil
	if g.route.Every > 0 {
		b.quiet[g.hash] = now.Add(g.route.Every)
		for hash, until := range b.quiet {
			if !until.After(now) {
				delete(b.quiet, hash)
			}
		}
	}
	for partition, s := range g.spans {
		if p := b.parts[partition]; p != nil {
			p.told[g.hash] = max(p.told[g.hash], s.Last)
		}
	}
}

// Oldest is the time of the oldest Note that the receiver has not been told; zero if there is none.
func (b *Book) Oldest() (oldest time.Time) {
	for _, g := range append(slices.Clone(b.order), b.sent) {
		if g != nil && g.count > 0 && (oldest.IsZero() || g.from.Before(oldest)) {
			oldest = g.from
		}
	}
	return oldest
}

// Lose notes entries that the topic has deleted, each of which may have been a Note of any route.
func (b *Book) Lose(entries int) {
	for i := range b.cfg.Routes {
		b.lost[b.cfg.Routes[i].Name] += entries
	}
}
