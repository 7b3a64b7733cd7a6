package shape

import (
	"testing"
	"time"
)

// BenchmarkEnter measures a flood: those who wait, and those who would wait too long while a hundred do.
func BenchmarkEnter(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		var s Shaper
		b.ReportAllocs()
		for b.Loop() {
			turn, err := s.Enter(Entry{Key: "a", Interval: time.Nanosecond, Most: time.Second})
			if err != nil || turn.Wait(b.Context()) != nil {
				b.Fatal(err)
			}
			turn.Release()
		}
	})
	b.Run("late", func(b *testing.B) {
		var s Shaper
		far := time.Now().Add(time.Hour)
		for range 100 {
			if _, err := s.Enter(Entry{Key: "a", From: far, Interval: time.Second, Most: 2 * time.Hour}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Enter(Entry{Key: "a", From: far, Interval: time.Second, Most: time.Second}); err == nil {
				b.Fatal("it waits")
			}
		}
	})
}
