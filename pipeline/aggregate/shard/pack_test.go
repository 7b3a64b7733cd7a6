package shard

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
)

// packRules count on keys of each sort: by amounts, distinct values, tiers, refunds, what events tell, resets.
const packRules = `
  rules:
    - {name: addresses, key: ip, match: {api: "*"}, limits: [{name: some, limit: 30, per: 1h, window: tumbling}, {name: many, limit: 90, per: 1d}], then: {block: 1h}}
    - {name: users, key: ip/24, match: {api: "*"}, count: {distinct: uid}, limit: 20, per: 1h, then: {block: 1h}}
    - {name: bytes, key: attrs.office, match: {api: "*"}, count: {sum: attrs.bytes}, limit: 10000, per: 1h, window: tumbling, then: {block: 1h}}
    - {name: weighed, key: all, match: {api: {a.x: 3, a.y: 1}}, limit: 200, per: 1h, window: bucket, then: {block: 1h}}
    - {name: orders, key: [api, ip], match: {api: "a.*"}, refunds: true, limit: 40, per: 1h, then: {block: 1h}}
    - {name: row, key: attrs.office, match: {api: a.x, outcome: failure}, reset_on: {api: a.x, outcome: success}, limit: 5, per: 1h, then: {block: 1h}}`

// pair is a partition that reads events, and one that they are forwarded to.
type pair struct {
	t        testing.TB
	from, to *Shard
	clock    Clock
	looped   int64
	records  int // that were forwarded
	packed   int // events, in packs
}

func newPair(t testing.TB, set *rules.Set, packs bool) *pair {
	at := event.Micros(1_800_000_000_000_000)
	p := &pair{t: t, clock: Clock{Local: at, Broker: at}}
	p.from, p.to = New(Config{ID: 0, Of: 2, MaxDeadLetter: 100}, Rules{Number: 1, Set: set}), New(Config{ID: 1, Of: 2, MaxDeadLetter: 100}, Rules{Number: 1, Set: set})
	p.from.packs.Use(packs)
	return p
}

// read has the first partition read a record.
func (p *pair) read(offset int64, value string) {
	p.t.Helper()
	at := p.clock.Local + event.Micros(offset)*event.Second/10
	if err := p.from.Record(Input, &record.Record{Offset: offset, Timestamp: at.Time().UnixMilli(), Value: []byte(value)}, p.clock); err != nil {
		p.t.Fatal(err)
	}
	if err := p.from.Step(Input, offset+1, p.clock); err != nil {
		p.t.Fatal(err)
	}
}

// forward takes what is to be forwarded, and the records of it.
func (p *pair) forward() (values [][]byte) {
	p.from.packs.Flush(nil)
	for _, f := range p.from.log.out.Forwards {
		if f.To != 1 {
			p.t.Fatalf("something is forwarded to partition %d", f.To)
		}
		p.records++
		if f.Packed {
			p.packed += f.Events
		}
		values = append(values, f.Value)
	}
	p.from.log.out.Reset()
	return values
}

// take has the second partition count what was forwarded.
func (p *pair) take(values ...[]byte) {
	p.t.Helper()
	for _, value := range values {
		if err := p.to.Record(Loop, &record.Record{Offset: p.looped, Value: value}, p.clock); err != nil {
			p.t.Fatal(err)
		}
		p.looped++
		if err := p.to.Step(Loop, p.looped, p.clock); err != nil {
			p.t.Fatal(err)
		}
	}
}

// states are the second partition's, without the places that were applied last.
func (p *pair) states() map[string]string {
	all := map[string]string{}
	for ref := range p.to.table.All() {
		b, err := decodeBlock(p.to.table.Block(ref))
		if err != nil {
			p.t.Fatal(err)
		}
		all[string(p.to.table.Key(ref))] = hex.EncodeToString(b.state)
	}
	return all
}

// packEvent is an event of chance.
func packEvent(rng *rand.Rand, n int) string {
	text := fmt.Sprintf(`{"uid":"u%d","api":%q,"ip":"10.0.0.%d","outcome":%q`,
		rng.IntN(60), []string{"a.x", "a.y", "b.z"}[rng.IntN(3)], rng.IntN(6), []string{"success", "failure"}[rng.IntN(2)])
	if rng.IntN(3) > 0 {
		text += fmt.Sprintf(`,"id":"e%d"`, n-rng.IntN(2)*rng.IntN(3)) // some again
	}
	switch rng.IntN(8) {
	case 0:
		text += `,"cost":2`
	case 1:
		text += fmt.Sprintf(`,"cost":-1,"refund_of":"e%d"`, n-1)
	}
	return text + fmt.Sprintf(`,"attrs":{"office":"o%d","bytes":%d}}`, rng.IntN(4), rng.IntN(900))
}

