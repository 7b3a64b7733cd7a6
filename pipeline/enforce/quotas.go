package enforce

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/event"
)

// mostTold is the greatest number of limits in an answer: those with the least left.
const mostTold = 4

// Told is a Left as callers may see it.
type Told struct {
	Name        string // public
	Left, Limit int64
	After       time.Duration // from the question until it is over, in whole seconds, rounded up
	Per         time.Duration // the window's length; 0: it has no fixed one, or a fraction of a second
	Until       time.Time     // when it is over
	partition   string
}

// Tell returns what callers may see of what is left: of each name that with the least
// left, and of up to four names. What has no public name is left out.
func (a *Answers) Tell(all []Left) (told []Told) {
	for i := range all {
		l := &all[i]
		name := a.publicOf(l.Rule, l.Public).Name
		if name == "" || isTold(told, name) {
			continue
		}
		one := Told{Name: name, Left: whole(l.Left()), Limit: whole(l.Limit), After: upToSecond(l.Until.Sub(l.At)), Until: l.Until}
		if l.Per%time.Second == 0 {
			one.Per = l.Per
		}
		if len(a.PartitionKey) > 0 {
			one.partition = a.partition(event.FormatKey(l.Key))
		}
		if told = append(told, one); len(told) == mostTold {
			break
		}
	}
	return told
}

func isTold(told []Told, name string) bool {
	for i := range told {
		if told[i].Name == name {
			return true
		}
	}
	return false
}

// TellQuotas reports whether callers are told anything by Quotas.
func (a *Answers) TellQuotas() bool { return !a.NoRateLimit || a.XRateLimit }

// Quotas tells the caller of an allowed request what is left, by the fields that a denial has. What
// Admitted has told already stays first.
func (a *Answers) Quotas(h http.Header, all []Left) {
	if len(all) == 0 || !a.TellQuotas() {
		return
	}
	told := a.Tell(all)
	if len(told) == 0 {
		return
	}
	if !a.NoRateLimit {
		a.quotaFields(h, told)
	}
	if least := &told[0]; a.XRateLimit && h.Get("X-RateLimit-Limit") == "" {
		h.Set("X-RateLimit-Limit", strconv.FormatInt(least.Limit, 10))
		h.Set("X-RateLimit-Remaining", strconv.FormatInt(least.Left, 10))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(least.Until.Add(time.Second-1).Unix(), 10))
	}
}

// quotaFields appends to the fields RateLimit and RateLimit-Policy. A name that stands there already
// is of a permit, which knows better.
func (a *Answers) quotaFields(h http.Header, told []Told) {
	limits, policies := h.Get("RateLimit"), h.Get("RateLimit-Policy")
	first := firstName(limits)
	for i := range told {
		t := &told[i]
		name := sfString(t.Name)
		if name == first {
			continue
		}
		if limits != "" {
			limits, policies = limits+", ", policies+", "
		}
		limits += name + ";r=" + strconv.FormatInt(t.Left, 10) + ";t=" + strconv.FormatInt(int64(t.After/time.Second), 10) + t.partition
		policies += name + ";q=" + strconv.FormatInt(t.Limit, 10)
		if t.Per > 0 {
			policies += ";w=" + strconv.FormatInt(int64(t.Per/time.Second), 10)
		}
		policies += t.partition
	}
	h.Set("RateLimit", limits)
	h.Set("RateLimit-Policy", policies)
}

// firstName is the name, in quotes, that a field begins with.
func firstName(field string) string {
	for i := range field {
		if field[i] == ';' {
			return field[:i]
		}
	}
	return ""
}

// upToSecond is a time in whole seconds, rounded up.
func upToSecond(d time.Duration) time.Duration {
	return (min(d, math.MaxInt64-time.Second) + time.Second - 1).Truncate(time.Second)
}

// whole is a number as structured fields have it, rounded down.
func whole(d event.Decimal) int64 { return min(int64(max(d, 0)/event.One), maxSFInteger) }
