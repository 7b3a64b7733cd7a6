package shard

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// writtenProducers stands for the changelog.
type writtenProducers struct {
	checkpoint []byte
	parts      map[string][]byte
}

// write makes a checkpoint as a partition does.
func (w *writtenProducers) write(tb rapid.TB, s *producers, now event.Micros) (parts int) {
	c := &checkpoint{Version: checkpointVersion}
	s.cut(c)
	for i := range s.parts {
		p := &s.parts[i]
		if !p.due {
			continue
		}
		value := p.copied
		if value == nil {
			value = p.append(nil, now-forgetProducers)
		}
		if len(value) > 50<<10 {
			tb.Fatalf("a record of %d bytes", len(value))
		}
		w.parts[partKey(i, p.version)] = value
		p.due, p.copied, parts = false, nil, parts+1
	}
	w.finish(tb, c)
	return parts
}

func (w *writtenProducers) finish(tb rapid.TB, c *checkpoint) {
	var err error
	if w.checkpoint, err = json.Marshal(c); err != nil {
		tb.Fatal(err)
	}
}

func (w *writtenProducers) read(tb rapid.TB, own int32) *producers {
	c, err := decodeCheckpoint(w.checkpoint)
	if err != nil {
		tb.Fatal(err)
	}
	s := &producers{own: own}
	if gone, err := s.restore(c, w.parts); err != nil || gone > 0 {
		tb.Fatal(gone, err)
	}
	return s
}

func instanceOf(n int) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 8, 16), uint64(n))
}

// An instance is any bytes. In the checkpoint's JSON it once became U+FFFD, so that after a
// takeover every record that an emitter had sent twice was counted again.
func TestProducersOutliveTheirCheckpoint(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 10_000} {
		w := writtenProducers{parts: map[string][]byte{}}
		before := &producers{}
		instance := []byte{0xff, 0, 0xfe, '"', 0x80}
		before.repeated(instance, 0, 7, 0)
		for i := range others {
			before.repeated(instanceOf(i), 0, 1, 0)
		}
		w.write(t, before, 0)
		after := w.read(t, 0)
		if !after.repeated(instance, 0, 7, 0) || after.repeated(instance, 0, 8, 0) {
			t.Errorf("beside %d others the new owner does not know it", others)
		}
	}
}

// A checkpoint of the version before has all producers in it, under names of any length.
func TestProducersOfOlderCheckpointsAreRead(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("name"), 200)
	text := fmt.Sprintf(`{"version":1,"producers":{"%x":{"seq":7,"seen_us":"1970-01-01T00:00:00Z"},"%x":{"seq":9,"seen_us":"1970-01-01T00:00:00Z"}}}`, long, instanceOf(1))
	s := (&writtenProducers{checkpoint: []byte(text)}).read(t, 3)
	if !s.repeated(long, 3, 7, 0) || s.repeated(long, 3, 8, 0) || !s.repeated(instanceOf(1), 3, 9, 0) || s.repeated(instanceOf(1), 3, 10, 0) {
		t.Error("they are not known")
	}
}

// 50,000 emitters at the same time: repeats of all of them are recognized, also by the next owner,
// and a checkpoint writes no more than what has changed.
func TestFiftyThousandEmitters(t *testing.T) { // alone: it counts allocations
	const n = 50_000
	w, s := writtenProducers{parts: map[string][]byte{}}, &producers{}
	for seq := range uint64(3) {
		for i := range n {
			if s.repeated(instanceOf(i), 0, seq+1, event.Micros(seq)) {
				t.Fatalf("record %d of emitter %d is taken for a repeat", seq+1, i)
			}
		}
		if parts := w.write(t, s, 0); parts != producerParts {
			t.Errorf("%d parts were written, want all", parts)
		}
		s = w.read(t, 0)
		for i := range n {
			if !s.repeated(instanceOf(i), 0, seq+1, event.Micros(seq)) {
				t.Fatalf("the repeat of record %d of emitter %d is not recognized", seq+1, i)
			}
		}
	}
	if parts := w.write(t, s, 0); parts != 0 {
		t.Errorf("nothing has changed, and %d parts were written", parts)
	}
	s.repeated(instanceOf(1), 0, 9, 0)
	if parts := w.write(t, s, 0); parts != 1 {
		t.Errorf("one emitter sent a record, and %d parts were written", parts)
	}
	if len(w.checkpoint) > 1<<10 {
		t.Errorf("the checkpoint record has %d bytes", len(w.checkpoint))
	}
	if allocated := testrun.Allocs(1000, func() { s.repeated(instanceOf(1), 0, 10, 0) }); allocated > 0 {
		t.Errorf("%v allocations a record", allocated)
	}
}

