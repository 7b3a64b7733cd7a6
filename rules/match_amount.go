package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// maxWhole is the greatest whole Decimal: what a count of events saturates at.
const maxWhole = event.MaxDecimal - event.MaxDecimal%event.One

// count returns how much an event counts under the rule's limits, and which value, or why it doesn't.
func (m *Matcher) count(r *Rule, e *event.Event, weight int64) (n event.Decimal, value uint64, reason string) {
	if r.Count == CountDistinct {
		value, reason = m.value(r, e)
		return event.One, value, reason
	}
	n, reason = r.amount(e, weight)
	return n, 0, reason
}

// value is the hash that stands for what a rule tells apart: the first 64 bits of its SHA-256, so
// that nobody can make up values that look alike.
func (m *Matcher) value(r *Rule, e *event.Event) (hash uint64, reason string) {
	m.text = m.text[:0]
	switch {
	case r.Attr != "":
		if v, ok := e.Attr(r.Attr); ok {
			m.text = append(m.text, v.Text...)
		}
	case r.Field == "ip" && e.IP.IsValid():
		m.text = e.IP.Unmap().WithZone("").AppendTo(m.text)
	case r.Field == "api":
		m.text = append(m.text, e.API...)
	case r.Field == "uid":
		m.text = append(m.text, e.UID...)
	}
	if len(m.text) == 0 {
		return 0, SkipAbsent
	}
	sum := sha256.Sum256(m.text)
	return binary.LittleEndian.Uint64(sum[:]), ""
}

// amount returns how much an event counts under the rule, or why it doesn't.
func (r *Rule) amount(e *event.Event, weight int64) (n event.Decimal, reason string) {
	switch {
	case r.Count == CountEvents:
		return countAmount(e.Cost, weight)
	case r.Attr == "":
		return e.Cost.TimesInt(weight), ""
	}
	v, ok := e.Attr(r.Attr)
	switch {
	case !ok:
		return 0, SkipAbsent
	case v.Kind != event.Number:
		return 0, SkipNumber
	}
	return sumAmount(v.Text, weight, e.Cost)
}

// countAmount is weight × cost, when that is a whole number.
func countAmount(cost event.Decimal, weight int64) (event.Decimal, string) {
	// Modulo 1, so that nothing saturates before it is looked at.
	if !cost.Whole() && (cost%event.One).TimesInt(weight%int64(event.One))%event.One != 0 {
		return 0, SkipFraction
	}
	return min(cost.TimesInt(weight), maxWhole), ""
}

// sumAmount is number × weight × cost, exact and then cut to millionths.
func sumAmount(number string, weight int64, cost event.Decimal) (event.Decimal, string) {
	n, err := event.ParseDecimal(number)
	if err != nil {
		return sumAmountSlow(number, weight, cost)
	}
	if n < 0 {
		return 0, SkipNegative
	}
	weighed := n.TimesInt(weight)
	switch {
	case weighed == event.MaxDecimal:
	case cost == event.One:
		return weighed, ""
	default:
		return weighed.Times(cost), ""
	}
	return sumAmountSlow(number, weight, cost)
}

var decimalNumber = regexp.MustCompile(`^(-?)([0-9]+(?:\.[0-9]+)?)(?:[eE]([+-]?[0-9]+))?$`)

// sumAmountSlow is for numbers that are no Decimal: with digits beyond millionths, or too large.
func sumAmountSlow(number string, weight int64, cost event.Decimal) (event.Decimal, string) {
	// Beyond these powers of ten a number is too large, or cut to nothing, whatever its weight and
	// cost. It must not be expanded: 1e999999999 is a few bytes.
	const greatest, least = 100, -100
	parts := decimalNumber.FindStringSubmatch(number)
	if parts == nil {
		return 0, SkipNumber
	}
	whole, fraction, _ := strings.Cut(parts[2], ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if parts[1] != "" && digits != "" {
		return 0, SkipNegative
	}
	exponent := 0
	if parts[3] != "" {
		exponent, _ = strconv.Atoi(parts[3]) // out of range: the nearest int
		exponent = min(max(exponent, -1e9), 1e9)
	}
	switch power := exponent + len(digits) - len(fraction); { // 10^(power-1) <= number < 10^power
	case digits == "" || cost == 0 || power < least:
		return 0, ""
	case power > greatest:
		return event.MaxDecimal, ""
	}
	x, ok := new(big.Rat).SetString(parts[2] + "e" + strconv.Itoa(exponent))
	if !ok {
		return 0, SkipNumber
	}
	x.Mul(x, new(big.Rat).SetInt64(weight))
	x.Mul(x, new(big.Rat).SetInt64(int64(cost))) // in millionths already
	q := new(big.Int).Quo(x.Num(), x.Denom())
	if !q.IsInt64() {
		return event.MaxDecimal, ""
	}
	return event.Decimal(q.Int64()), ""
}
