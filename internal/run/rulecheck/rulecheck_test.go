package rulecheck

import (
	"context"
	"errors"
	"strings"
	"testing"
)

const expired = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  exempt: [{uid: 42, reason: load test, expires: 2020-01-01T00:00:00Z}]
  rules:
    - {name: searches, match: {api: search}, limit: 10, per: 1m, then: {block: 5m}}
`

// An exemption that is over is told, at its place.
func TestExpiredExemptionsAreWarnedOf(t *testing.T) {
	c, set := Text(t.Context(), "rules.yaml", []byte(expired), nil)
	if set == nil || !c.OK || len(c.Warnings) != 1 {
		t.Fatalf("%+v", c)
	}
	if w := c.Warnings[0]; w.Line != 5 || !strings.Contains(w.Message, "over since 2020-01-01") || w.Hint == "" {
		t.Errorf("%+v", w)
	}
}

// A check ends with its context, and says so instead of calling the file valid.
func TestACheckEndsWithItsContext(t *testing.T) {
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	c, set := Text(ctx, "rules.yaml", []byte(expired), nil)
	if set != nil || c.OK || len(c.Errors) != 1 || !strings.Contains(c.Errors[0].Message, "enough") {
		t.Errorf("%+v", c)
	}
}
