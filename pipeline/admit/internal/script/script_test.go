package script

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// rig asks the scripts and their reference the same questions, at the same time by a clock of its own.
type rig struct {
	t       *testing.T
	rng     *rand.Rand
	client  *redis.Client
	shards  *Shards
	memory  *protocol.Memory
	run     string
	now     event.Micros
	name    string
	names   int
	seq     int64
	ids     int
	life    string
	wrong   event.Micros // what the clock goes back to
	crossed bool         // limits are in their other forms
	log     []string
	waits   [2]map[string]event.Micros // by partition and id: since when a lost permit should be named
}

// onEach runs a test on the Redis in memory, and on a real one where there is one.
func onEach(t *testing.T, test func(*testing.T, *redis.Client)) {
	t.Run("miniredis", func(t *testing.T) {
		servers.Embedded(t)
		m := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: m.Addr()})
		t.Cleanup(func() { client.Close() })
		test(t, client)
	})
	t.Run("redis", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr()})
		t.Cleanup(func() { client.Close() })
		test(t, client)
	})
}

func newRig(t *testing.T, client *redis.Client, seed uint64) *rig {
	r := &rig{t: t, rng: rand.New(rand.NewPCG(seed, 0)), client: client, memory: &protocol.Memory{}, now: 1_790_000_000 * event.Second}
	r.shards = &Shards{Client: client, Prefix: fmt.Sprint("t", seed), Shards: 1, Partitions: 2, names: func() string { return r.name }}
	r.shards.source = func(p *process, o op) string {
		return strings.ReplaceAll(source(p, o), "call('TIME')", "{string.match(call('GET', META .. ':now'), '(%d+) (%d+)')}")
	}
	r.restart()
	return r
}

// restart makes the scripts and the reference run on another process.
func (r *rig) restart() {
	r.names++
	r.run = fmt.Sprint("run", r.names)
	has, err := r.client.Eval(r.t.Context(), hasMsgpack, nil).Int()
	if err != nil {
		r.t.Fatal(err)
	}
	p := &process{run: r.run, json: has == 0}
	for o := range ops {
		sha, err := r.client.ScriptLoad(r.t.Context(), r.shards.text(p, o)).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		p.shas[o] = sha
	}
	r.shards.runs = map[int]*process{0: p}
}

func (r *rig) process() protocol.Process {
	r.names++
	r.name = fmt.Sprint("name", r.names)
	text := fmt.Sprintf("%d %d", r.now/event.Second, r.now%event.Second)
	if err := r.client.Set(r.t.Context(), r.shards.meta(0)+":now", text, 0).Err(); err != nil {
		r.t.Fatal(err)
	}
	return protocol.Process{Run: r.run, Time: r.now, New: r.name}
}

func (r *rig) same(what string, want, got any, err error) {
	r.t.Helper()
	r.log = append(r.log, fmt.Sprintf("%s: %+v", what, want))
	diff := gocmp.Diff(want, got, cmpopts.EquateEmpty())
	if err != nil || diff != "" {
		r.t.Fatalf("%s: %v (- reference, + script):\n%s\n%s", what, err, diff, strings.Join(r.log[max(0, len(r.log)-30):], "\n"))
	}
}

var limits = []protocol.Want{
	{Limit: protocol.Limit{Name: "tumbling", Grain: event.Minute, Offset: 7 * event.Second, Keeps: event.Minute, Hold: 10 * event.Second}, Threshold: 8 * event.One},
	{Limit: protocol.Limit{Name: "sliding", Grain: 1, Keeps: 30 * event.Second, Hold: 10 * event.Second}, Threshold: 5 * event.One},
	{Limit: protocol.Limit{Name: "bucket", Kind: protocol.Bucket, Rate: 7 * event.One, Per: 13 * event.Second, Hold: 10 * event.Second}, Threshold: 6 * event.One},
	{Limit: protocol.Limit{Name: "inflight", Kind: protocol.InFlight, Hold: 10 * event.Second, Returns: true}, Threshold: 3 * event.One},
	{Limit: protocol.Limit{Name: "returns", Grain: event.Second, Keeps: event.Minute, Hold: 10 * event.Second, Returns: true}, Threshold: 6 * event.One},
	{Limit: protocol.Limit{Name: "calendar", Hold: 10 * event.Second}, Threshold: 9 * event.One},
	{Limit: protocol.Limit{Name: "first", Grain: 1, Keeps: event.Minute, Lasts: 30 * event.Second, Hold: 10 * event.Second}, Threshold: 5 * event.One},
}

