package console

import (
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
)

// What people took back is what a rule got wrong: commands that name it, and those about a key that it had blocked.
func TestPardons(t *testing.T) {
	uid := func(value string) []event.Dim { return []event.Dim{{Name: "uid", Value: value}} }
	pair := []event.Dim{{Name: "attrs.campaign", Value: "x"}, {Name: "uid", Value: "7"}}
	issued := []*auditlog.Record{{Entry: &auditlog.Entry{At: 10, Rule: "searches", Key: uid("42")}}, {Entry: &auditlog.Entry{At: 10, Rule: "searches", Key: pair}}}
	for name, c := range map[string]struct {
		is   auditlog.Entry
		want bool
	}{
		"it names the rule":         {auditlog.Entry{At: 20, Command: "unblock", Rule: "searches/burst", Key: uid("1")}, true},
		"it names another one":      {auditlog.Entry{At: 20, Command: "unblock", Rule: "orders", Key: uid("42")}, false},
		"about a key of the rule":   {auditlog.Entry{At: 20, Command: "exempt", Key: uid("42")}, true},
		"about a key within":        {auditlog.Entry{At: 20, Command: "reset", Key: uid("7")}, true},
		"one of many keys":          {auditlog.Entry{At: 20, Command: "unblock", Each: [][]event.Dim{uid("1"), uid("42")}}, true},
		"before it was blocked":     {auditlog.Entry{At: 5, Command: "exempt", Key: uid("42")}, false},
		"another key":               {auditlog.Entry{At: 20, Command: "unblock", Key: uid("1")}, false},
		"a block":                   {auditlog.Entry{At: 20, Command: "block", Key: uid("42")}, false},
		"a command without any key": {auditlog.Entry{At: 20, Command: "unblock"}, false},
	} {
		if got := pardon(&c.is, "searches", issued); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
