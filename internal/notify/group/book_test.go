package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func all(*note.Note) bool { return true }

func fuse(rule string, at time.Time) *note.Note {
	return &note.Note{Kind: note.Fuse, State: note.Happened, At: at, Rule: rule, What: "blown"}
}

// next is the message that is due; the test ends if none is.
func next(t *testing.T, b *Book, now time.Time) *Batch {
	t.Helper()
	m, _ := b.Next(now)
	if m == nil {
		t.Fatal("no message is due")
	}
	return m
}

func none(t *testing.T, b *Book, now time.Time, want time.Time) {
	t.Helper()
	if m, next := b.Next(now); m != nil || !next.Equal(want) {
		t.Fatalf("%+v is due, else at %v; want none before %v", m, next, want)
	}
}

// Notes about the same within the wait are one message; what follows within the interval is the next one.
func TestNotesOfARuleAreOneMessage(t *testing.T) {
	b := New(Config{Receiver: "chat", Examples: 2, Link: "https://console/", Routes: []Route{{Name: "oncall", Wants: all, Wait: 2 * time.Second, Every: time.Minute}}})
	b.Begin(map[int32]Place{0: {Offset: 10}, 1: {Offset: 20}})
	b.Read(0, 10, fuse("a", noon), noon)
	b.Read(1, 20, fuse("a", noon.Add(-time.Second)), noon.Add(time.Second))
	b.Read(1, 21, nil, noon)
	b.Read(0, 11, fuse("b", noon), noon.Add(time.Second))
	b.Read(0, 12, fuse("a", noon), noon.Add(time.Second))
	none(t, b, noon.Add(time.Second), noon.Add(2*time.Second))
	m := next(t, b, noon.Add(2*time.Second))
	if m.Rule != "a" || m.Count != 3 || len(m.Examples) != 2 || !m.First.Equal(noon.Add(-time.Second)) || !m.Last.Equal(noon) || m.Link != "https://console/rules/a" || !m.Entries {
		t.Errorf("%+v", m.Message)
	}
	if m, next := b.Next(noon.Add(time.Hour)); m != nil || !next.IsZero() {
		t.Error("a second message is on its way")
	}
	b.Done(noon.Add(4 * time.Second))
	if m := next(t, b, noon.Add(4*time.Second)); m.Rule != "b" {
		t.Errorf("%+v", m.Message)
	}
	b.Done(noon.Add(4 * time.Second))
	b.Read(0, 13, fuse("a", noon), noon.Add(5*time.Second))
	b.Read(0, 14, fuse("a", noon), noon.Add(50*time.Second))
	none(t, b, noon.Add(10*time.Second), noon.Add(64*time.Second))
	if m := next(t, b, noon.Add(64*time.Second)); m.Count != 2 {
		t.Errorf("%+v", m.Message)
	}
}

// Another process may read the partitions in another order. The message that it sends again is the same.
func TestAMessageIsTheSameWhicheverPartitionIsReadFirst(t *testing.T) {
	var messages []*note.Message
	for _, order := range [][]int32{{0, 1}, {1, 0}} {
		b := New(Config{Receiver: "chat", Examples: 2, Routes: []Route{{Name: "oncall", Wants: all, Wait: time.Second}}})
		b.Begin(map[int32]Place{0: {}, 1: {}})
		for _, p := range order {
			for i := range 3 {
				n := fuse("a", noon.Add(time.Duration(i)*time.Millisecond))
				n.Subject = fmt.Sprint(p, i)
				b.Read(p, int64(i), n, noon)
			}
		}
		messages = append(messages, next(t, b, noon.Add(time.Second)).Message)
	}
	if !reflect.DeepEqual(messages[0], messages[1]) {
		t.Errorf("%+v\n%+v", messages[0], messages[1])
	}
}

// A route's bound delays messages, and what comes meanwhile goes into them: nothing is dropped.
func TestABoundDelays(t *testing.T) {
	b := New(Config{Receiver: "chat", Routes: []Route{{Name: "oncall", Wants: all, Wait: time.Second, Messages: 2, Per: time.Minute}}})
	b.Begin(map[int32]Place{0: {}})
	for i := range 6 {
		b.Read(0, int64(i), fuse(fmt.Sprint("r", i%3), noon), noon)
	}
	now, sent, notes := noon.Add(time.Second), 0, 0
	for b.Waiting() > 0 {
		m, at := b.Next(now)
		if m == nil {
			now = at
			continue
		}
		sent, notes = sent+1, notes+m.Count
		b.Done(now)
	}
	if took := now.Sub(noon); sent != 3 || notes != 6 || took < 25*time.Second || took > 35*time.Second {
		t.Errorf("%d messages of %d notes, the last after %v", sent, notes, took)
	}
}

