package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/ruletest"
)

const gallery = "../../../testdata/rules"

// galleryFiles are the gallery's rule files, without their tests.
func galleryFiles(t *testing.T) (out []string) {
	t.Helper()
	all, err := filepath.Glob(gallery + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if isRuleFile(filepath.Base(path)) {
			out = append(out, path)
		}
	}
	if len(out) < 20 {
		t.Fatalf("the gallery has %d rule files", len(out))
	}
	return out
}

// What people copy is right: check has nothing to say of it, and an editor underlines nothing.
func TestGalleryIsGood(t *testing.T) {
	schema := ruleSchema(t)
	for _, path := range galleryFiles(t) {
		c := checkFile(t.Context(), path)
		for _, e := range c.Errors {
			t.Error(e)
		}
		for _, w := range c.Warnings {
			if !strings.Contains(w.Message, "is over since") { // a date that people change, when this runs years later
				t.Error(w.String())
			}
		}
		if want := strings.TrimSuffix(filepath.Base(path), ".yaml"); c.Name != want {
			t.Errorf("%s: the set is called %q, want the file's name", path, c.Name)
		}
		if err := validate(t, schema, path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Each rule of the gallery does what its tests say, and its tests reach every limit.
func TestGalleryDoesWhatItsTestsExpect(t *testing.T) {
	for _, path := range galleryFiles(t) {
		tests := strings.TrimSuffix(path, ".yaml") + "_test.yaml"
		t.Run(filepath.Base(path), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := ruletest.Command(testrun.Context(t), []string{tests}, nil, &stdout, &stderr, testrun.NoEnv)
			if status != 0 || strings.Contains(stdout.String(), "no test reaches") {
				t.Errorf("exit status %d\n%s%s", status, &stdout, &stderr)
			}
		})
	}
}

var shown = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// The page links every file of the gallery, and what it shows is in one of them.
func TestGalleryPageIsWhole(t *testing.T) {
	page := readText(t, "../../../docs/gallery.md")
	var all strings.Builder
	for _, path := range galleryFiles(t) {
		if link := "(../testdata/rules/" + filepath.Base(path) + ")"; !strings.Contains(page, link) {
			t.Errorf("docs/gallery.md does not link %s", link)
		}
		all.WriteString(readText(t, path))
	}
	rules := shown.FindAllStringSubmatch(page, -1)
	if len(rules) < 5 {
		t.Errorf("docs/gallery.md shows %d rules", len(rules))
	}
	for _, m := range rules {
		inFile := "    " + strings.ReplaceAll(strings.TrimSpace(m[1]), "\n", "\n    ") + "\n"
		if !strings.Contains(all.String(), inFile) {
			t.Errorf("docs/gallery.md shows what is in no file:\n%s", m[1])
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}
