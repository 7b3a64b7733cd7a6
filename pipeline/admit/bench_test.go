package admit

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// stocked returns an admitter with permits ahead for a key, which are never used up.
func stocked(t testing.TB, r *rig) *Admitter {
	r.rules(1, "    - {name: a, match: {api: x}, limit: 1000000, per: 1h, strict: {hold: 1h, ahead: 1h}}\n")
	a := r.admitter()
	part := a.spares.part([]byte("uid=42"))
	testrun.Eventually(t, "permits are granted ahead", func() bool {
		r.admit(a, uid("x", "42"))
		part.mu.Lock()
		defer part.mu.Unlock()
		k := part.keys["uid=42"]
		if k == nil || k.stock.Load().left() == 0 {
			return false
		}
		k.fill(stockPermits)
		return true
	})
	return a
}

const stockPermits = 4_000

// fill fills the stock again, with so many of the same permit.
func (k *tracked) fill(n int) {
	was := k.stock.Load()
	ids := was.ids
	if len(ids) != n {
		ids = slices.Repeat(was.ids[:1], n)
	}
	k.stock.Store(&stock{
		ids: ids, partition: was.partition, key: was.key, turn: was.turn, sent: was.sent, ahead: was.ahead, at: was.at,
		by: was.by, number: was.number, amount: was.amount, made: make([]atomic.Pointer[[permitsAtOnce]Permit], (n+permitsAtOnce-1)/permitsAtOnce),
	})
}

func TestWhatAnAnswerWithoutAQuestionTakes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := newRig(t, miniredis.RunT(t).Addr())
	a := stocked(t, r)
	q := uid("x", "42")
	if n := testrun.Allocs(1000, func() { r.admit(a, q) }); n > 1 {
		t.Errorf("%v allocations with a permit that was granted ahead", n)
	}
	if s := a.Stats(); s.Ahead < 1000 {
		t.Errorf("%+v", s)
	}
	q = uid("other", "42")
	r.put(2, "    - {name: a, match: {api: x}, limit: 1, per: 1h, then: {block: 1m}}\n")
	testrun.Eventually(t, "no rule is strict", func() bool { return a.Stats().Version == 2 })
	if n := testrun.Allocs(1000, func() { r.admit(a, q) }); n > 0 {
		t.Errorf("%v allocations where no rule is strict", n)
	}
}

func BenchmarkAdmit(b *testing.B) {
	q := uid("x", "42")
	b.Run("idle", func(b *testing.B) {
		r := newRig(b, miniredis.RunT(b).Addr())
		r.rules(1, "    - {name: a, match: {api: x}, limit: 1, per: 1h, then: {block: 1m}}\n")
		measure(b, r.admitter(), q)
	})
	b.Run("other", func(b *testing.B) {
		r := newRig(b, miniredis.RunT(b).Addr())
		measure(b, stocked(b, r), uid("other", "42"))
	})
	b.Run("ahead", func(b *testing.B) {
		r := newRig(b, miniredis.RunT(b).Addr())
		a := stocked(b, r)
		k, left := a.spares.part([]byte("uid=42")).keys["uid=42"], stockPermits
		b.ReportAllocs()
		for b.Loop() {
			if left--; left == 0 {
				k.fill(maxAhead)
				left = maxAhead
			}
			if p, err := a.Admit(b.Context(), q); err != nil || !p.Admitted {
				b.Fatalf("%+v, %v", p, err)
			}
		}
	})
	b.Run("spare", func(b *testing.B) { // of "ahead", what is not finding the rules
		r := newRig(b, miniredis.RunT(b).Addr())
		a := stocked(b, r)
		k := a.spares.part([]byte("uid=42")).keys["uid=42"]
		wants := slices.Clone(k.wants)
		wants[0].Key = []byte("uid=42")
		one, p := attempt{a: a}, a.book.current.Load()
		now := protocol.Clock{Wall: k.stock.Load().sent.Wall, Mono: k.stock.Load().sent.Mono}
		b.ReportAllocs()
		for b.Loop() {
			if k.stock.Load().left() == 0 {
				k.fill(maxAhead)
			}
			if p, _ := one.spare(p, k.v, wants, k.ahead, now); p == nil {
				b.Fatal("none is left")
			}
		}
	})
	b.Run("redis", func(b *testing.B) {
		r := newRig(b, servers.StartRedis(b).Addr())
		r.rules(1, "    - {name: a, match: {api: x}, limit: 1000000000, per: 1h, strict: {hold: 1h}}\n")
		a := r.admitter()
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			q.Dims[0].Value = string([]byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676%26)})
			i++
			p := r.admit(a, q)
			if !p.Admitted && p.Reason == "" {
				b.Fatalf("%+v", p)
			}
		}
	})
}

func measure(b *testing.B, a *Admitter, q Request) {
	b.ReportAllocs()
	ctx := b.Context()
	for b.Loop() {
		if p, err := a.Admit(ctx, q); err != nil || !p.Admitted {
			b.Fatalf("%+v, %v", p, err)
		}
	}
}
