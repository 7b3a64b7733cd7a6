package logonce

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestALineIsSaidOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Line
		want := func(leftOut int, due bool) {
			t.Helper()
			if n, ok := l.Due(); n != leftOut || ok != due {
				t.Errorf("%d, %v; want %d, %v", n, ok, leftOut, due)
			}
		}
		want(0, true)
		want(0, false)
		want(0, false)
		time.Sleep(Every)
		want(2, true)
		time.Sleep(time.Hour)
		want(0, true)
	})
}
