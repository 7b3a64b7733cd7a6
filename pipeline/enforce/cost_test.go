package enforce

import (
	"strconv"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

const many = 100_000

// filled is a table of 100,000 blocked users, u0 to u99999, whose clock runs.
func filled(tb testing.TB) *Table {
	table := newTable(tb)
	all := make([]verdict.Verdict, many)
	for i := range all {
		all[i] = block("r", "uid=u"+strconv.Itoa(i), func(v *verdict.Verdict) { v.Since = 0 })
	}
	table.Replace(0, all)
	testrun.Start(tb, table.Run)
	for table.clock.coarse.Load() == 0 {
	}
	return table
}

func TestChecksDontAllocate(t *testing.T) {
	table := filled(t)
	table.Apply(0, []verdict.Verdict{
		block("n", "ip/64=2001:db8::/64", func(v *verdict.Verdict) { v.Since = 0 }),
		block("i", "ip=10.0.0.1", nil),
		block("x", "attrs.a=1&attrs.b=2&uid=u", nil),
	})
	dims := []event.Dim{
		{Name: "uid", Value: "u"}, {Name: "ip", Value: "2001:db8::77"},
		{Name: "attrs.a", Value: "1"}, {Name: "attrs.b", Value: "2"},
	}
	for name, check := range map[string]func() bool{
		"hit":  func() bool { return !table.Check("a", "u77").Allowed },
		"miss": func() bool { return table.Check("a", "nobody").Allowed },
		"dims": func() bool { return !table.CheckDims("a", dims).Allowed },
	} {
		if !check() {
			t.Errorf("%s: wrong answer", name)
		}
		if n := testrun.Allocs(1000, func() { check() }); n != 0 {
			t.Errorf("%s: %v allocations a check, want none", name, n)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	table := filled(b)
	plain := make(map[string]*verdict.Verdict, many)
	all, _ := table.List("", "", -1)
	for _, v := range all {
		plain[v.Key[0].Value] = v
	}
	hits, misses := make([]string, 1<<16), make([]string, 1<<16)
	for i := range hits {
		hits[i] = "u" + strconv.Itoa(i*40503%many)
		misses[i] = "v" + strconv.Itoa(i*40503%many)
	}
	for name, uids := range map[string][]string{"hit": hits, "miss": misses} {
		b.Run(name+"/table", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				table.Check("order.create", uids[i&(1<<16-1)])
			}
		})
		b.Run(name+"/map", func(b *testing.B) {
			at := table.Now()
			for i := 0; b.Loop(); i++ {
				if v := plain[uids[i&(1<<16-1)]]; v != nil && v.Until <= at {
					b.Fatal("run out")
				}
			}
		})
	}
}

func BenchmarkReplace(b *testing.B) {
	table := newTable(b)
	all := make([]verdict.Verdict, many)
	for i := range all {
		all[i] = block("r", "uid=u"+strconv.Itoa(i), nil)
	}
	for b.Loop() {
		table.Replace(0, all)
	}
}
