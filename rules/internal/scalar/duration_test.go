package scalar

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]event.Micros{
		"0":               0,
		"0s":              0,
		"1ms":             1000,
		"90s":             90 * event.Second,
		"1h30m":           90 * event.Minute,
		"1m500ms":         event.Minute + 500*event.Millisecond,
		"7d":              7 * event.Day,
		"2w":              14 * event.Day,
		"1y":              365 * event.Day,
		"1y2w3d4h5m6s7ms": 365*event.Day + 17*event.Day + 4*event.Hour + 5*event.Minute + 6*event.Second + 7000,
	} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]error{
		"":                      errDurationUnit,
		"60":                    errDurationUnit,
		"1.5h":                  errDurationUnit,
		"-1h":                   errDurationUnit,
		"+1h":                   errDurationUnit,
		"h":                     errDurationUnit,
		"1h ":                   errDurationUnit,
		"1 h":                   errDurationUnit,
		"1h30":                  errDurationUnit,
		"1us":                   errDurationUnit,
		"1month":                errDurationUnit,
		"30m1h":                 errDurationOrder,
		"1h1h":                  errDurationOrder,
		"99999999999999999999s": errDurationRange,
		"300000y":               errDurationRange,
		"292471y300d":           errDurationRange,
	} {
		if got, err := ParseDuration(text); !errors.Is(err, want) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestDurationsReadAsTheyAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := event.Micros(rapid.Int64Range(1, 1<<40).Draw(t, "milliseconds")) * event.Millisecond
		if got, err := ParseDuration(FormatDuration(d)); got != d || err != nil {
			t.Fatalf("%d is written %s and read %d, %v", d, FormatDuration(d), got, err)
		}
	})
}

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "100k": "100000", "1.5M": "1500000", "1Ki": "1024", "1KiB": "1024", "1kB": "1000", "2MB": "2000000",
		"1GiB": "1073741824", "0.000001": "0.000001", "0.5Ki": "512", "9000G": "9000000000000", "100B": "100",
		"1.0000000": "1", "0.0000001k": "0.0001",
	} {
		got, problem, _ := ParseNumber(text)
		if got.String() != want || problem != "" {
			t.Errorf("%s: %s, %s", text, got, problem)
		}
	}
	for _, text := range []string{
		"", "0", "0.0", "-1", "+1", "1.", ".5", "1..2", "1.2.3", "1e3", "0x10", "1_000", "1,000", "1K", "1m", "1 k", "ten",
		"0.0000001", "9000.1G", "9000000000001", "1T", "1Bk", "99999999999999999999999999999999999999999999",
	} {
		if got, problem, _ := ParseNumber(text); problem == "" {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// Units that are out of order are sorted; what is longer than any duration is not guessed.
func TestDurationsOutOfOrder(t *testing.T) {
	for text, want := range map[string]string{"30m1h": "1h30m", "1h1h": "2h", "300d292471y": "", "200000y200000y": "", "1h30m": ""} {
		if got := inOrder(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
