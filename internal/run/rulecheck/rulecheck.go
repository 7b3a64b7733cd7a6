// Package rulecheck finds the mistakes of a rule file, for `tallygate check`, and for those who write rules in the
// console.
package rulecheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// Result is the result of one file.
type Result struct {
	File        string          `json:"file"`
	OK          bool            `json:"ok"`
	Skipped     string          `json:"skipped,omitempty"` // why it is not checked: it is no rule file
	Name        string          `json:"name,omitempty"`
	Rules       int             `json:"rules"`
	Limits      int             `json:"limits"`
	MaxState    int             `json:"max_state_bytes"`         // of one key, at most
	MaxStateKey []string        `json:"max_state_key,omitempty"` // the dimensions of that key
	Errors      []*rules.Error  `json:"errors,omitempty"`
	Warnings    []rules.Warning `json:"warnings,omitempty"`
	Hints       []string        `json:"hints,omitempty"` // what may be right as it is
}

// Text checks the text of a rule file. file is its name in errors; read gets the files that it names. The set is
// nil unless the Result is OK. When ctx ends the check does, too, and ctx has its cause.
func Text(ctx context.Context, file string, src []byte, read func(name string) ([]byte, error)) (Result, *rules.Set) {
	c := Result{File: file}
	set, err := rules.CompileUntil(file, src, read, func() error { return context.Cause(ctx) })
	if err != nil {
		return Failed(file, err), nil
	}
	c.Name, c.Rules, c.Limits, c.Warnings = set.Name, len(set.All()), limitsOf(set), set.WarningsAt(event.FromTime(time.Now()))
	c.Hints = hintsOf(set)
	if c.MaxState, c.MaxStateKey = set.LargestState(); c.MaxState > rules.MaxStateBytes {
		c.Errors = wholeFile(file,
			fmt.Sprintf("a key of %s can have %d bytes of state, at most %d are allowed", strings.Join(c.MaxStateKey, ", "), c.MaxState, rules.MaxStateBytes),
			"use fewer limits per key, or longer panes (resolution)")
		return c, nil
	}
	c.OK = true
	return c, set
}

// Failed is the result of a file that cannot be read, or that does not compile.
func Failed(file string, err error) Result {
	if list, ok := errors.AsType[rules.Errors](err); ok {
		return Result{File: file, Errors: list}
	}
	return Result{File: file, Errors: wholeFile(file, err.Error(), "")}
}

// Summary says in a line what a valid file is.
func (c *Result) Summary() string {
	state := fmt.Sprintf(", at most %d bytes of state per key", c.MaxState)
	if c.MaxState == 0 { // no rule counts events
		state = ""
	}
	return fmt.Sprintf("valid: %s, %s%s", plural(c.Rules, "rule"), plural(c.Limits, "limit"), state)
}

// wholeFile is a mistake that concerns the whole file.
func wholeFile(path, message, hint string) []*rules.Error {
	return []*rules.Error{{File: path, Line: 1, Column: 1, Message: message, Hint: hint}}
}

// hintsOf lists remarks that depend on programs that the rule file does not know of.
func hintsOf(set *rules.Set) (hints []string) {
	var limited, more, forever []string
	for _, r := range set.Strict() {
		if r.CountsLimited() && slices.Contains(set.Rules, r) {
			limited = append(limited, r.Name)
		}
	}
	for _, r := range set.Rules {
		if r.Then.Longest() >= event.Forever {
			forever = append(forever, r.Name)
		}
		if r.DeniesMore {
			more = append(more, r.Name)
		}
	}
	if len(limited) > 0 {
		hints = append(hints, "strict, and they count what limits denied: "+strings.Join(limited, ", ")+
			". Such events have no permit, and count above the limit; leave the outcome limited out of match")
	}
	if len(more) > 0 {
		hints = append(hints, "they count only some requests of an API, and deny all of it: "+strings.Join(more, ", ")+
			". To deny only those, let services check them under an API of their own, such as order.discount, and name that in then: {apis: […]}")
	}
	if len(forever) > 0 {
		bytes, _ := set.LargestState()
		hints = append(hints, fmt.Sprintf("they block forever, and each key that they block is kept as long: %s. It takes up to %d bytes at an aggregator, "+
			"and an entry in Redis and in each enforcer, until a command such as tallygate reset ends the block", strings.Join(forever, ", "), bytes))
	}
	return hints
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// limitsOf counts a set's limits.
func limitsOf(set *rules.Set) (n int) {
	for _, r := range set.All() {
		n += len(r.Limits)
	}
	return n
}
