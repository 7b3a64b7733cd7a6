package scalar

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// MaxLimit is the greatest limit: nine trillion.
const MaxLimit = 9_000_000_000_000 * event.One

// suffixes of limits; each may be followed by B.
var suffixes = map[string]int64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
}

// ParseNumber reads a positive number of at most MaxLimit, such as 100, 1.5k or 1MiB. When
// it is none, problem says why and hint what may have been meant.
func ParseNumber(s string) (n event.Decimal, problem, hint string) {
	if n, problem, hint = ParseLimit(s); problem == "" && n == 0 {
		problem = fmt.Sprintf("%s is not positive", s)
	}
	return n, problem, hint
}

// ParseLimit is ParseNumber for a number that may be 0.
func ParseLimit(s string) (n event.Decimal, problem, hint string) {
	const longest = 40
	cut := len(s) - len(strings.TrimLeft(s, "0123456789."))
	number, suffix := s[:cut], s[cut:]
	whole, fraction, point := strings.Cut(number, ".")
	factor, ok := suffixes[strings.TrimSuffix(suffix, "B")]
	switch {
	case strings.HasPrefix(s, "-"):
		return 0, fmt.Sprintf("%s is negative", Shortened(s)), ""
	case whole == "" || point && (fraction == "" || strings.Contains(fraction, ".")) || len(s) > longest:
		return 0, fmt.Sprintf("%q is not a number", Shortened(s)), "write it as 100, 100k or 1MiB"
	case !ok:
		return 0, fmt.Sprintf("%q is not a number", Shortened(s)), numberHint(number, suffix)
	}
	millionths, _ := new(big.Int).SetString(whole+fraction, 10)
	millionths.Mul(millionths, big.NewInt(factor))
	millionths.Mul(millionths, big.NewInt(int64(event.One)))
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil)
	if _, rest := millionths.QuoRem(millionths, scale, new(big.Int)); rest.Sign() != 0 {
		return 0, fmt.Sprintf("%s has more than six digits after the point", s), ""
	}
	if millionths.Cmp(big.NewInt(int64(MaxLimit))) > 0 {
		return 0, fmt.Sprintf("%s is more than nine trillion (9000G)", s), ""
	}
	return event.Decimal(millionths.Int64()), "", ""
}

var (
	underscored = regexp.MustCompile(`^[0-9]+_[0-9_]*`)
	otherBase   = regexp.MustCompile(`^0(x[0-9a-fA-F]+|o[0-7]+|b[01]+)$`)
	scientific  = regexp.MustCompile(`^[0-9]*\.?[0-9]*[eE][+-]?[0-9]{1,2}$`)
	openEnded   = regexp.MustCompile(`^([0-9]+\.|\.[0-9]+)$`)
)

// PlainNumber writes what YAML reads as a number, and editors with it, in plain decimals: 1_000, 0x10, 1e3, .5, +5.
// Any other text it returns as it is.
func PlainNumber(s string) string {
	if unsigned, ok := strings.CutPrefix(s, "+"); ok && Digits(unsigned) > 0 {
		s = unsigned
	}
	if head := underscored.FindString(s); head != "" {
		s = strings.ReplaceAll(head, "_", "") + s[len(head):]
	}
	switch {
	case otherBase.MatchString(s):
		if n, err := strconv.ParseUint(s, 0, 63); err == nil {
			return strconv.FormatUint(n, 10)
		}
	case scientific.MatchString(s) || openEnded.MatchString(s):
		if r, ok := new(big.Rat).SetString(s); ok {
			return strings.TrimSuffix(strings.TrimRight(r.FloatString(20), "0"), ".")
		}
	}
	return s
}

func numberHint(number, suffix string) string {
	if strings.EqualFold(suffix, "k") || strings.EqualFold(suffix, "kB") {
		return fmt.Sprintf("a thousand is %sk, 1024 is %sKi", number, number)
	}
	for _, meant := range []string{"M", "MB", "G", "GB", "Ki", "KiB", "Mi", "MiB", "Gi", "GiB"} {
		if strings.EqualFold(suffix, meant) {
			return fmt.Sprintf("did you mean %s%s?", number, meant)
		}
	}
	switch suffix = strings.TrimSpace(suffix); {
	case suffixes[strings.TrimSuffix(suffix, "B")] > 0:
		return fmt.Sprintf("write it as %s%s", number, suffix)
	case strings.HasPrefix(suffix, "/"):
		return fmt.Sprintf("write limit: %s, and the time as per:", number)
	}
	return "write it as 100, 100k or 1MiB"
}

// Shortened is a text as messages quote it, without what is far behind.
func Shortened(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