// formers are other forms of some limits, which they turn into and back.
var formers = map[string]protocol.Limit{
	"sliding":  {Name: "panes", Grain: 5 * event.Second, Keeps: 35 * event.Second, Hold: 10 * event.Second},
	"calendar": {Name: "calendar+refunds", Hold: 10 * event.Second},
	"bucket":   {Name: "bucket+refunds", Kind: protocol.Bucket, Rate: 7 * event.One, Per: 13 * event.Second, Hold: 10 * event.Second},
}

// keys are a test's keys; each has limits of its own.
var keys = [][]int{{0}, {1, 2}, {2}, {3}, {4}, {5, 1}, {0, 3, 4}, {6}, {1, 6}}

// admit asks some questions in one call.
func (r *rig) admit() {
	var asks []protocol.Ask // a question that was sent is one that was asked before
	var batch []*asked
	for range 1 + max(0, r.rng.IntN(8)-3) {
		asks = append(asks, r.ask())
		batch = append(batch, &asked{question: question{ask: asks[len(asks)-1]}})
	}
	p := r.process()
	r.shards.askAll(r.t.Context(), 0, batch)
	for i, one := range batch {
		r.same(fmt.Sprintf("admit %+v, %d of %d", asks[i], i+1, len(batch)), r.memory.Admit(p, &asks[i]), one.answer, one.err)
	}
}

func (r *rig) ask() protocol.Ask {
	k := r.rng.IntN(len(keys))
	q := protocol.Ask{Partition: int32(k % 2), Key: fmt.Sprint("k", k), Before: r.now + event.Micros(r.rng.IntN(100)-1)*event.Second, Version: uint64(r.rng.IntN(20) / 19), Exempt: r.rng.IntN(30) == 0, Again: r.rng.IntN(2) == 0}
	q.Remember = []event.Micros{0, 0, event.Second, event.Minute}[r.rng.IntN(4)]
	q.Renews = r.rng.IntN(20) == 0
	for range 1 + r.rng.IntN(2) {
		r.ids++
		id := r.ids
		if r.rng.IntN(5) == 0 {
			id = max(1, r.ids-r.rng.IntN(4))
		}
		if text := fmt.Sprint("id", id); !slices.Contains(q.IDs, text) {
			q.IDs = append(q.IDs, text)
		}
	}
	q.Wants = r.wants(k)
	return q
}

// wants draws a question about a key.
func (r *rig) wants(k int) (out []protocol.Want) {
	for _, l := range keys[k] {
		w := limits[l]
		if other, ok := formers[w.Name]; ok {
			w.Formers = []string{"never", other.Name}
			if r.crossed {
				other.Formers = []string{w.Name}
				w.Limit = other
			}
		}
		w.Amount, w.Lowest, w.Hold = event.Decimal(1+r.rng.IntN(2_000_000)), event.One, event.Micros(7+r.rng.IntN(4))*event.Second
		if r.rng.IntN(4) == 0 {
			w.Threshold, w.Tiers = -1, []protocol.Tier{{ID: 0, Threshold: 4 * event.One}, {ID: 4_000_000_001, Threshold: 7 * event.One}}
		}
		if strings.HasPrefix(w.Name, "calendar") {
			w.Ends = []event.Micros{r.now - event.Second, r.now + event.Micros(r.rng.IntN(60)-2)*event.Second}
		}
		out = append(out, w)
	}
	return out
}

// inspect reads a key as people do.
func (r *rig) inspect() {
	k := r.rng.IntN(len(keys))
	q := &protocol.Ask{Partition: int32(k % 2), Key: fmt.Sprint("k", k), Wants: r.wants(k)}
	p := r.process()
	got, is, err := r.shards.Inspect(r.t.Context(), q.Partition, q.Key)
	if err != nil {
		r.t.Fatal(err)
	}
	if is.Run != p.Run || is.Time != p.Time {
		r.t.Fatalf("inspected on %+v, want %+v", is, p)
	}
	r.same("inspect "+q.Key, r.memory.Look(p, q), got.Look(is, q), nil)
}

func (r *rig) cancel() {
	k := r.rng.IntN(len(keys))
	ids := []string{fmt.Sprint("id", r.rng.IntN(r.ids+1)), fmt.Sprint("id", r.ids)}
	p := r.process()
	want := r.memory.Cancel(p, int32(k%2), fmt.Sprint("k", k), ids)
	got, err := r.shards.Cancel(r.t.Context(), int32(k%2), fmt.Sprint("k", k), ids)
	r.same("cancel", want, got, err)
}