// What is forwarded in packs counts as what is forwarded whole: states and verdicts are the same, byte by byte.
func TestPacksCountAsWholeEventsDo(t *testing.T) {
	set := compile(t, packRules)
	for seed := range uint64(testrun.Depth(40)) {
		whole, packs := newPair(t, set, false), newPair(t, set, true)
		for _, p := range []*pair{whole, packs} {
			rng := rand.New(rand.NewPCG(seed, 1))
			for n := range 600 {
				p.read(int64(n), packEvent(rng, n))
				if rng.IntN(20) == 0 {
					p.take(p.forward()...)
				}
			}
			p.take(p.forward()...)
		}
		a, b := whole.states(), packs.states()
		for key, state := range a {
			if b[key] != state {
				t.Errorf("seed %d: the state of %s is\n%s\nand when whole events are forwarded\n%s", seed, key, b[key], state)
			}
		}
		if len(a) != len(b) || len(a) == 0 {
			t.Errorf("seed %d: %d keys, and %d when whole events are forwarded", seed, len(b), len(a))
		}
		verdicts := func(p *pair) (text string) {
			for i := range p.to.log.out.States {
				for _, v := range p.to.log.out.States[i].Ack.verdicts {
					text += fmt.Sprintf("%+v\n", v.v)
				}
			}
			return text
		}
		if v := verdicts(whole); v != verdicts(packs) || v == "" {
			t.Errorf("seed %d: other verdicts:\n%s\nand when whole events are forwarded:\n%s", seed, verdicts(packs), v)
		}
		if packs.packed < 100 || packs.records >= whole.records-100 || whole.packed > 0 {
			t.Errorf("seed %d: %d events were in packs; %d records, and %d when whole events are forwarded", seed, packs.packed, packs.records, whole.records)
		}
	}
}

// An owner that crashed reads again and packs anew, from other events on to other ones. What its receiver has
// seen of a pack does not count again, and the rest does.
func TestPacksThatOverlap(t *testing.T) {
	const rule = `
  rules:
    - {name: all, key: all, match: {api: "*"}, limit: 1000, per: 1h, window: tumbling, then: {block: 1h}}`
	set := compile(t, rule)
	for seed := range uint64(testrun.Depth(50)) {
		rng := rand.New(rand.NewPCG(seed, 2))
		p := newPair(t, set, true)
		key := []byte("all=true")
		if event.Partition(key, 2) != 1 {
			t.Fatal("the key belongs to the partition that reads")
		}
		const events = 100
		for next := 0; next < events; {
			p.from = New(p.from.log.cfg, p.from.rules.Rules)
			p.from.packs.Use(true)
			for n, end := max(0, next-rng.IntN(20)), min(events, next+rng.IntN(20)); n < end; n++ {
				p.read(int64(n), `{"uid":"u","api":"a"}`)
				if rng.IntN(7) == 0 {
					p.take(p.forward()...)
					next = max(next, n+1)
				}
			}
		}
		state, err := p.to.State(key)
		if err != nil {
			t.Fatal(err)
		}
		if is := set.Explain(state, key, p.clock.Local+event.Second*20, ""); len(is) != 1 || is[0].Count != events*event.One {
			t.Fatalf("seed %d: counted are %+v, want %d", seed, is, events)
		}
	}
}

// A limit that the receiver's rules have not got any more counts nowhere; one that they have not got yet waits
// for them.
func TestPacksByOtherRules(t *testing.T) {
	const one = `
  rules:
    - {name: all, key: all, match: {api: "*"}, limit: 1000, per: 1h, window: tumbling, then: {block: 1h}}`
	both := one + `
    - {name: more, key: all, match: {api: "*"}, count: {sum: cost}, limit: 1000, per: 1h, window: tumbling, then: {block: 1h}}`
	p := newPair(t, compile(t, both), true)
	p.read(0, `{"uid":"u","api":"a","cost":7}`)
	values := p.forward()
	p.to.rules.Set, p.to.rules.Number = compile(t, one), 0
	if err := p.to.Record(Loop, &record.Record{Value: values[0]}, p.clock); !errors.Is(err, ErrRulesBehind) {
		t.Fatalf("older rules: %v", err)
	}
	p.to = New(p.to.log.cfg, Rules{Number: 2, Set: compile(t, one)})
	p.take(values...)
	if p.to.log.tally.Counted != 1 || p.to.log.tally.Matches[0] != 1 || len(p.to.log.out.Aux) > 0 {
		t.Errorf("newer rules: %+v", p.to.log.tally)
	}
}

