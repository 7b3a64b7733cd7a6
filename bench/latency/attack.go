package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// crossing is which of an attacker's events is over the limit.
const crossing = 3

// attackSoon waits for a third of the probes, and then has all attackers go over their limit
// within a second: each sends its events at random moments of it.
func (b *bench) attackSoon(ctx context.Context, em *emit.Emitter) {
	select {
	case <-time.After(time.Duration(b.probes) * b.every / 3):
	case <-ctx.Done():
		return
	}
	events := make([]int, 0, b.attack*b.hits)
	for range b.hits {
		for i := range b.attack {
			events = append(events, i)
		}
	}
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	sent := make([]int, b.attack)
	b.startProfile(ctx)
	began := time.Now()
	b.mu.Lock()
	b.attacked = began
	b.mu.Unlock()
	for n := 0; n < len(events); {
		for due := min(len(events), int(time.Since(began).Seconds()*float64(len(events)))+1); n < due; n++ {
			i := events[n]
			uid := string(attacker) + "-" + strconv.Itoa(i)
			if sent[i]++; sent[i] == crossing {
				b.emitting(uid, attacker)
			}
			em.Emit(event.Event{UID: uid, API: "attack"})
		}
		time.Sleep(time.Millisecond)
	}
}

// reportAttack says how long attackers went on unblocked, and how the others fared meanwhile.
func (b *bench) reportAttack() {
	var attackers, meanwhile, otherwise []time.Duration
	last := b.attacked
	for _, p := range b.probed {
		if p.kind == attacker {
			attackers = append(attackers, p.denied.Sub(p.emitted))
			if p.denied.After(last) {
				last = p.denied
			}
		}
	}
	for _, p := range b.probed {
		switch {
		case p.kind != measured:
		case p.emitted.After(b.attacked) && p.emitted.Before(last):
			meanwhile = append(meanwhile, p.denied.Sub(p.emitted))
		default:
			otherwise = append(otherwise, p.denied.Sub(p.emitted))
		}
	}
	for _, list := range [][]time.Duration{attackers, meanwhile, otherwise} {
		slices.Sort(list)
	}
	fmt.Printf("  %d uids go over their limit within a second, with %d events each: the last is denied %v after the attack began\n",
		b.attack, b.hits, last.Sub(b.attacked).Round(time.Millisecond))
	fmt.Printf("    from its event over the limit to denied  %s\n", quantiles(attackers))
	fmt.Printf("    other users meanwhile (%d)  %s\n", len(meanwhile), quantiles(meanwhile))
	fmt.Printf("    other users before and after (%d)  %s\n", len(otherwise), quantiles(otherwise))
	name := fmt.Sprintf("Attack/attackers=%d/", b.attack)
	b.line(name+"attackers", attackers)
	b.line(name+"others-meanwhile", meanwhile)
}
