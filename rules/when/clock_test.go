package when

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
)

func TestWhatFollowsTheMinutesIsFine(t *testing.T) {
	for source, fine := range map[string]bool{
		`time.Hour() >= 22 or time.Hour() < 6`:                                                            false,
		`time.In(timezone("Asia/Kathmandu")).Hour() < 6`:                                                  false,
		`int(time.Weekday()) in [0, 6] and time.UTC().Day() > 3`:                                          false,
		`time.Weekday().String() == "Sunday" or string(time.In(timezone("Asia/Tokyo")).Month()) == "May"`: false,
		`time >= date("2026-11-27") and time.Before(date("2026-11-28T12:34:56Z"))`:                        false,
		`attrs.plan == "pro" and time.YearDay() == 1`:                                                     false,
		`let at = time; at.Hour() < 6`:                                                                    true,
		`time.Hour() * 60 + time.Minute() > 750`:                                                          true,
		`time.In(timezone("Asia/Tokyo")).Minute() < 30`:                                                   true,
		`time.Format("15:04") > "12:30"`:                                                                  true,
		`time.String() contains " 12:3"`:                                                                  true,
		`string(time) contains " 12:3"`:                                                                   true,
		`string(time.UTC()) contains " 12:3"`:                                                             true,
		`time.Unix() % 3600 < 60`:                                                                         true,
		`time - date("2026-11-27") < duration("90s")`:                                                     true,
		`(time - date("2026-11-27")).Hours() > 3`:                                                         true,
	} {
		if p, mistakes := Compile(source, utc{}); p == nil {
			t.Errorf("%s: %v", source, mistakes)
		}
		if got := Fine(source); got != fine {
			t.Errorf("%s: fine is %v, want %v", source, got, fine)
		}
	}
}

// Of no event only the time is known: not even that its API is none, or its cost 0.
func TestOfNoEventOnlyTheTimeIsKnown(t *testing.T) {
	at := event.FromTime(time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC))
	for source, want := range map[string]Answer{
		`time.Hour() >= 22`:                         Yes,
		`time.Hour() < 22`:                          No,
		`time.Hour() < 22 and attrs.plan == "pro"`:  No,
		`time.Hour() >= 22 and attrs.plan == "pro"`: Maybe,
		`time.Hour() >= 22 and api == "x"`:          Maybe,
		`time.Hour() >= 22 and cost > 1`:            Maybe,
		`time.Hour() < 22 and uid != nil`:           No,
		`outcome == "success" or time.Hour() >= 22`: Maybe,
		`attrs.plan == nil`:                         Maybe,
		`time.Hour() / 0 > 1 and time.Day() == 1`:   No,
	} {
		ev, _, parts := mayEvaluator(t, source)
		if got := ev.May(parts, nil, at); got != want {
			t.Errorf("%s: %v, want %v", source, got, want)
		}
		ev.Next()
		if got := ev.May(parts, nil, event.NoTime); got == Yes {
			t.Errorf("%s: it holds at no time", source)
		}
	}
}
