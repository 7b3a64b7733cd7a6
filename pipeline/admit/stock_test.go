package admit

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// TestAStockIsTakenOnce: each permit of a stock goes to one request, or is given back, while many take
// and the stock ends.
func TestAStockIsTakenOnce(t *testing.T) {
	const takers = 8
	for _, n := range []int{1, permitsAtOnce - 1, permitsAtOnce, permitsAtOnce + 1, maxAhead} {
		for round := range 50 {
			g := protocol.Answer{Limit: 1000 * event.One}
			for i := range n + 1 {
				g.IDs = append(g.IDs, fmt.Sprint(i))
			}
			one := &ask{by: []*rules.Limit{{}}, Ask: protocol.Ask{Key: "k", Wants: []protocol.Want{{Amount: event.One, Limit: protocol.Limit{Grain: event.Hour, Keeps: event.Hour}}}}}
			st := newStock(one, &g, event.Second)
			var mu sync.Mutex
			seen, remaining := map[string]int{}, map[event.Decimal]int{}
			note := func(p *Permit) {
				mu.Lock()
				defer mu.Unlock()
				seen[p.ID]++
				remaining[p.Numbers.Remaining]++
			}
			var all sync.WaitGroup
			for range takers {
				all.Go(func() {
					for p := st.take(nil); p != nil; p = st.take(nil) {
						if p.done.Swap(true) {
							t.Errorf("%s was handed out before", p.ID)
						}
						note(p)
					}
				})
			}
			taken := n
			if round%2 == 0 {
				all.Go(func() {
					left := st.end()
					mu.Lock()
					defer mu.Unlock()
					for _, id := range left {
						seen[id]++
					}
					taken -= len(left)
				})
			}
			all.Wait()
			if len(seen) != n || len(remaining) != taken || st.left() != 0 || st.uses() != taken || st.uses() != 0 {
				t.Fatalf("%d permits: %d ids, %d different numbers of %d", n, len(seen), len(remaining), taken)
			}
			for id, times := range seen {
				if times != 1 || id == "0" {
					t.Fatalf("%d permits: %s %d times", n, id, times)
				}
			}
			if p := st.take(nil); p != nil || len(st.end()) != 0 {
				t.Fatalf("behind the last one: %+v", p)
			}
		}
	}
}
