package event

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// ErrDecimal says that a text is no Decimal: no number, more than six fraction digits, or
// beyond ±MaxDecimal.
var ErrDecimal = errors.New("event: not a decimal of at most 6 fraction digits")

// ParseDecimal reads a JSON number exactly: 1, 0.5, -3, 1e3. Zeros behind the sixth fraction digit
// are let go; any other digit there is an error, and so is a number beyond ±MaxDecimal.
func ParseDecimal(text string) (Decimal, error) {
	if d, ok := smallWhole(text); ok {
		return d, nil
	}
	n, ok := splitNumber(text)
	if !ok {
		return 0, fmt.Errorf("%w: %.40q", ErrDecimal, text)
	}
	d, exact := n.decimal()
	if !exact {
		return 0, fmt.Errorf("%w: %.40q", ErrDecimal, text)
	}
	return d, nil
}

// smallWhole reads what most numbers are: a few digits and nothing else.
func smallWhole(text string) (Decimal, bool) {
	const most = 12 // digits that cannot overflow
	if len(text) == 0 || len(text) > most || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	var d Decimal
	for i := range len(text) {
		c := text[i] - '0'
		if c > 9 {
			return 0, false
		}
		d = d*10 + Decimal(c)
	}
	return d * One, true
}

// decimal returns n cut to millionths, saturating, and whether that is n.
func (n *number) decimal() (d Decimal, exact bool) {
	u, rest, over := n.scaled(decimalSize)
	if over || u > math.MaxInt64 {
		return signed(uint64(MaxDecimal), n.neg), false
	}
	return signed(u, n.neg), !rest
}

// rounded returns the millionths that n is nearest to, if it is less than a billionth away: so much is
// what programs are wrong by that add amounts as binary numbers, such as 0.1 and 0.2. ok is false for
// any other number, and for what would be 0.
func (n *number) rounded() (d Decimal, ok bool) {
	u, _, over := n.scaled(decimalSize + 3)
	if over {
		return 0, false
	}
	switch u % 1000 {
	case 0:
		u /= 1000
	case 999:
		u = u/1000 + 1
	default:
		return 0, false
	}
	return signed(u, n.neg), u > 0
}

// AppendTo appends the shortest decimal text to dst: 1, 0.5, -1048576.
func (d Decimal) AppendTo(dst []byte) []byte {
	if d < 0 {
		dst = append(dst, '-')
	}
	u := d.abs()
	dst = strconv.AppendUint(dst, u/uint64(One), 10)
	frac := u % uint64(One)
	if frac == 0 {
		return dst
	}
	dst = append(dst, '.')
	for unit := uint64(One) / 10; frac > 0; unit /= 10 {
		dst = append(dst, '0'+byte(frac/unit))
		frac %= unit
	}
	return dst
}

// AppendText is AppendTo as an [encoding.TextAppender]; it never fails.
func (d Decimal) AppendText(dst []byte) ([]byte, error) { return d.AppendTo(dst), nil }

// String returns the shortest decimal text: 1, 0.5, -1048576.
func (d Decimal) String() string { return string(d.AppendTo(nil)) }

// MarshalJSON returns the exact decimal as a JSON number.
func (d Decimal) MarshalJSON() ([]byte, error) { return d.AppendTo(nil), nil }

// UnmarshalJSON reads a JSON number as ParseDecimal does. null changes nothing.
func (d *Decimal) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	x, err := ParseDecimal(string(data))
	if err == nil {
		*d = x
	}
	return err
}
