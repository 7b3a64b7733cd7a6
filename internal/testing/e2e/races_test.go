package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// aRaceIsWanted is set where this test binary runs as a program with a data race.
const aRaceIsWanted = "TALLYGATE_TEST_RACE"

func race() {
	n := 0
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { n++ })
	}
	wg.Wait()
}

// What the race detector sees in a program is told whole, and apart from its log.
func TestARaceOfAProgramIsTold(t *testing.T) {
	if !raceEnabled() {
		t.Skip("the race detector is off")
	}
	t.Setenv(aRaceIsWanted, "1")
	p := newProcess(t, "racy", os.Args[0])
	p.Start().wait()
	reports := p.dataRaces()
	p.races = filepath.Join(t.TempDir(), "none") // this one is wanted
	if len(reports) != 1 || strings.Count(reports[0], "e2e.race.func1()") != 2 || strings.Count(reports[0], "==================\n") != 2 {
		t.Errorf("reports: %q", reports)
	}
	if strings.Contains(p.Logs(), "DATA RACE") {
		t.Errorf("the log has it: %s", p.Logs())
	}
}
