package helmtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// What a release has is the chart, whose images are the release's.
func TestTheChartOfARelease(t *testing.T) {
	var packaged [2][]byte
	for i := range packaged {
		dir := t.TempDir()
		if out, err := exec.Command("../../../scripts/chart.sh", "1.2.3-rc.1", dir).CombinedOutput(); err != nil { //nolint:gosec // ours
			t.Fatalf("%v\n%s", err, out)
		}
		var err error
		if packaged[i], err = os.ReadFile(filepath.Join(dir, "tallygate-1.2.3-rc.1.tgz")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packaged[0], packaged[1]) {
		t.Error("the same files give other bytes")
	}
	c, err := loader.LoadArchive(bytes.NewReader(packaged[0]))
	if err != nil {
		t.Fatal(err)
	}
	here, err := loader.Load("../tallygate")
	if err != nil || len(c.Templates) != len(here.Templates) || len(c.Files) != len(here.Files) || len(c.Schema) == 0 {
		t.Errorf("%d templates and %d files: %v", len(c.Templates), len(c.Files), err)
	}
	v, err := chartutil.ReadValues([]byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "tallygate", Namespace: "limits", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	if text := files["tallygate/templates/aggregator.yaml"]; c.Metadata.Version != "1.2.3-rc.1" || !strings.Contains(text, "image: tallygate/aggregator:1.2.3-rc.1\n") {
		t.Errorf("the chart %s has\n%s", c.Metadata.Version, text)
	}
	if out, err := exec.Command("../../../scripts/chart.sh", "latest", t.TempDir()).CombinedOutput(); err == nil || !strings.Contains(string(out), "usage") {
		t.Errorf("what is no version: %v %s", err, out)
	}
}
