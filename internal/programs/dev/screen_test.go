package dev

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

func testScreen() (*screen, *bytes.Buffer) {
	var out bytes.Buffer
	return newScreen(&out, prometheus.NewRegistry(), "127.0.0.1:1", "127.0.0.1:2"), &out
}

func verdictOf(uid string, seq int64, since, until event.Micros) verdict.Verdict {
	return verdict.Verdict{Rule: "r", Key: []event.Dim{{Name: "uid", Value: uid}}, Action: verdict.ActBlock,
		APIs: []string{"a.*"}, Count: 4 * event.One, Limit: 3 * event.One, Since: since, Until: until, Seq: seq}
}

// told returns a summary's present text.
func told(s *screen) string {
	y := s.summary(now())
	return y.String()
}

// A block is shown once, however often its end moves, and again when it is issued again.
func TestScreenShowsAVerdictOnce(t *testing.T) {
	s, out := testScreen()
	at := now()
	lines := func(want int, about string) {
		t.Helper()
		if got := strings.Count(out.String(), "block "); got != want {
			t.Errorf("%s: %d lines, want %d:\n%s", about, got, want, out)
		}
	}
	s.Apply(0, []verdict.Verdict{verdictOf("1", 1, at, at+event.Minute)})
	lines(1, "it is issued")
	s.Apply(0, []verdict.Verdict{verdictOf("1", 2, at, at+2*event.Minute)})
	lines(1, "its end moves")
	s.Replace(0, []verdict.Verdict{verdictOf("1", 2, at, at+2*event.Minute)})
	lines(1, "a new snapshot has it")
	s.Apply(0, []verdict.Verdict{verdictOf("1", 1, at-event.Minute, at)})
	lines(1, "an older one comes late")
	if n := s.inForce(at); n != 1 {
		t.Errorf("%d in force", n)
	}
	cleared := verdictOf("1", 3, at, at)
	cleared.State = verdict.Clear
	s.Apply(0, []verdict.Verdict{cleared})
	if !strings.Contains(out.String(), "clear ") || s.inForce(at) != 0 {
		t.Errorf("a clear is not shown, or %d are in force", s.inForce(at))
	}
	s.Apply(0, []verdict.Verdict{verdictOf("1", 4, at+event.Second, at+event.Minute)})
	lines(2, "it is issued again")
	if strings.Count(out.String(), "try it") != 1 {
		t.Errorf("the curl line is not there once:\n%s", out)
	}
}

// Of what a snapshot holds, only what is in force is news.
func TestScreenLeavesOutThePast(t *testing.T) {
	s, out := testScreen()
	at := now()
	old := verdictOf("1", 1, at-event.Hour, at-event.Minute)
	cleared := verdictOf("2", 2, at, at)
	cleared.State = verdict.Clear
	s.Replace(0, []verdict.Verdict{old, cleared})
	if out.Len() > 0 {
		t.Errorf("shown: %s", out)
	}
	s.inForce(at + 2*event.Hour)
	if len(s.shown) != 0 {
		t.Errorf("%d are never forgotten", len(s.shown))
	}
}

// What could not be pasted into a shell, or is not denied by a uid alone, makes no curl line.
func TestScreenOffersOnlyWhatWorks(t *testing.T) {
	at := now()
	shadow := verdictOf("1", 1, at, at+event.Minute)
	shadow.Mode = verdict.Shadow
	byIP := verdictOf("1", 1, at, at+event.Minute)
	byIP.Key[0].Name = "ip"
	for about, v := range map[string]verdict.Verdict{
		"shadow": shadow, "another dimension": byIP, "a quote": verdictOf("o'hara", 1, at, at+event.Minute),
	} {
		s, out := testScreen()
		s.Apply(0, []verdict.Verdict{v})
		if !strings.Contains(out.String(), "4 of 3") || strings.Contains(out.String(), "try it") {
			t.Errorf("%s:\n%s", about, out)
		}
	}
}

func TestSummaryTellsOfStaleness(t *testing.T) {
	for behind, want := range map[float64]bool{1.7: false, 12: true} {
		s, _ := testScreen()
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tallygate_blocklist_staleness_seconds"})
		g.Set(behind)
		s.registry.MustRegister(g)
		if text := told(s); strings.Contains(text, "the blocklist is 12 s behind") != want {
			t.Errorf("%v s: %s", behind, text)
		}
	}
}

// Of the two latencies the summary has what came since the last one; a snapshot's blocks are in
// neither.
func TestSummaryTellsOfLatencies(t *testing.T) {
	s, _ := testScreen()
	histogram := func(name string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name})
		s.registry.MustRegister(h)
		return h
	}
	verdicts, blocks := histogram(toVerdict), histogram(toEnforced)
	verdicts.Observe(0.002)
	verdicts.Observe(0.004)
	if text := told(s); !strings.HasSuffix(text, "; verdict latency 3.0 ms") {
		t.Errorf("no block: %s", text)
	}
	verdicts.Observe(0.005)
	blocks.Observe(0.0075)
	if text := told(s); !strings.HasSuffix(text, "; verdict latency 5.0 ms; denied after 7.5 ms") {
		t.Errorf("one of each: %s", text)
	}
	if text := told(s); strings.Contains(text, "latency") || strings.Contains(text, "denied") {
		t.Errorf("nothing new: %s", text)
	}
}

// The sample is replayed without long gaps and without bursts: its whole log is in the sixth
// minute of each hour.
func TestSampleIsSpreadOverItsHours(t *testing.T) {
	events, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	tenSeconds := map[event.Micros]int{} // events of each ten seconds of log time
	last := events[0].Time
	for _, e := range events {
		if gap := (e.Time - last).Duration(); gap < 0 || gap > 10*time.Minute {
			t.Errorf("%v after the one before", gap)
		}
		last = e.Time
		tenSeconds[e.Time/(10*event.Second)]++
	}
	for at, n := range tenSeconds {
		if n > 20 {
			t.Errorf("%d events within ten seconds, at %v", n, (at * 10 * event.Second).Time())
		}
	}
	if days := (last - events[0].Time).Duration().Hours() / 24; days < 3 || days > 4 {
		t.Errorf("%.1f days", days)
	}
}

// The second round's events are others than the first's, and its refunds name its own.
func TestLaterRoundsHaveIDsOfTheirOwn(t *testing.T) {
	first, second := player{round: 1}, player{round: 2}
	if first.again("e1") != "e1" || second.again("e1") != "2-e1" || second.again("") != "" {
		t.Errorf("%q %q %q", first.again("e1"), second.again("e1"), second.again(""))
	}
}
