package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const run = `not json: what make says
{"Action":"build-output","ImportPath":"x","Output":"x.go:1: no\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"bad: 1 is 2\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestAway","Output":"no server\n"}
{"Action":"skip","Package":"p","Test":"TestAway"}
{"Action":"output","Package":"p","Test":"TestLong","Output":"    x_test.go:1: make nightly runs it: kills\n"}
{"Action":"skip","Package":"p","Test":"TestLong"}
{"Action":"output","Package":"p","Test":"TestCut","Output":"panic: cut\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`

func TestDigest(t *testing.T) {
	var out strings.Builder
	seen := filepath.Join(t.TempDir(), "seen")
	if err := digest(strings.NewReader(run), &out, seen, ""); err != nil {
		t.Fatal(err)
	}
	want := "not json: what make says\nx.go:1: no\nbad: 1 is 2\nFAIL\tp\t0.1s\npanic: cut\nfailed: p TestBad\ndid not end: p TestCut\n1 passed, 1 failed, 2 skipped\n"
	if out.String() != want {
		t.Errorf("digest:\n%swant:\n%s", out.String(), want)
	}

	out.Reset()
	if err := reportNever(seen, nil, &out); err == nil || out.String() != "left to make nightly: kills, 1 tests\nnever run: p TestAway\n" {
		t.Errorf("%v: %s", err, out.String())
	}
	out.Reset()
	if err := printSkipped(seen, &out); err != nil || out.String() != "^(TestAway|TestLong)\\b\n" {
		t.Errorf("%v: what was skipped: %s", err, out.String())
	}
	elsewhere := `{"Action":"pass","Package":"p","Test":"TestAway"}`
	if err := digest(strings.NewReader(elsewhere), &out, seen, ""); err != nil {
		t.Fatal(err)
	}
	if err := reportNever(seen, []string{"site"}, &out); err != nil {
		t.Errorf("a test that was skipped once and ran once: %v", err)
	}
	out.Reset()
	if err := reportNever(seen, []string{"site", "kills"}, &out); err == nil || out.String() != "never run: p TestLong\n" {
		t.Errorf("a suite that should have run: %v: %s", err, out.String())
	}
}

// What a run's length comes from is said at its end.
func TestTheSlowestTestsAreNamed(t *testing.T) {
	var in, out strings.Builder
	for _, line := range []string{
		`"Test":"TestQuick","Elapsed":4.9`, `"Test":"TestSlow","Elapsed":6.04`, `"Test":"TestSlower","Elapsed":61`, `"Test":"TestSlower/part","Elapsed":60`, `"Elapsed":70`,
	} {
		in.WriteString(`{"Action":"pass","Package":"p",` + line + "}\n")
	}
	if err := digest(strings.NewReader(in.String()), &out, "", ""); err != nil {
		t.Fatal(err)
	}
	if want := "   61.0 s  p TestSlower\n    6.0 s  p TestSlow\n4 passed, 0 failed, 0 skipped\n"; out.String() != want {
		t.Errorf("digest:\n%swant:\n%s", out.String(), want)
	}
}

func TestARunWithoutTestsIsNoSuccess(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	if err := os.WriteFile(seen, []byte("skip p TestAway\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reportNever(seen, nil, &strings.Builder{}); err == nil {
		t.Error("nothing ran, and that was fine")
	}
}