// Too old notes are not told, and the next message says how many there were.
func TestWhatIsTooOldIsCounted(t *testing.T) {
	b := New(Config{Receiver: "chat", MaxAge: time.Hour, Routes: []Route{{Name: "oncall", Wants: all}}})
	b.Begin(map[int32]Place{0: {}})
	if dropped := b.Read(0, 0, fuse("a", noon.Add(-2*time.Hour)), noon); dropped != 1 {
		t.Errorf("%d are dropped", dropped)
	}
	b.Lose(4)
	b.Read(0, 1, fuse("a", noon), noon)
	if m := next(t, b, noon); m.Dropped != 5 || m.Count != 1 {
		t.Errorf("%+v", m.Message)
	}
	b.Done(noon)
	if p := b.Progress()[0]; p.Offset != 2 || p.Metadata != "" {
		t.Errorf("%+v", p)
	}
}

// States that several enforcers are in are one message, unless each is to be told by itself.
func TestStates(t *testing.T) {
	for perSubject, want := range map[bool][]int{false: {2, 1}, true: {1, 1, 1}} {
		b := New(Config{Receiver: "chat", PerSubject: perSubject, Routes: []Route{{Name: "oncall", Wants: all, Wait: time.Second}, {Name: "none", Wants: func(*note.Note) bool { return false }}}})
		for _, n := range []note.Note{{Subject: "e1", State: note.Firing}, {Subject: "e2", State: note.Firing}, {Subject: "e1", State: note.Resolved}} {
			if n.Kind = note.EnforcerStale; !b.Tell(&n, noon) {
				t.Error("no route wants it")
			}
		}
		b.Begin(nil) // a session changes nothing for states
		var counts []int
		for b.Waiting() > 0 {
			m := next(t, b, noon.Add(time.Second))
			if counts = append(counts, m.Count); len(m.States) != m.Count || m.Entries || (m.Subject == "") != (m.Count == 2) {
				t.Errorf("%+v %+v", m.Message, m.States)
			}
			b.Done(noon)
		}
		if !slices.Equal(counts, want) {
			t.Errorf("messages of %v notes, want %v", counts, want)
		}
	}
}

// A receiver that is down lets no more be read than fits, when each note is a message.
func TestABookIsFull(t *testing.T) {
	b := New(Config{Receiver: "chat", Routes: []Route{{Name: "oncall", Wants: all}}})
	b.Begin(map[int32]Place{0: {}})
	read := 0
	for ; !b.Full(); read++ {
		b.Read(0, int64(read), fuse("a", noon), noon)
	}
	if read != most || b.Waiting() != most || !b.Oldest().Equal(noon) {
		t.Errorf("%d are read, %d wait since %v", read, b.Waiting(), b.Oldest())
	}
	next(t, b, noon)
	b.Done(noon)
	if b.Full() {
		t.Error("it is full for ever")
	}
}

// A journal never gets longer than brokers take; what does not fit is told again.
func TestAJournalFits(t *testing.T) {
	b := New(Config{Receiver: "chat", Routes: []Route{{Name: "oncall", Wants: all, Wait: time.Second}}})
	b.Begin(map[int32]Place{0: {}})
	b.Read(0, 0, fuse("first", noon.Add(time.Hour)), noon.Add(time.Hour)) // it waits
	for i := range 500 {
		b.Read(0, int64(i+1), fuse(fmt.Sprint("r", i), noon), noon)
		next(t, b, noon.Add(time.Second))
		b.Done(noon)
	}
	p := b.Progress()[0]
	if p.Offset != 0 || len(p.Metadata) > maxMetadata || len(p.Metadata) < maxMetadata/4 {
		t.Errorf("offset %d, %d bytes", p.Offset, len(p.Metadata))
	}
	again := New(Config{Receiver: "chat", Routes: b.cfg.Routes})
	again.Begin(map[int32]Place{0: p})
	if _, known := again.parts[0].told[b.hashOf(&b.cfg.Routes[0], fuse("r499", noon), 0, 500)]; !known {
		t.Error("the latest mark is the first to go")
	}
}