// The table against a map, with takeovers at any moment: also when a crash left a cut's records
// without its checkpoint, and when records came between the cut and its records.
func TestProducersAgainstAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type name struct {
			instance int
			from     int32
		}
		w, s := writtenProducers{parts: map[string][]byte{}}, &producers{own: 1}
		model, durable := map[name]uint64{}, map[name]uint64{}
		record := func() {
			n := name{rapid.IntRange(0, 120).Draw(t, "instance"), rapid.Int32Range(0, 1).Draw(t, "from")}
			seq := uint64(rapid.IntRange(1, 9).Draw(t, "sequence"))
			if got, want := s.repeated(instanceOf(n.instance), n.from, seq, 0), seq <= model[n]; got != want {
				t.Fatalf("%+v of sequence %d is a repeat: %v, want %v", n, seq, got, want)
			}
			model[n] = max(model[n], seq)
		}
		copied := func() map[name]uint64 {
			out := map[name]uint64{}
			for n, seq := range model {
				out[n] = seq
			}
			return out
		}
		w.write(t, s, 0)
		for range rapid.IntRange(1, 10).Draw(t, "checkpoints") {
			for range rapid.IntRange(0, 100).Draw(t, "records") {
				record()
			}
			crash := rapid.Bool().Draw(t, "crash")
			last, at := w.checkpoint, copied()
			c := &checkpoint{Version: checkpointVersion}
			s.cut(c)
			for range rapid.IntRange(0, 20).Draw(t, "more") {
				record()
			}
			for i := range s.parts {
				if p := &s.parts[i]; p.due {
					value := p.copied
					if value == nil {
						value = p.append(nil, 0)
					}
					w.parts[partKey(i, p.version)] = value
					p.due, p.copied = false, nil
				}
			}
			if w.finish(t, c); crash {
				w.checkpoint = last
			} else {
				durable = at
			}
			if crash || rapid.Bool().Draw(t, "takeover") {
				s, model = w.read(t, 1), map[name]uint64{}
				for n, seq := range durable {
					model[n] = seq
				}
			}
		}
	})
}

// A record costs the same however many emitters there are, also where some are forgotten for
// others.
func BenchmarkProducers(b *testing.B) {
	for _, n := range []int{10, 4_000, 50_000, 200_000} {
		b.Run(fmt.Sprintf("emitters=%d", n), func(b *testing.B) {
			s := &producers{}
			names := make([][]byte, n)
			for i := range names {
				names[i] = instanceOf(i)
				s.repeated(names[i], 0, 1, 0)
			}
			seq := uint64(1)
			for i := 0; b.Loop(); i++ {
				if i%n == 0 {
					seq++
				}
				s.repeated(names[i%n], 0, seq, 0)
			}
		})
	}
}

// numbered is a record as an emitter sends it.

// inOnePart are so many emitters whose rows are in one part.
func inOnePart(most int) (names [][]byte) {
	for n := 0; len(names) < most; n++ {
		if name := (producerName{instance: instanceName(instanceOf(n))}); name.part() == 0 {
			names = append(names, instanceOf(n))
		}
	}
	return names
}

// A part that is full forgets the emitter that was silent for longest, and no other.
func TestAFullPartForgetsTheMostSilent(t *testing.T) {
	names := inOnePart(maxPartRows + 1)
	s := &producers{}
	for _, name := range names[:maxPartRows] {
		s.repeated(name, 0, 5, 0)
	}
	for _, again := range []int{0, 0, 2, maxPartRows - 1} { // the oldest, the newest, one in the middle
		s.repeated(names[again], 0, 6, 0)
	}
	s.repeated(names[maxPartRows], 0, 5, 0)
	if n := len(s.parts[0].rows); n != maxPartRows {
		t.Errorf("%d rows", n)
	}
	for i, name := range names {
		if _, known := s.parts[0].index[producerName{instance: instanceName(name)}]; known == (i == 1) {
			t.Errorf("emitter %d is known: %t", i, known)
		}
	}
	var order [][16]byte
	for r := range s.parts[0].all {
		order = append(order, r.name.instance)
	}
	if n := len(order); n != maxPartRows || order[0] != [16]byte(names[3]) || order[n-1] != [16]byte(names[maxPartRows]) || order[n-2] != [16]byte(names[maxPartRows-1]) {
		t.Errorf("%d rows, not in the order of their use", n)
	}
}

// A takeover says how many parts of the table the changelog has lost.
func TestLostPartsOfProducersAreTold(t *testing.T) {
	for gone := range 3 {
		s := oneLimit(t)
		c := &checkpoint{Version: checkpointVersion, ProducerParts: make([]uint64, producerParts)}
		for i := range gone {
			c.ProducerParts[i] = 7
		}
		if err := s.takeover.restoreProducers(c); err != nil {
			t.Fatal(err)
		}
		if told := len(s.log.out.Notes) > 0; told != (gone > 0) {
			t.Errorf("%d parts are lost: told %t", gone, told)
		}
		if gone > 0 && s.intake.producers.parts[gone-1].version != 7 {
			t.Errorf("a part that is lost has version %d: its next record would take the place of one that is newer", s.intake.producers.parts[gone-1].version)
		}
	}
}

// A checkpoint writes the parts of the table that have changed since the one before.
func TestWhatHasNotChangedIsNotWritten(t *testing.T) {
	w, s := writtenProducers{parts: map[string][]byte{}}, &producers{}
	for _, name := range inOnePart(inlineProducers + 1) {
		s.repeated(name, 0, 1, 0)
	}
	for i, want := range []int{1, 0, 0} {
		if n := w.write(t, s, 0); n != want {
			t.Errorf("checkpoint %d writes %d parts, want %d", i, n, want)
		}
	}
	s.repeated(instanceOf(0), 0, 2, 0)
	if n := w.write(t, s, 0); n != 1 {
		t.Errorf("one emitter has sent, and %d parts are written", n)
	}
}
