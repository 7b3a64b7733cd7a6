package rules

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
)

func TestCommandsAreAboutOneRuleOrAll(t *testing.T) {
	set := compiled(t, beforeChange)
	state := counted6(t, set)
	all := []string{
		"quota clear enforce: 6 of 5, 1m0s to 1m0s", "penalty clear enforce: 6 of 5, 1m0s to 1m0s",
		"tiered clear enforce: 6 of 3, 1m0s to 1m0s", "tried/candidate clear shadow: 6 of 5, 1m0s to 1m0s",
	}
	for _, tt := range []struct {
		name string
		cmd  Command
		want []string
	}{
		{"unblock a rule", Command{Kind: CommandUnblock, Rule: "penalty"}, all[1:2]},
		{"unblock", Command{Kind: CommandUnblock}, all},
		{"reset", Command{Kind: CommandReset}, all},
		{"exempt", Command{Kind: CommandExempt, Until: noon + event.Hour}, all},
		{"forget", Command{Kind: CommandForget}, all},
		{"of no rule", Command{Kind: CommandUnblock, Rule: "nothing"}, nil},
		{"block", Command{Kind: CommandBlock, Until: noon + event.Hour}, []string{"manual block enforce: 0 of 0, 1m0s to 1h0m0s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The fourth penalty, of rule kept, is over after a minute.
			tt.cmd.At = noon + event.Minute
			p := set.NewStepper()
			next, res := p.Command(nil, state, []byte("uid=42"), tt.cmd)
			var got []string
			for _, s := range sentences(res.Changes) {
				if s != "kept clear enforce: 6 of 3, 1m0s to 1m0s" { // in force for 3 µs more
					got = append(got, s)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(- want)\n%s", diff)
			}
			if err := CheckState(next); err != nil {
				t.Error(err)
			}
			if tt.cmd.Kind == CommandForget && len(next) != 0 {
				t.Errorf("%d bytes are left of a key that is forgotten", len(next))
			}
			if _, again := p.Command(nil, next, []byte("uid=42"), Command{Kind: CommandUnblock, Rule: tt.cmd.Rule, At: noon + 2*event.Minute}); tt.cmd.Kind != CommandBlock && len(again.Changes) > 0 {
				t.Errorf("cleared twice: %q", sentences(again.Changes))
			}
		})
	}
}

func TestACommandOnAKeyWithoutAState(t *testing.T) {
	set := compiled(t, beforeChange)
	p := set.NewStepper()
	key := []byte("uid=42")
	state, res := p.Command(nil, nil, key, Command{Kind: CommandBlock, At: noon, Until: noon + event.Hour})
	if len(res.Changes) != 1 || res.SpentAt != noon+event.Hour || CheckState(state) != nil {
		t.Fatalf("%q, spent at %v, %v", sentences(res.Changes), res.SpentAt, CheckState(state))
	}
	// It goes through events, and leaves when it is over.
	state, _ = p.Step(nil, state, Input{Key: key, At: noon + event.Minute, Hits: unitHits(set.Limits[0])})
	if x := set.Explain(state, key, noon+2*event.Minute, ""); x[0].Rule != ManualRule || x[0].Verdict == nil {
		t.Errorf("%+v", x[0])
	}
	state, _ = p.Step(nil, state, Input{Key: key, At: noon + event.Hour, Hits: unitHits(set.Limits[0])})
	if p.read(state); p.keySection.Manual.Had {
		t.Error("the block is kept when it is over")
	}
}

func TestAnExemptionEndsByCommand(t *testing.T) {
	set := compiled(t, beforeChange)
	p := set.NewStepper()
	key := []byte("uid=42")
	state, _ := p.Command(nil, nil, key, Command{Kind: CommandExempt, At: noon, Until: noon + event.Hour})
	state, res := p.Step(nil, state, Input{Key: key, At: noon + 1, Hits: []Hit{{Limit: set.Limits[0], Amount: 9 * event.One}}})
	if len(res.Changes) > 0 {
		t.Errorf("exempt: %q", sentences(res.Changes))
	}
	state, _ = p.Command(nil, state, key, Command{Kind: CommandExempt, At: noon + 2})
	_, res = p.Step(nil, state, Input{Key: key, At: noon + 3, Hits: unitHits(set.Limits[0])})
	if len(res.Changes) != 1 {
		t.Errorf("no longer exempt: %q", sentences(res.Changes))
	}
}

func TestTheCallerMayExemptKeysToo(t *testing.T) {
	set := compiled(t, beforeChange)
	p := set.NewStepper()
	p.Exempt = func(l *Limit, key []event.Dim, _ event.Micros) bool { return l.Name == "quota" && key[0].Value == "42" }
	for uid, want := range map[string]int{"42": 0, "43": 1} {
		_, res := p.Step(nil, nil, Input{Key: []byte("uid=" + uid), At: noon, Hits: []Hit{{Limit: set.Limits[0], Amount: 9 * event.One}}})
		if len(res.Changes) != want {
			t.Errorf("uid %s: %q", uid, sentences(res.Changes))
		}
	}
}

const fusedRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: a, match: {api: x}, limit: 1, per: 1h, fuse: 5%, then: {block: until-reset}}
    - {name: b, match: {api: x}, limit: 1, per: 1h, then: {block: until-reset}}
