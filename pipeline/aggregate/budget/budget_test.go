package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What does not fit waits, in order: a small batch does not overtake a large one, or that would wait for ever.
func TestWhoWaitsIsServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(800)
		first, large, small := b.NewClaim(), b.NewClaim(), b.NewClaim()
		if !first.Try(500) {
			t.Fatal("nothing is held, and there is no room")
		}
		var mu sync.Mutex
		var order []string
		reserve := func(c *Claim, bytes int64, name string) {
			if err := c.Reserve(t.Context(), bytes); err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
		}
		var wg sync.WaitGroup
		wg.Go(func() { reserve(large, 700, "large") })
		synctest.Wait()
		wg.Go(func() { reserve(small, 100, "small") })
		synctest.Wait()
		if small.Try(1) || len(order) > 0 {
			t.Fatalf("what came later is served first: %v", order)
		}
		first.Release(500)
		wg.Wait()
		if b.Held(Decompressed) != 800 || len(order) != 2 {
			t.Errorf("%d bytes are held, by %v", b.Held(Decompressed), order)
		}
	})
}

// A batch that is larger than the whole budget goes alone, whatever else is held.
func TestALargerBatchGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1000)
		b.Add(Forwards, 5000)
		one, other := b.NewClaim(), b.NewClaim()
		if err := one.Reserve(t.Context(), 9000); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- other.Reserve(t.Context(), 9000) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("two go at once: %v", err)
		default:
		}
		one.Release(9000)
		if err := <-done; err != nil || b.Held(Decompressed) != 9000 {
			t.Errorf("%v, %d bytes are held", err, b.Held(Decompressed))
		}
	})
}

// A claim that holds its share waits for itself, and nobody waits for it.
func TestAClaimThatIsStuckLeavesTheOthersTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(8000)
		stuck, other := b.NewClaim(), b.NewClaim()
		for stuck.Try(100) {
		}
		if held := b.Held(Decompressed); held < stuck.Share() || held > stuck.Share()+100 {
			t.Fatalf("it holds %d of its share of %d", held, stuck.Share())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error)
		go func() { done <- stuck.Reserve(ctx, 100) }()
		synctest.Wait()
		if !other.Try(100) {
			t.Error("another claim waits for it")
		}
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it gets more than its share: %v", err)
		}
	})
}

// Who gives up leaves nothing behind, and lets those pass that waited behind it.
func TestWhoGivesUpHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1000)
		one, two, three := b.NewClaim(), b.NewClaim(), b.NewClaim()
		one.Try(300)
		ctx, cancel := context.WithCancel(t.Context())
		gone, served := make(chan error), make(chan error)
		go func() { gone <- two.Reserve(ctx, 900) }()
		synctest.Wait()
		go func() { served <- three.Reserve(t.Context(), 100) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-served; err != nil || b.Held(Decompressed) != 400 {
			t.Errorf("%v, %d bytes are held", err, b.Held(Decompressed))
		}
	})
}

// What leaves for Kafka makes room for batches.
func TestOutputThatIsAcknowledgedMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(1000)
		b.Add(Audit, 950)
		one, two := b.NewClaim(), b.NewClaim()
		one.Try(10)
		done := make(chan error)
		go func() { done <- two.Reserve(t.Context(), 200) }()
		synctest.Wait()
		b.Add(Audit, -950)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Claims that take and give back batches of all sizes, many larger than the budget, all come to their end,
// and never hold more than the budget, or one batch.
func TestEveryLoadDrains(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		b := New(1000)
		var wg sync.WaitGroup
		for i := range uint64(16) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, i))
				c := b.NewClaim()
				defer c.Close()
				for range 200 {
					bytes := 1 + rng.Int64N(1+int64(rng.Int32N(3))*600)
					if !c.Try(bytes) {
						if err := c.Reserve(t.Context(), bytes); err != nil {
							t.Error(err)
							return
						}
					}
					if held := b.Held(Decompressed); held > max(1000, bytes) {
						t.Errorf("%d bytes are held beside a batch of %d", held, bytes)
					}
					time.Sleep(time.Duration(rng.Int64N(1000)))
					c.Release(bytes)
				}
			})
		}
		wg.Wait()
		if held := b.Held(Decompressed); held != 0 {
			t.Errorf("%d bytes are left", held)
		}
	})
}
