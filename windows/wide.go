package windows

import "math/bits"

// wide is a number of 128 bits, not below zero.
type wide struct{ hi, lo uint64 }

// wideMax is the greatest sum: larger ones saturate.
var wideMax = wide{hi: 1 << 62}

func product(a, b uint64) wide {
	hi, lo := bits.Mul64(a, b)
	return wide{hi, lo}
}

// plus saturates at wideMax. Both are less than twice that, so that no sum overflows.
func (w wide) plus(x wide) wide {
	lo, carry := bits.Add64(w.lo, x.lo, 0)
	hi, _ := bits.Add64(w.hi, x.hi, carry)
	if sum := (wide{hi, lo}); sum.less(wideMax) {
		return sum
	}
	return wideMax
}

// minus is not less than zero.
func (w wide) minus(x wide) wide {
	lo, borrow := bits.Sub64(w.lo, x.lo, 0)
	hi, under := bits.Sub64(w.hi, x.hi, borrow)
	if under != 0 {
		return wide{}
	}
	return wide{hi, lo}
}

// over divides and rounds up, to at most most.
func (w wide) over(d, most uint64) uint64 {
	if w.hi >= d {
		return most
	}
	q, rest := bits.Div64(w.hi, w.lo, d)
	if q >= most {
		return most
	}
	if rest > 0 {
		q++
	}
	return q
}

func (w wide) less(x wide) bool { return w.hi < x.hi || w.hi == x.hi && w.lo < x.lo }
