package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"strings"
	"testing"
)

// published are the files of others, as they are in their packages: htmx.org 2.0.11, htmx-ext-sse 2.2.4 and
// idiomorph 0.8.0 of npm.
var published = map[string]string{
	"htmx-2.0.11.min.js":         "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
	"htmx-ext-sse-2.2.4.min.js":  "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136",
	"idiomorph-ext-0.8.0.min.js": "5811b9a7eda14878b7dab4378bf60432e1bb6f11fcfb970cc26540642650181e",
	"htmx.LICENSE":               "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
	"htmx-ext-sse.LICENSE":       "a17d224ce9afdc21ec9491b76a2f5d036d19aa641ac4f85ca29c21f9f7e54fdf",
	"idiomorph.LICENSE":          "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
}

// What others have written is served as they published it, with their licences.
func TestFilesOfOthers(t *testing.T) {
	found := 0
	err := fs.WalkDir(staticFiles, "static/vendor", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := staticFiles.ReadFile(file)
		hash := sha256.Sum256(content)
		if want := published[path.Base(file)]; want != hex.EncodeToString(hash[:]) {
			t.Errorf("%s is not what was published: %x", file, hash)
		}
		found++
		return err
	})
	if err != nil || found != len(published) {
		t.Errorf("%d files: %v", found, err)
	}
}

// Templates have no markup that the policy refuses.
func TestTemplatesHaveNothingInline(t *testing.T) {
	err := fs.WalkDir(templateFiles, "templates", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := templateFiles.ReadFile(file)
		for _, inline := range []string{"<style", " style=", " onclick", " onchange", "<script>", "javascript:", "hx-on"} {
			if strings.Contains(string(text), inline) {
				t.Errorf("%s has %s", file, inline)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