// level draws an owner's record about a key.
func (r *rig) level(k int) *protocol.Level {
	r.seq++
	l := &protocol.Level{Key: fmt.Sprint("k", k), Seq: r.seq - int64(r.rng.IntN(2)), Latest: r.now + event.Micros(r.rng.IntN(10)-8)*event.Second}
	for range r.rng.IntN(4) {
		l.Settles = append(l.Settles, fmt.Sprint("id", max(0, r.ids-r.rng.IntN(8))))
	}
	if r.rng.IntN(20) == 0 {
		l.Exempt = r.now + 3*event.Second
	}
	for _, i := range keys[k] {
		w := &limits[i]
		s := protocol.Section{Name: w.Name, Tier: []uint64{0, 4_000_000_001, 9}[r.rng.IntN(3)]}
		switch w.Kind {
		case protocol.Bucket:
			s.Level = event.Decimal(r.rng.IntN(6_000_000))
		case protocol.Window:
			for range r.rng.IntN(4) {
				s.Steps = append(s.Steps, protocol.Step{Until: r.now + event.Micros(r.rng.IntN(40)-5)*event.Second, Amount: event.Decimal(1 + r.rng.IntN(2_000_000))})
			}
			slices.SortFunc(s.Steps, func(a, b protocol.Step) int { return cmp.Compare(a.Until, b.Until) })
		}
		if r.rng.IntN(12) == 0 {
			s = protocol.Gone(w.Name, uint64(r.rng.IntN(4)/3))
		}
		l.Sections = append(l.Sections, s)
	}
	return l
}

func (r *rig) apply() {
	b := &protocol.Batch{Partition: r.rng.Int32N(2), Of: 2, Beat: r.now, Begin: r.rng.IntN(60) == 0}
	p := r.process()
	if part := r.memory.Partitions[b.Partition]; part != nil {
		b.Start = part.Reached
	}
	if r.rng.IntN(20) == 0 {
		b.Start++
	}
	for range r.rng.IntN(4) {
		k := r.rng.IntN(len(keys))
		if int32(k%2) != b.Partition {
			continue
		}
		switch r.rng.IntN(10) {
		case 0:
			b.Records = append(b.Records, protocol.Record{Gone: fmt.Sprint("k", k)})
		default:
			b.Records = append(b.Records, protocol.Record{Level: r.level(k)})
		}
	}
	if r.rng.IntN(2) == 0 {
		life := r.life
		if part := r.memory.Partitions[b.Partition]; part != nil {
			life = part.Life
		}
		g := &protocol.Grants{Run: r.run, Life: life, Until: r.now + event.Micros(r.rng.IntN(15))*event.Second}
		if r.rng.IntN(3) == 0 {
			g.Hold, g.Rules = event.Micros(5+r.rng.IntN(6))*event.Second, uint64(1-r.rng.IntN(8)/7)
		}
		b.Records = append(b.Records, protocol.Record{Grants: g})
		b.Settled = protocol.Mark{Epoch: life, At: r.now - event.Micros(r.rng.IntN(10))*event.Second}
	}
	if r.rng.IntN(300) == 0 {
		b.Records = append(b.Records, protocol.Record{Version: 1})
	}
	b.Forwarded = protocol.Mark{Epoch: r.memory.Epoch, At: r.now - event.Micros(r.rng.IntN(10))*event.Second}
	b.Next = b.Start + int64(len(b.Records))
	want := r.memory.Apply(p, b)
	got, err := r.shards.Apply(r.t.Context(), b)
	r.lost(b.Partition, want.Lost, got.Lost)
	want.Lost, got.Lost = nil, nil
	r.same(fmt.Sprintf("apply %+v", b), want, got, err)
}

// lost holds what is named as lost: the script looks at a key once a second, by a clock that may be set back.
func (r *rig) lost(partition int32, want, got []protocol.Lost) {
	r.t.Helper()
	since := r.waits[partition]
	r.waits[partition] = map[string]event.Micros{}
	for _, l := range want {
		i := slices.IndexFunc(got, func(g protocol.Lost) bool { return g.Key == l.Key && g.ID == l.ID })
		if i >= 0 {
			r.same("lost", l, got[i], nil)
			got = slices.Delete(slices.Clone(got), i, i+1)
			continue
		}
		first, ok := since[l.ID]
		if !ok {
			first = r.now
		}
		if r.waits[partition][l.ID] = first; r.now > first+2*event.Second && r.memory.Clock > r.memory.Was+2*event.Second {
			r.same("lost is not named", l, nil, nil)
		}
	}
	if len(got) > 0 {
		r.same("lost, and should not be", nil, got, nil)
	}
}

