package aggregate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// TestEndsAreAskedForTogether: those who ask while a question is under way get the answer to the next
// one, since an end must not be that of an earlier moment.
func TestEndsAreAskedForTogether(t *testing.T) {
	var l logEnds
	var mu sync.Mutex
	asked, first := int64(0), make(chan struct{})
	ask := func(context.Context) (map[int32]int64, error) {
		mu.Lock()
		asked++
		n := asked
		mu.Unlock()
		if n == 1 {
			<-first
		}
		return map[int32]int64{0: n, 1: n}, nil
	}
	ends := make(chan int64)
	want := func(partition int32) {
		go func() {
			end, err := l.of(t.Context(), partition, ask)
			if err != nil {
				t.Error(err)
			}
			ends <- end
		}()
	}
	want(0)
	testrun.Eventually(t, "Kafka is asked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asked == 1
	})
	for range 5 {
		want(1)
	}
	testrun.Eventually(t, "others wait", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.next != nil
	})
	close(first)
	told := map[int64]int{}
	for range 6 {
		told[<-ends]++
	}
	if told[1] != 1 {
		t.Errorf("%v: answers to questions, by their number; want the first one told once", told)
	}
	testrun.Eventually(t, "nothing is under way", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.busy
	})
}

func TestEndsThatAreNotKnown(t *testing.T) {
	var l logEnds
	away := errors.New("no leader")
	_, err := l.of(t.Context(), 1, func(context.Context) (map[int32]int64, error) { return map[int32]int64{0: 5}, away })
	if !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	end, err := l.of(t.Context(), 0, func(context.Context) (map[int32]int64, error) { return map[int32]int64{0: 5}, away })
	if err != nil || end != 5 {
		t.Errorf("a partition that answered: %d, %v", end, err)
	}
	if _, err := l.of(t.Context(), 7, func(context.Context) (map[int32]int64, error) { return nil, nil }); err == nil || !strings.Contains(err.Error(), "partition 7") {
		t.Errorf("%v", err)
	}
}