// Metadata of others, or of a newer version, is no reason to fail.
func TestMetadataOfOthers(t *testing.T) {
	b := New(Config{Receiver: "chat", Routes: []Route{{Name: "oncall", Wants: all}}})
	b.Begin(map[int32]Place{0: {7, "sarama"}, 1: {8, `{"sending":{"id":"x","hash":"h","first":8,"last":9,"parts":[1,2]}}`}, 3: {0, `[]`}})
	if p := b.Progress(); p[0] != (Place{Offset: 7}) || p[1] != (Place{Offset: 8}) {
		t.Errorf("%+v", p)
	}
}

// crashes is a receiver that gets the messages of a program that is killed again and again. Each note of an
// entry is in a message, and messages of one id are of the same entries: so whoever drops repeats by their ids
// loses nothing, and whoever does not gets few twice.
type crashes struct {
	*testing.T
	rnd  *rand.Rand
	logs map[int32][]*note.Note

	committed map[int32]Place
	got       map[string]string // by id: what was in it
	seen      map[string]int    // by entry: in how many messages with different ids
	repeats   int
}

func TestNothingIsLostInCrashes(t *testing.T) {
	for range 300 {
		seed := testrun.Seed(t)
		c := &crashes{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), logs: map[int32][]*note.Note{}, committed: map[int32]Place{}, got: map[string]string{}, seen: map[string]int{}}
		for p := range int32(1 + c.rnd.IntN(4)) {
			c.committed[p] = Place{}
			for i := range 40 {
				n := fuse(fmt.Sprint("rule-", c.rnd.IntN(3)), noon)
				n.What = fmt.Sprintf("%d/%d", p, i)
				c.logs[p] = append(c.logs[p], n)
			}
		}
		for run := 0; !c.run(run); run++ {
			if run > 500 {
				t.Fatalf("seed %d: it never ends", seed)
			}
		}
		for p, log := range c.logs {
			for i := range log {
				if n := c.seen[fmt.Sprintf("%d/%d", p, i)]; n != 1 {
					t.Fatalf("seed %d: %d/%d is in %d messages", seed, p, i, n)
				}
			}
		}
	}
}

// run is one life of the program; it ends by a crash, or, true, when everything is told.
func (c *crashes) run(run int) (over bool) {
	wait := time.Duration(c.rnd.IntN(3)) * time.Second
	b := New(Config{Receiver: "chat", Examples: 1000, Routes: []Route{{Name: "oncall", Wants: all, Wait: 2 * time.Second, Every: wait}}})
	b.Begin(maps.Clone(c.committed))
	now := noon.Add(time.Duration(run) * time.Hour)
	at := map[int32]int64{}
	for p, place := range c.committed {
		at[p] = place.Offset
	}
	for steps := c.rnd.IntN(80); steps > 0 || run > 100; steps-- {
		now = now.Add(time.Duration(c.rnd.IntN(1500)) * time.Millisecond)
		var p int32
		for p = range c.logs { // any
			break
		}
		if at[p] < int64(len(c.logs[p])) && c.rnd.IntN(3) > 0 {
			b.Read(p, at[p], c.logs[p][at[p]], now)
			at[p]++
			continue
		}
		if m, _ := b.Next(now); m != nil {
			c.committed = b.Progress() // the journal
			c.receive(m.Message)
			if c.rnd.IntN(4) == 0 {
				return false // killed between the receiver's answer and the commit
			}
			b.Done(now)
		}
		if c.rnd.IntN(3) == 0 {
			c.committed = b.Progress()
		}
		if b.Waiting() == 0 && c.allRead(at) {
			c.committed = b.Progress()
			return true
		}
	}
	return false
}

func (c *crashes) allRead(at map[int32]int64) bool {
	for p, log := range c.logs {
		if at[p] < int64(len(log)) {
			return false
		}
	}
	return true
}

func (c *crashes) receive(m *note.Message) {
	var entries []string
	for _, e := range m.Examples {
		entries = append(entries, e.What)
	}
	slices.Sort(entries)
	is := fmt.Sprint(entries)
	if was, known := c.got[m.ID]; known {
		if c.repeats++; was != is {
			c.Fatalf("%s was of %s, and is of %s", m.ID, was, is)
		}
		return
	}
	c.got[m.ID] = is
	for _, e := range entries {
		c.seen[e]++
	}
}
