package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

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
			testrun.Golden(t, strings.TrimSuffix(path, ".yaml")+".txt", err.Error()+"\n")
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
			testrun.Golden(t, strings.TrimSuffix(path, ".yaml")+".txt", b.String())
		})
	}
}

// topTest is the name of the test function.
func topTest(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}
