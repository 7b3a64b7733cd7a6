// Package rig is what the tests of the enforcer's packages share.
package rig

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Block returns a verdict on a key such as "uid=42", in force between two times. change, which may
// be nil, makes it another one.
func Block(rule, key string, since, until event.Micros, change func(*verdict.Verdict)) verdict.Verdict {
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		panic(err)
	}
	v := verdict.Verdict{
		Rule: rule, Key: dims, Action: verdict.ActBlock, APIs: []string{"*"},
		Limit: 100 * event.One, Since: since, Until: until, Seq: 1,
	}
	if change != nil {
		change(&v)
	}
	return v
}

// Churn draws changes of 2 to 100 verdicts, half of the time 20 to 33: with those eight buckets of an
// index overflow most often.
type Churn struct {
	R     *rand.Rand
	Since event.Micros      // of the verdicts, which last a minute
	Held  []verdict.Verdict // what there is after the changes so far

	n, size int
}

// Next returns the next change: another verdict, or the clear of one that is held.
func (c *Churn) Next() verdict.Verdict {
	if c.n%1000 == 0 {
		if c.size = 2 + c.R.IntN(99); c.R.IntN(2) == 0 {
			c.size = 20 + c.R.IntN(14)
		}
	}
	c.n++
	if i := c.R.IntN(len(c.Held) + 1); i < len(c.Held) && (len(c.Held) >= c.size || c.R.IntN(8) == 0) {
		v := c.Held[i]
		v.State = verdict.Clear
		c.Held = slices.Delete(c.Held, i, i+1)
		return v
	}
	v := Block("r", "uid=churn"+strconv.Itoa(c.n), c.Since, c.Since+event.Minute, nil)
	c.Held = append(c.Held, v)
	return v
}
