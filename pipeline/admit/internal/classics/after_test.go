package classics

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// after is a rule that issues verdicts, each of which is enforced before the next request.
type after struct {
	t       *testing.T
	matcher *rules.Matcher
	stepper *rules.Stepper
	state   []byte
	until   event.Micros
}

func newAfter(t *testing.T, line string) *after {
	set, _ := compile(t, line)
	return &after{t: t, matcher: set.NewMatcher(), stepper: set.NewStepper()}
}

func (a *after) admit(at event.Micros, _ int64) bool { return at >= a.until }

// happened counts an action's end.
func (a *after) happened(at event.Micros, outcome string) {
	e := subject(at)
	e.Outcome = outcome
	for _, work := range a.matcher.Match(&e, at) {
		state, res := a.stepper.Step(nil, a.state, rules.Input{Key: work.Key, Hits: work.Hits, At: at})
		a.state = state
		for _, v := range res.Changes {
			if a.until = v.Until; v.State == verdict.Clear {
				a.until = 0
			}
		}
	}
}

// counter is a limiter that is told how actions ended.
type counter interface {
	limiter
	happened(at event.Micros, outcome string)
}

// afterwards compares a rule with a classic limiter where each action that is let in ends at once.
func afterwards(t *testing.T, w traffic, make func() (ours, theirs counter)) {
	t.Helper()
	admitted, denied := 0, 0
	for _, seed := range seeds {
		rng := rngOf(seed)
		ours, theirs := make()
		w.each(rng, func(i int, at event.Micros, n int64) {
			got, want := ours.admit(at, n), theirs.admit(at, n)
			if got != want {
				t.Fatalf("seed %d, request %d, %v: ours %t, theirs %t", seed, i, (at - w.start).Duration(), got, want)
			}
			if denied++; got {
				denied--
				admitted++
				outcome := outcomes(rng)
				ours.happened(at, outcome)
				theirs.happened(at, outcome)
			}
		})
	}
	if admitted < 100 || denied < 100 {
		t.Errorf("%d were let in, %d denied", admitted, denied)
	}
}

func outcomes(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return "failure"
	}
	return "success"
}

// incrFailures is GET user:<quarter of an hour>, and INCR where the action failed.
type incrFailures map[int64]int

func (l incrFailures) admit(at event.Micros, _ int64) bool { return l[at.Time().Unix()/900] < 5 }

func (l incrFailures) happened(at event.Micros, outcome string) {
	if outcome == "failure" {
		l[at.Time().Unix()/900]++
	}
}

func failures(t *testing.T, line string) {
	afterwards(t, traffic{start: ten, requests: 3000, gap: 2 * minute}, func() (ours, theirs counter) {
		return newAfter(t, line), incrFailures{}
	})
}

// jail is a fail2ban jail: maxretry 5 in findtime 10m. A ban forgets the failures.
type jail struct {
	ban      event.Micros
	failures []event.Micros
	until    event.Micros
}

func (l *jail) admit(at event.Micros, _ int64) bool { return at >= l.until }

func (l *jail) happened(at event.Micros, outcome string) {
	if outcome != "failure" {
		return
	}
	l.failures = append(l.failures, at)
	found := 0
	for _, f := range l.failures {
		if f > at-10*minute {
			found++
		}
	}
	if found >= 5 {
		l.failures, l.until = nil, at+l.ban
	}
}

func fail2ban(t *testing.T, line string) {
	afterwards(t, traffic{start: ten, requests: 3000, gap: 3 * minute}, func() (ours, theirs counter) {
		return newAfter(t, line), &jail{ban: event.Hour}
	})
	short := strings.Replace(line, "block: 1h", "block: 3m, reset: true", 1)
	afterwards(t, traffic{start: ten, requests: 3000, gap: 2 * minute}, func() (ours, theirs counter) {
		return newAfter(t, short), &jail{ban: 3 * minute}
	})
}
