package layers

import (
	"path/filepath"
	"strings"
	"testing"
)

// The Python that a page shows is a part of an example, which runs.
func TestPythonInPagesIsOfTheExamples(t *testing.T) {
	var examples strings.Builder
	eachFile(t, func(path string, content []byte) {
		if strings.HasPrefix(path, "clients/python/examples/") && filepath.Ext(path) == ".py" {
			examples.Write(content)
		}
	})
	found := 0
	eachPage(t, func(path, text string) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			if m[1] != "python" {
				continue
			}
			if found++; !strings.Contains(examples.String(), m[2]) {
				t.Errorf("%s shows Python that is in no example:\n%s", path, m[2])
			}
		}
	})
	if found < 4 {
		t.Errorf("%d pieces of Python found", found)
	}
}
