package event

import (
	"math"
	"strconv"
	"strings"
)

// number is a JSON number taken apart: ±(whole . frac) · 10^exp. It is never expanded, so
// that a few bytes such as 1e999999999 cost no more than what they are.
type number struct {
	neg         bool
	whole, frac string // digits, as written
	exp         int    // held within ±maxRawExp
}

const (
	maxRawExp   = 2_000_000_000 // what a longer exponent is cut to while it is read
	maxExp      = 999_999_999   // the greatest exponent of a number in scientific form
	maxPlain    = 40            // digits up to which a number is written without exponent
	decimalSize = 6             // fraction digits of a Decimal
)

// splitNumber takes s apart. It accepts exactly JSON's grammar.
func splitNumber(s string) (n number, ok bool) {
	if strings.HasPrefix(s, "-") {
		n.neg, s = true, s[1:]
	}
	w := digits(s)
	if w == 0 || (w > 1 && s[0] == '0') {
		return n, false
	}
	n.whole, s = s[:w], s[w:]
	if strings.HasPrefix(s, ".") {
		f := digits(s[1:])
		if f == 0 {
			return n, false
		}
		n.frac, s = s[1:1+f], s[1+f:]
	}
	if s == "" {
		return n, true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return n, false
	}
	n.exp, ok = exponent(s[1:])
	return n, ok
}

func exponent(s string) (exp int, ok bool) {
	neg := false
	if s != "" && (s[0] == '+' || s[0] == '-') {
		neg, s = s[0] == '-', s[1:]
	}
	if s == "" || digits(s) != len(s) {
		return 0, false
	}
	for i := 0; i < len(s) && exp < maxRawExp; i++ {
		exp = exp*10 + int(s[i]-'0')
	}
	exp = min(exp, maxRawExp)
	if neg {
		exp = -exp
	}
	return exp, true
}

func digits(s string) int {
	i := 0
	for i < len(s) && s[i]-'0' <= 9 {
		i++
	}
	return i
}

// digit returns the k-th digit, counted through whole and frac.
func (n *number) digit(k int) byte {
	if k < len(n.whole) {
		return n.whole[k] - '0'
	}
	return n.frac[k-len(n.whole)] - '0'
}

// significant returns which digits are left without the zeros at both ends; from = to for 0.
func (n *number) significant() (from, to int) {
	to = len(n.whole) + len(n.frac)
	for from < to && n.digit(from) == 0 {
		from++
	}
	for to > from && n.digit(to-1) == 0 {
		to--
	}
	return from, to
}

// scaled returns |n|·10^places cut to a whole number, whether something was cut off, and
// whether it is beyond a uint64.
func (n *number) scaled(places int) (u uint64, rest, over bool) {
	from, to := n.significant()
	if from == to {
		return 0, false, false
	}
	count := len(n.whole) - from + n.exp + places // digits before the point, once scaled
	if count <= 0 {
		return 0, true, false
	}
	if count > 20 {
		return 0, false, true
	}
	for k := from; k < from+count; k++ {
		var c uint64
		if k < to {
			c = uint64(n.digit(k))
		}
		if u > (math.MaxUint64-c)/10 {
			return 0, false, true
		}
		u = u*10 + c
	}
	return u, from+count < to, false
}

// canonicalNumber returns the one text of a number's value: plain as long as that takes at most
// maxPlain digits (42, 0.5, 1000), scientific beyond (1.5e60, 1e-50). buf is what it may
// build in; a text that is canonical already is returned as it is. It refuses exponents beyond
// ±maxExp, which no two programs read alike.
func canonicalNumber(s string, buf []byte) (text string, rest []byte, ok bool) {
	if n := digits(s); n == len(s) && n > 0 && n <= maxPlain && (s[0] != '0' || n == 1) {
		return s, buf, true
	}
	n, ok := splitNumber(s)
	if !ok {
		return "", buf, false
	}
	from, to := n.significant()
	if from == to {
		return "0", buf, true
	}
	// ±0.ddd · 10^point
	point := len(n.whole) - from + n.exp
	if point-1 > maxExp || point-1 < -maxExp {
		return "", buf, false
	}
	start := len(buf)
	if n.neg {
		buf = append(buf, '-')
	}
	count := to - from
	switch {
	case max(point, 1)+max(count-point, 0) > maxPlain: // whole digits + fraction digits
		buf = n.appendDigits(buf, from, from+1)
		if count > 1 {
			buf = n.appendDigits(append(buf, '.'), from+1, to)
		}
		buf = strconv.AppendInt(append(buf, 'e'), int64(point-1), 10)
	case point <= 0:
		buf = append(buf, "0."...)
		buf = appendZeros(buf, -point)
		buf = n.appendDigits(buf, from, to)
	case point >= count:
		buf = n.appendDigits(buf, from, to)
		buf = appendZeros(buf, point-count)
	default:
		buf = n.appendDigits(buf, from, from+point)
		buf = n.appendDigits(append(buf, '.'), from+point, to)
	}
	return sharedString(buf[start:]), buf, true
}

func (n *number) appendDigits(dst []byte, from, to int) []byte {
	for k := from; k < to; k++ {
		dst = append(dst, '0'+n.digit(k))
	}
	return dst
}

func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}