func (r *rig) report() {
	mark := protocol.Mark{Epoch: r.memory.Epoch, At: r.now - event.Second}
	p := r.process()
	want := r.memory.Report(p, 1, mark)
	got, err := r.shards.Report(r.t.Context(), 0, 1, mark)
	want.Reached, got.Reached, want.Life, got.Life = 0, 0, "", "" // nobody asks for them
	r.same("report", want, got, err)
}

// TestTheScriptsDoWhatTheReferenceDoes asks both the same questions, on clocks that jump and memories
// that are lost.
func TestTheScriptsDoWhatTheReferenceDoes(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		seed, rounds, steps := testrun.Seed(t), testrun.Depth(10), 400
		for round := range rounds {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, client, seed+uint64(round))
			for range steps {
				r.step()
			}
		}
	})
}

func (r *rig) step() {
	// The scripts keep the clock ten times a second.
	r.now += event.Micros(r.rng.IntN(4)) * 700 * event.Millisecond
	switch n := r.rng.IntN(1000); {
	case n < 3:
		r.now += event.Micros(r.rng.IntN(60)-30) * event.Second
	case n < 6:
		if err := r.client.Do(r.t.Context(), "FLUSHALL").Err(); err != nil {
			r.t.Fatal(err)
		}
		*r.memory = protocol.Memory{}
		r.log = append(r.log, "flush")
	case n < 9:
		r.restart()
		r.log = append(r.log, "another process")
	case n < 11:
		r.now += event.Micros(r.rng.IntN(300)) * event.Second
		r.wrong = r.now - 100*event.Second
	case n < 12 && r.wrong > 0:
		r.now, r.wrong = r.wrong, 0
	case n < 14:
		r.crossed = !r.crossed
	case n < 100:
		r.cancel()
	case n < 130:
		r.report()
	case n < 180:
		r.inspect()
	case n < 500:
		r.apply()
	default:
		r.admit()
	}
}

// TestAKeyMayHaveManyPermits is about lists that are longer than what Lua takes at once.
func TestAKeyMayHaveManyPermits(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		r := newRig(t, client, 1)
		open := func(records ...protocol.Record) {
			p, b := r.process(), &protocol.Batch{Of: 2, Start: r.seq, Next: r.seq + int64(len(records)), Beat: r.now, Records: records}
			want := r.memory.Apply(p, b)
			got, err := r.shards.Apply(t.Context(), b)
			r.same("apply", want, got, err)
			r.seq, r.life = want.Reached, want.Life
		}
		open(protocol.Record{Version: 1})
		open(protocol.Record{Grants: &protocol.Grants{Run: r.run, Life: r.life, Until: r.now + event.Hour}})
		w := limits[0]
		w.Amount, w.Threshold = event.One, 1_000_000*event.One
		level := &protocol.Level{Key: "k", Seq: 1, Latest: r.now}
		for i := range 11 {
			q := &protocol.Ask{Key: "k", Before: r.now + event.Second, Version: 1, Wants: []protocol.Want{w}}
			for j := range 100 {
				q.IDs = append(q.IDs, fmt.Sprintf("permit %d of %d", j, i))
			}
			p := r.process()
			want := r.memory.Admit(p, q)
			got, err := r.shards.Admit(t.Context(), q)
			r.same(fmt.Sprint("admit ", i), want, got, err)
			if (got.Status == protocol.TooMany) != (i == 10) {
				t.Fatalf("a hundred permits for the time %d: %+v", i+1, got.Status)
			}
			level.Settles = append(level.Settles, q.IDs...)
		}
		for i := range 4000 {
			level.Settles = append(level.Settles, fmt.Sprint("other ", i))
		}
		open(protocol.Record{Level: level})
		if raw := client.Get(t.Context(), r.shards.meta(0)+":k:k").Val(); strings.Contains(raw, "permit") {
			t.Errorf("permits are left: %.200q", raw)
		}
	})
}

// TestAKeyMayBeLong asks for keys of the lengths at which their encoding changes.
func TestAKeyMayBeLong(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		r := newRig(t, client, 1)
		for _, n := range []int{1, 31, 32, 1<<16 - 1, 1 << 16, 100_000} {
			q := &protocol.Ask{Key: strings.Repeat("k", n), IDs: []string{"id"}, Before: r.now + event.Second}
			p := r.process()
			want := r.memory.Admit(p, q)
			got, err := r.shards.Admit(t.Context(), q)
			r.same(fmt.Sprint(n, " bytes"), want, got, err)
		}
	})
}
