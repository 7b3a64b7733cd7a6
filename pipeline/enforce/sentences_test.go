package enforce

import (
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// What the rule language says of verdicts where they are enforced.
func TestSentences(t *testing.T) {
	dims := []event.Dim{{Name: "uid", Value: "42"}}
	acts := func(a verdict.Action, until event.Micros) func(*verdict.Verdict) {
		return func(v *verdict.Verdict) { v.Action, v.Until = a, until }
	}
	shadow := func(v *verdict.Verdict) { v.Mode, v.Until = verdict.Shadow, t0+event.Day }
	for _, tt := range []struct {
		sentence string
		verdicts []verdict.Verdict
		at       event.Micros
		rule     string // that decides; "" is none
		allowed  bool
		shown    int
	}{
		{"In force means since ≤ t: a moment before", []verdict.Verdict{block("a", "uid=42", nil)}, t0 - 1, "", true, 0},
		{"In force means since ≤ t", []verdict.Verdict{block("a", "uid=42", nil)}, t0, "a", false, 1},
		{"In force means t < until", []verdict.Verdict{block("a", "uid=42", nil)}, t0 + event.Minute - 1, "a", false, 1},
		{"In force means t < until: not at until", []verdict.Verdict{block("a", "uid=42", nil)}, t0 + event.Minute, "", true, 0},
		{"Several verdicts on one key: the strongest action wins: block before challenge", []verdict.Verdict{
			block("weaker", "uid=42", acts(verdict.ActChallenge, t0+event.Hour)), block("stronger", "uid=42", nil),
		}, t0, "stronger", false, 2},
		{"the strongest action wins: challenge before throttle", []verdict.Verdict{
			block("weaker", "uid=42", acts(verdict.ActThrottle, t0+event.Hour)), block("stronger", "uid=42", acts(verdict.ActChallenge, t0+event.Minute)),
		}, t0, "stronger", false, 2},
		{"the strongest action wins: throttle before log", []verdict.Verdict{
			block("weaker", "uid=42", acts(verdict.ActLog, t0+event.Hour)), block("stronger", "uid=42", acts(verdict.ActThrottle, t0+event.Minute)),
		}, t0, "stronger", false, 2},
		{"then the latest until", []verdict.Verdict{
			block("short", "uid=42", nil), block("long", "uid=42", acts(verdict.ActBlock, t0+event.Hour)), block("short-too", "uid=42", nil),
		}, t0, "long", false, 3},
		{"Shadow ones never decide, all are shown", []verdict.Verdict{block("shadow", "uid=42", shadow), block("live", "uid=42", nil)}, t0, "live", false, 2},
		{"mode: shadow: shown, never enforced", []verdict.Verdict{block("shadow", "uid=42", shadow)}, t0, "", true, 1},
		{"allowed is false for all but log: log", []verdict.Verdict{block("a", "uid=42", acts(verdict.ActLog, t0+event.Hour))}, t0, "a", true, 1},
		{"allowed is false for all but log: throttle", []verdict.Verdict{block("a", "uid=42", acts(verdict.ActThrottle, t0+event.Hour))}, t0, "a", false, 1},
		{"allowed is false for all but log: challenge", []verdict.Verdict{block("a", "uid=42", acts(verdict.ActChallenge, t0+event.Hour))}, t0, "a", false, 1},
		{"among those that cover the API", []verdict.Verdict{
			block("elsewhere", "uid=42", func(v *verdict.Verdict) { v.APIs, v.Until = []string{"b.*"}, t0+event.Day }), block("here", "uid=42", nil),
		}, t0, "here", false, 1},
		{"a notice never replaces a block", []verdict.Verdict{
			block("a", "uid=42", nil), block("a", "uid=42", func(v *verdict.Verdict) { v.State, v.Seq, v.Until = verdict.Warn, 2, t0+event.Day }),
		}, t0, "a", false, 2},
		{"clear ends a verdict before its until", []verdict.Verdict{
			block("a", "uid=42", nil), block("a", "uid=42", func(v *verdict.Verdict) { v.State, v.Seq, v.Since, v.Until = verdict.Clear, 2, t0+1, t0+1 }),
		}, t0 + 1, "", true, 0},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			table := newTable(t)
			table.Apply(0, tt.verdicts)
			if d := table.CheckAt(tt.at, "a.b", "42"); d.Rule() != tt.rule || d.Allowed != tt.allowed {
				t.Errorf("%q decides, allowed %v; want %q, %v", d.Rule(), d.Allowed, tt.rule, tt.allowed)
			}
			if got := table.VerdictsAt(tt.at, "a.b", dims); len(got) != tt.shown {
				t.Errorf("%d are shown, want %d", len(got), tt.shown)
			}
		})
	}
}