`

// fuse: when the rule's blocks in force would cover more than that share of a partition's active keys
// (and at least 20), the rule goes to shadow there by itself.
func TestAFuseBlows(t *testing.T) {
	for _, tt := range []struct{ active, enforced int }{
		{100, 19}, // 5 are 5%, but 20 is the least
		{400, 20}, // 20 of 400 are 5%, no more
		{1000, 50},
		{0, 60}, // it is not known
	} {
		set := compiled(t, fusedRules)
		p := set.NewStepper()
		p.Fuses = set.NewFuses()
		enforced, blown := 0, 0
		var first []byte
		for i := range 60 {
			state, res := p.Step(nil, nil, Input{Key: fmt.Appendf(nil, "uid=%d", i), At: noon + event.Micros(i), Hits: unitHits(set.Limits...), Active: tt.active})
			if i == 0 {
				first = state
			}
			blown += len(res.Blown)
			if res.Changes[0].Mode == 0 {
				enforced++
			}
			if res.Changes[1].Mode != 0 {
				t.Errorf("key %d: rule b has no fuse", i)
			}
		}
		if enforced != tt.enforced || blown != bit(tt.active > 0) || p.Fuses.Blown(set.Rules[0]) != (tt.active > 0) {
			t.Errorf("of %d keys: %d blocks were enforced, want %d; blown %d times", tt.active, enforced, tt.enforced, blown)
		}
		// What was enforced before is shadow too, after the next pass.
		_, res := p.Rejudge(nil, first, []byte("uid=0"), noon+event.Second)
		if got := len(res.Changes); got != bit(tt.active > 0) {
			t.Errorf("of %d keys: %q", tt.active, sentences(res.Changes))
		}
	}
}

// A new owner learns from the states what is blocked.
func TestFusesAreToldOfWhatIsBlocked(t *testing.T) {
	set := compiled(t, fusedRules)
	p, next := set.NewStepper(), set.NewStepper()
	next.Fuses = set.NewFuses()
	for i := range 20 {
		key := fmt.Appendf(nil, "uid=%d", i)
		state, _ := p.Step(nil, nil, Input{Key: key, At: noon, Hits: unitHits(set.Limits[0])})
		next.NoteState(state, key)
	}
	_, res := next.Step(nil, nil, Input{Key: []byte("uid=20"), At: noon + 1, Hits: unitHits(set.Limits[0]), Active: 400})
	if len(res.Blown) != 1 || res.Blown[0].Name != "a" {
		t.Errorf("the 21st of 400 keys: %v blew", res.Blown)
	}
}

// Blocks that are over, or cleared, do not count.
func TestAFuseForgetsWhatIsOver(t *testing.T) {
	set := compiled(t, fusedRules)
	p := set.NewStepper()
	p.Fuses = set.NewFuses()
	for i := range 200 {
		key := fmt.Appendf(nil, "uid=%d", i)
		state, res := p.Step(nil, nil, Input{Key: key, At: noon + event.Micros(i)*5*event.Minute, Hits: unitHits(set.Limits[0]), Active: 100})
		if len(res.Blown) > 0 {
			t.Fatalf("it blew at key %d", i)
		}
		if i%2 == 0 {
			p.Command(nil, state, key, Command{Kind: CommandUnblock, At: noon + event.Micros(i)*5*event.Minute})
		}
	}
}

// What a candidate clears was never blocked by it: the live limit's block counts on.
func TestAFuseForgetsNothingForACandidate(t *testing.T) {
	set := compileRules(t, `
    - {name: a, match: {api: x}, limit: 1, candidate: {limit: 2}, per: 1h, fuse: 5%, reset_on: {api: ok, clear: true}, then: {block: 1h, reset: true}}
`)
	p := set.NewStepper()
	p.Fuses = set.NewFuses()
	live, candidate := set.Limits[0], set.Limits[1]
	for i := range 20 {
		key := fmt.Appendf(nil, "uid=%d", i)
		var state []byte
		for n := range 3 {
			state, _ = p.Step(nil, state, Input{Key: key, At: noon + event.Micros(n), Hits: unitHits(live, candidate), Active: 400})
		}
		if _, res := p.Step(nil, state, Input{Key: key, At: noon + 3, Hits: []Hit{{Limit: candidate, Reset: true, Tier: KeepTier}}, Active: 400}); len(res.Changes) != 1 {
			t.Fatalf("the candidate's verdict is not cleared: %q", sentences(res.Changes))
		}
	}
	_, res := p.Step(nil, nil, Input{Key: []byte("uid=20"), At: noon + 4, Hits: []Hit{{Limit: live, Amount: 2 * event.One}}, Active: 400})
	if len(res.Blown) != 1 {
		t.Errorf("the 21st of 400 keys: %v blew", res.Blown)
	}
}
