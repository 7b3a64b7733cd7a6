package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const racyRun = `{"Action":"output","Package":"p","Test":"TestGood","Output":"==================\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"q","Test":"TestElsewhere","Output":"chatter\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"Read at 1\n"}
{"Action":"output","Package":"p","Test":"TestOther","Output":"  Previous write at 1\n"}
{"Action":"output","Package":"p","Test":"TestOther","Output":"==================\n"}
{"Action":"output","Package":"p","Test":"TestOther","Output":"chatter\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"race detected during execution of test\n"}
{"Action":"pass","Package":"p","Test":"TestOther"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"q","Test":"TestElsewhere","Output":"        WARNING: DATA RACE\n"}
{"Action":"output","Package":"q","Test":"TestElsewhere","Output":"        Read at 2\n"}
{"Action":"pass","Package":"q","Test":"TestElsewhere"}
`

// A report stands in the output of tests that pass. It was dropped with that.
func TestDataRacesArePrintedWhole(t *testing.T) {
	var out strings.Builder
	if err := digest(strings.NewReader(racyRun), &out, filepath.Join(t.TempDir(), "seen"), ""); err != nil {
		t.Fatal(err)
	}
	want := `=== a data race, in the output of p TestGood
WARNING: DATA RACE
Read at 1
  Previous write at 1
==================
race detected during execution of test
=== a data race, in the output of q TestElsewhere
        WARNING: DATA RACE
        Read at 2
failed: p TestBad
3 passed, 1 failed, 0 skipped
`
	if out.String() != want {
		t.Errorf("digest:\n%swant:\n%s", out.String(), want)
	}
}
