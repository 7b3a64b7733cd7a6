package rules

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// MaxLimit is the greatest limit: nine trillion.
const MaxLimit = 9_000_000_000_000 * event.One

// suffixes of limits; each may be followed by B.
var suffixes = map[string]int64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
}

// parseNumber reads a positive number of at most MaxLimit, such as 100, 1.5k or 1MiB. When
// it is none, problem says why and hint what may have been meant.
func parseNumber(s string) (n event.Decimal, problem, hint string) {
	const longest = 40
	cut := len(s) - len(strings.TrimLeft(s, "0123456789."))
	number, suffix := s[:cut], s[cut:]
	whole, fraction, point := strings.Cut(number, ".")
	factor, ok := suffixes[strings.TrimSuffix(suffix, "B")]
	switch {
	case strings.HasPrefix(s, "-"):
		return 0, fmt.Sprintf("%s is negative", shortened(s)), ""
	case whole == "" || point && (fraction == "" || strings.Contains(fraction, ".")) || len(s) > longest:
		return 0, fmt.Sprintf("%q is not a number", shortened(s)), "write it as 100, 100k or 1MiB"
	case !ok:
		return 0, fmt.Sprintf("%q is not a number", shortened(s)), numberHint(number, suffix)
	}
	millionths, _ := new(big.Int).SetString(whole+fraction, 10)
	millionths.Mul(millionths, big.NewInt(factor))
	millionths.Mul(millionths, big.NewInt(int64(event.One)))
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil)
	if _, rest := millionths.QuoRem(millionths, scale, new(big.Int)); rest.Sign() != 0 {
		return 0, fmt.Sprintf("%s has more than six digits after the point", s), ""
	}
	switch {
	case millionths.Sign() == 0:
		return 0, fmt.Sprintf("%s is not positive", s), ""
	case millionths.Cmp(big.NewInt(int64(MaxLimit))) > 0:
		return 0, fmt.Sprintf("%s is more than nine trillion (9000G)", s), ""
	}
	return event.Decimal(millionths.Int64()), "", ""
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

func shortened(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
