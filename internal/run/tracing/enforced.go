package tracing

import (
	"crypto/rand"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// EnforcedSpan is from a block's event until the block is in force in a table.
func EnforcedSpan(v *verdict.Verdict, at event.Micros) Span {
	s := Span{Trace: v.Trace, Parent: v.Trace.Span, Name: "tallygate.enforced", Kind: Consumer, Start: min(v.Since, at), End: at}
	_, _ = rand.Read(s.Trace.Span[:]) // never fails; each enforcer has a span of its own
	s.Attrs = []Attr{Text("tallygate.rule", v.Rule), Text("tallygate.action", v.Action.String()), Number("tallygate.seq", v.Seq)}
	return s
}