// A version of the rules is one of a life of their topic. A pack of an earlier life, whatever its number, names no
// limit that is to come: what the repartition topic had before the newest rules were read. One that came later is
// perhaps of a life that the receiver has to read first.
func TestPacksOfAnotherLifeOfTheRulesTopic(t *testing.T) {
	const one = `
  rules:
    - {name: all, key: all, match: {api: "*"}, limit: 1000, per: 1h, window: tumbling, then: {block: 1h}}`
	both := one + `
    - {name: more, key: all, match: {api: "*"}, count: {sum: cost}, limit: 1000, per: 1h, window: tumbling, then: {block: 1h}}`
	p := newPair(t, compile(t, both), true)
	p.from.rules.Number = 4
	p.read(0, `{"uid":"u","api":"a","cost":7}`)
	value := p.forward()[0]
	old, fresh := protocol.RulesVersion([16]byte{1}, 4), protocol.RulesVersion([16]byte{2}, 1)
	for _, tt := range []struct {
		name      string
		made, now uint64 // the versions, if the topic's life is known
		number    int64  // that the receiver counts by
		settled   Settled
		waits     bool
	}{
		{"a version that is to be read", old, protocol.RulesVersion([16]byte{1}, 3), 3, Settled{0, 3}, true},
		{"one that does not compile", old, protocol.RulesVersion([16]byte{1}, 3), 3, Settled{10, 4}, true},
		{"another life, and before the newest rules were read", old, fresh, 1, Settled{10, 1}, false},
		{"another life, and behind", old, fresh, 1, Settled{0, 1}, true},
		{"another life by its higher number", 0, fresh, 1, Settled{10, 1}, false},
		{"a new life with lower numbers", fresh, old, 4, Settled{0, 4}, true},
		{"the same life, and older", old, protocol.RulesVersion([16]byte{1}, 5), 5, Settled{0, 5}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := p.to.log.cfg
			cfg.Settled = tt.settled
			to := New(cfg, Rules{Number: tt.number, Published: tt.now, Set: compile(t, one)})
			rec := &record.Record{Offset: 5, Value: value}
			if tt.made != 0 {
				rec.Headers = record.HeadersOf([]byte(HeaderRules), binary.BigEndian.AppendUint64(nil, tt.made))
			}
			err := to.Record(Loop, rec, p.clock)
			if waits := errors.Is(err, ErrRulesBehind); waits != tt.waits {
				t.Fatalf("%v, and it should wait for rules: %v", err, tt.waits)
			}
			if err := to.Step(Loop, 6, p.clock); err != nil || !tt.waits && to.log.tally.Counted != 1 {
				t.Errorf("%v: %d count", err, to.log.tally.Counted)
			}
		})
	}
}

