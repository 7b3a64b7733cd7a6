package enforce

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Long keys, many shapes and many classes are held in other forms of a record.
func TestWhatDoesNotFitInARecordsHead(t *testing.T) {
	const wideClass = 4095 // from here on a class's number does not fit
	table := newTable(t)
	long := strings.Repeat("x", 300)
	table.Apply(0, []verdict.Verdict{block("r", "uid="+long, nil), block("r", "uid="+long[:255], nil)})
	for i := range 300 { // shapes
		table.Apply(0, []verdict.Verdict{block("s", fmt.Sprintf("attrs.a%d=1", i), nil)})
	}
	for i := range wideClass + 10 {
		table.Apply(0, []verdict.Verdict{block("c", fmt.Sprintf("uid=%d", i), func(v *verdict.Verdict) { v.Limit = event.Decimal(i + 1) })})
	}
	table.clock.coarse.Store(int64(t0))
	for i, uid := range []string{long, long[:255], "0", strconv.Itoa(wideClass - 1), strconv.Itoa(wideClass), strconv.Itoa(wideClass + 9)} {
		if d := table.Check("a", uid); d.Allowed {
			t.Errorf("user %d is let through", i)
		}
	}
	if d := table.Check("a", strconv.Itoa(wideClass+9)); d.Limit() != wideClass+10 {
		t.Errorf("limit %d, want %d", d.Limit(), wideClass+10)
	}
	if !table.Check("a", long[:254]).Allowed || !table.Check("a", long[:299]).Allowed {
		t.Error("someone else is denied")
	}
	for _, i := range []int{0, 299} {
		if table.CheckDimsAt(t0, "a", []event.Dim{{Name: fmt.Sprintf("attrs.a%d", i), Value: "1"}}).Allowed {
			t.Errorf("attrs.a%d=1 is let through", i)
		}
	}
	table.index.Sweep(t0 + event.Hour)
	if table.Len() != 0 || table.Bytes() > 16<<10 {
		t.Errorf("%d verdicts and %d bytes after all ran out", table.Len(), table.Bytes())
	}
}

// The coarse clock is behind; a verdict ends on time all the same, and begins on time.
func TestEndsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		at := now()
		table.clock.coarse.Store(int64(at))
		table.Apply(0, []verdict.Verdict{block("r", "uid=42", func(v *verdict.Verdict) {
			v.Since, v.Until = at+200*event.Millisecond, at+900*event.Millisecond
		})})
		table.clock.coarse.Store(int64(at)) // nobody moves it
		dims := []event.Dim{{Name: "uid", Value: "42"}}
		for _, step := range []struct {
			sleep   time.Duration
			allowed bool
		}{
			{200*time.Millisecond - time.Microsecond, true}, {time.Microsecond, false},
			{700*time.Millisecond - time.Microsecond, false}, {time.Microsecond, true},
		} {
			time.Sleep(step.sleep)
			d, e := table.Check("a", "42"), table.CheckDims("a", dims)
			if d.Allowed != step.allowed || e.Allowed != step.allowed {
				t.Errorf("%v after the beginning: allowed %v and %v, want %v", time.Duration(now()-at)*time.Microsecond, d.Allowed, e.Allowed, step.allowed)
			}
		}
	})
}
