package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
)

// keyFilter is the dimensions that a key must have. It may have others.
type keyFilter map[string]string

// parseKey parses the dimensions of one key into their canonical form.
func parseKey(args []string) ([]event.Dim, error) {
	key, err := keytext.Parse(args...)
	if errors.Is(err, keytext.ErrNone) {
		return nil, errors.New("which key? For example: tallygate explain uid=42")
	}
	return key, err
}

// parseKeyFilter parses KEY… arguments. Without any it accepts every key.
func parseKeyFilter(args []string) (keyFilter, error) {
	f := keyFilter{}
	if len(args) == 0 {
		return f, nil
	}
	key, err := parseKey(args)
	if err != nil {
		return nil, err
	}
	for _, d := range key {
		f[d.Name] = d.Value
	}
	return f, nil
}

func (f keyFilter) matches(key []event.Dim) bool {
	found := 0
	for _, d := range key {
		if want, ok := f[d.Name]; ok && want == d.Value {
			found++
		}
	}
	return found == len(f)
}

// ruleIs reports whether rule, as verdicts have it, is the wanted rule or one of its limits.
func ruleIs(rule, want string) bool {
	return auditlog.RuleIs(rule, want)
}

// moment is an option that is a point in time, or a span back from now.
type moment struct{ time.Time }

func (m *moment) String() string { return "" }

// Set accepts RFC 3339, a date (in UTC), or a span such as 90m, 36h or 7d.
func (m *moment) Set(text string) error {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			m.Time = t.UTC()
			return nil
		}
	}
	span, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); n > 36500 {
			return errors.New("that is more than a hundred years back")
		}
		span = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || span < 0 {
		return errors.New("want a time such as 2026-11-21T10:00:00Z, a date, or a span back such as 90m, 36h or 7d")
	}
	m.Time = time.Now().Add(-span).UTC()
	return nil
}

func cell(text string, most int) string { return words.Cell(text, most) }

func orDash(text string) string { return words.OrDash(text) }

// nothingSince reports that nothing was found, and how to look further back.
func nothingSince(what string, from time.Time) string {
	return fmt.Sprintf("no %s since %s; --from 30d looks further back", what, from.Format(time.RFC3339))
}
