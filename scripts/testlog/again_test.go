package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhichTestsMayRunAgain(t *testing.T) {
	fail := func(pkg, test string) string {
		return `{"Action":"fail","Package":"` + pkg + `","Test":"` + test + `"}` + "\n"
	}
	said := func(pkg, test, output string) string {
		return `{"Action":"output","Package":"` + pkg + `","Test":"` + test + `","Output":"` + output + `\n"}` + "\n"
	}
	for name, c := range map[string]struct{ log, want string }{
		"a process that ended": {`{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + fail("p", "TestA") + `{"Action":"run","Package":"p","Test":"TestB"}` + "\n" + fail("p", ""), ""},
		"all have ended": {
			`{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + fail("p", "TestA") + `{"Action":"run","Package":"p","Test":"TestB"}` + "\n" +
				`{"Action":"pass","Package":"p","Test":"TestB"}` + "\n" + fail("p", ""), "p TestA\n",
		},
		"none failed":                  {`{"Action":"pass","Package":"p","Test":"TestA"}`, ""},
		"a part of one":                {fail("p", "TestA/part") + fail("p", "TestA") + fail("p", ""), "p TestA\n"},
		"of two packages":              {fail("q", "TestB") + fail("q", "") + fail("p", "TestA") + fail("p", ""), ""},
		"two":                          {fail("p", "TestA") + fail("p", "TestB") + fail("p", ""), ""},
		"a package without a test":     {fail("p", "TestA") + fail("p", "") + fail("q", ""), ""},
		"one that does not compile":    {`{"Action":"build-output","ImportPath":"q","Output":"q.go:1: no\n"}` + "\n" + fail("p", "TestA") + fail("p", ""), ""},
		"a data race":                  {said("p", "TestB", raceMark) + fail("p", "TestA") + fail("p", ""), ""},
		"a panic":                      {said("p", "TestA", "panic: no") + fail("p", "TestA") + fail("p", ""), ""},
		"concurrent writes":            {said("p", "TestA", "fatal error: concurrent map writes") + fail("p", "TestA") + fail("p", ""), ""},
		"one that says the word panic": {said("p", "TestA", "    a.go:1: panic: no") + fail("p", "TestA") + fail("p", ""), "p TestA\n"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "again")
			if err := digest(strings.NewReader(c.log), &strings.Builder{}, "", file); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != c.want {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}
