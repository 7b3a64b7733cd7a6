package rules

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what the golden files should hold")

// Each file in testdata/bad is a mistake that a person makes, with what it is told beside it.
func TestBadRuleFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			set, err := Compile(filepath.Base(path), src)
			if err == nil {
				t.Fatalf("compiled to %d rules", len(set.Rules))
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

// Each file in testdata/good compiles; its warnings are beside it when it has any.
func TestGoodRuleFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			set, err := Compile(filepath.Base(path), src)
			if err != nil {
				t.Fatalf("it does not compile:\n%v", err)
			}
			var b strings.Builder
			for _, w := range set.Warnings {
				b.WriteString(w.String() + "\n")
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".txt", b.String())
		})
	}
}

// topTest is the name of the test function.
func topTest(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// golden compares with a file; text that is empty has none.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		err := os.WriteFile(path, []byte(got), 0o644)
		if got == "" {
			err = os.RemoveAll(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil && (!os.IsNotExist(err) || got != "") {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; if it should, write it: go test ./rules -run %s -rewrite\n--- want\n%s--- got\n%s", path, topTest(t), want, got)
	}
}