// A sender that has not got the tiers of a limit yet says nothing about them: the key keeps its own.
func TestPacksByOlderRulesKeepTheTier(t *testing.T) {
	const plain = `
  rules:
    - {name: visits, key: ip, match: {api: "*"}, limit: 20, per: 1h, window: tumbling, then: {block: 1h}%s}`
	tiers := fmt.Sprintf(plain, `, tiers: [{when: 'attrs.plan == "pro"', limit: 100}]`)
	p := newPair(t, compile(t, fmt.Sprintf(plain, "")), true)
	p.to = New(p.to.log.cfg, Rules{Number: 2, Set: compile(t, tiers)})
	ip := ""
	for n := 0; ip == "" || event.Partition([]byte("ip="+ip), 2) != 1; n++ {
		ip = fmt.Sprintf("10.0.0.%d", n)
	}
	visit := fmt.Sprintf(`{"uid":"u","api":"a","ip":%q,"attrs":{"plan":"pro"}}`, ip)
	e, err := event.NewDecoder().Decode([]byte(visit), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.take(appendForward(nil, origin{partition: 0, offset: 0}, p.clock.Local, &e[0])) // whole, by the new rules
	for n := range int64(30) {
		p.read(n+1, visit)
	}
	p.take(p.forward()...)
	if p.packed != 30 || p.to.log.tally.Counted != 31 {
		t.Fatalf("%d events in packs, %d counted", p.packed, p.to.log.tally.Counted)
	}
	for _, a := range p.to.log.out.States {
		if a.Ack != nil && len(a.Ack.verdicts) > 0 {
			t.Fatalf("blocked after 31 of 100: %s", a.Ack.verdicts[0].body)
		}
	}
}

// The bytes of a pack: they must be read for ever.
func TestTheFormOfPacks(t *testing.T) {
	set := compile(t, `
  rules:
    - {name: all, key: all, match: {api: "*"}, count: {sum: cost}, limit: 1000, per: 1h, window: tumbling, then: {block: 1h}}`)
	p := newPair(t, set, true)
	p.clock.Local = 0
	p.read(5, `{"uid":"u","api":"a","id":"e1"}`)
	p.read(7, `[{"uid":"u","api":"a"},{"uid":"u","api":"a","cost":2.5}]`)
	hash := hex.EncodeToString(set.Limits[0].Hash[:])
	want := "01" + "05" + "00" + "00" + "01" + // version, kind, generation, partition, rules
		"05" + "00" + "c0843d" + "00" + "02" + "6531" + "01" + // offset 5, index 0, at 0.5 s, the same, e1, 1 key
		"00" + "00" + "01" + hash + "08" + hex.EncodeToString([]byte("all=true")) + "00" + // a new key of a new list with 1 limit; each counts 1
		"02" + "00" + "80b518" + "00" + "00" + "01" + "01" + "00" +
		"00" + "01" + "00" + "00" + "00" + "01" + "01" + "01" + "a0cb9801"
	got := p.forward()
	if len(got) != 1 || hex.EncodeToString(got[0]) != want {
		t.Fatalf("a pack is\n%x, want\n%s", got, want)
	}
	p.take(got...)
	if p.to.log.tally.Counted != 3 {
		t.Errorf("%d of it count, want 3", p.to.log.tally.Counted)
	}
}

// FuzzPack: whatever stands in a record of the loop topic, it is counted, or a dead letter, and events before a
// mistake count.
func FuzzPack(f *testing.F) {
	set := compile(f, packRules)
	for seed := range uint64(testrun.Depth(4)) {
		p, rng := newPair(f, set, true), rand.New(rand.NewPCG(seed, 3))
		for n := range 20 {
			p.read(int64(n), packEvent(rng, n))
		}
		for _, value := range p.forward() {
			f.Add(value)
		}
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !isPack(value) {
			return
		}
		p := newPair(t, set, true)
		err := p.to.Record(Loop, &record.Record{Offset: 3, Value: value}, p.clock)
		if err != nil && !errors.Is(err, ErrRulesBehind) {
			t.Fatal(err)
		}
		for i := range p.to.intake.gathered.steps {
			if g := &p.to.intake.gathered.steps[i]; g.at != g.at.Clamp() || g.broker != g.broker.Clamp() || g.cause.Offset < 0 || g.cause.Partition < 0 {
				t.Fatalf("a step at %d, of %d, from offset %d of partition %d", g.at, g.broker, g.cause.Offset, g.cause.Partition)
			}
		}
		steps := len(p.to.intake.gathered.steps)
		if steps > 0 && (p.to.intake.gathered.steps[steps-1].key != len(p.to.intake.gathered.keys) || p.to.intake.gathered.steps[steps-1].hit != len(p.to.intake.gathered.hits)) {
			t.Fatal("what is gathered does not end with the last step")
		}
		if err := p.to.Step(Loop, 4, p.clock); err != nil {
			t.Fatal(err)
		}
		counted := p.to.log.tally.Counted
		if p.to.Record(Loop, &record.Record{Offset: 4, Value: bytes.Clone(value)}, p.clock) == nil && err == nil {
			if err := p.to.Step(Loop, 5, p.clock); err != nil {
				t.Fatal(err)
			}
			if p.to.log.tally.Counted != counted {
				t.Errorf("%d count when it comes again", p.to.log.tally.Counted-counted)
			}
		}
	})
}

// Only what has room in a pack goes into one, and a pack ends in time.
func TestPacksAreBounded(t *testing.T) {
	set := compile(t, `
  rules:
    - {name: bytes, key: attrs.office, match: {api: "*"}, limit: 1000, per: 1h, window: tumbling, then: {block: 1h}}`)
	p := newPair(t, set, true)
	long := ""
	for n := 0; event.Partition([]byte("attrs.office="+long), 2) != 1 || long == ""; n++ {
		long = strings.Repeat("x", 1000) + fmt.Sprint(n)
	}
	for n := range int64(1000) {
		p.read(n, fmt.Sprintf(`{"uid":"u","api":"a","attrs":{"office":%q}}`, long))
	}
	values := p.forward()
	slices.SortFunc(values, func(a, b []byte) int { return len(b) - len(a) })
	if p.packed != 1000 || len(values) != 4 {
		t.Errorf("%d events in %d packs", p.packed, len(values))
	}
	if len(values[0]) > packBytes+8<<10 {
		t.Errorf("a pack has %d bytes", len(values[0]))
	}
}
