package deploy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// release is what these tests read of .goreleaser.yaml.
type release struct {
	Builds []struct{ ID, Main, Binary string }
	Nfpms  []struct {
		Bindir   string
		Scripts  map[string]string
		Contents []struct{ Src, Dst, Type string }
	}
	Dockers []struct {
		IDs       []string          `yaml:"ids"`
		BuildArgs map[string]string `yaml:"build_args"`
		Images    []string
	} `yaml:"dockers_v2"`
	Archives []struct{ Files []any }
}

// What a release is made of is there: programs, files, stages of the Dockerfile.
func TestReleaseHangsTogether(t *testing.T) {
	var r release
	read(t, "../.goreleaser.yaml", &r)
	var programs []string
	for _, b := range r.Builds {
		if b.ID != b.Binary || b.Main != "./cmd/"+b.ID {
			t.Errorf("%+v: id, binary and folder have one name", b)
		}
		programs = append(programs, b.ID)
	}
	folders, err := filepath.Glob("../cmd/*")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range folders {
		folders[i] = filepath.Base(f)
	}
	if !slices.Equal(folders, programs) {
		t.Errorf("built are %v, and cmd has %v", programs, folders)
	}
	var packaged []string
	for _, c := range r.Nfpms[0].Contents {
		packaged = append(packaged, c.Src)
		if c.Type == "symlink" || c.Type == "dir" || strings.HasPrefix(c.Src, "bin/completion/") { // scripts/completions.sh writes these
			continue
		}
		if _, err := os.Stat(filepath.Join("..", c.Src)); err != nil {
			t.Error(err)
		}
	}
	for _, script := range r.Nfpms[0].Scripts {
		if out, err := exec.Command("sh", "-n", filepath.Join("..", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", script, err, out)
		}
	}
	shipped, err := filepath.Glob("systemd/*")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("package/*[^h]") // scripts aside
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(shipped, more...) {
		if !slices.Contains(packaged, "deploy/"+file) {
			t.Errorf("no package has deploy/%s", file)
		}
	}
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var imaged []string
	for _, d := range r.Dockers {
		program := d.BuildArgs["PROGRAM"]
		if d.IDs[0] != program || !slices.Equal(d.Images, []string{"tallygate/" + program}) {
			t.Errorf("an image of %s: %+v", program, d)
		}
		if stage := " /usr/local/bin/\n"; !strings.Contains(string(dockerfile), "COPY --from=build /out/"+strings.Join(d.IDs, " /out/")+stage) {
			t.Errorf("the Dockerfile has no stage with %v", d.IDs)
		}
		imaged = append(imaged, d.IDs...)
		for _, stage := range d.BuildArgs {
			if !strings.Contains(string(dockerfile), " AS "+stage+"\n") {
				t.Errorf("the Dockerfile has no stage %s", stage)
			}
		}
	}
	if !slices.Equal(imaged, programs) {
		t.Errorf("%v are in images, want %v", imaged, programs)
	}
}

// `go install …@latest` takes no module with replace or exclude in its go.mod. Nor can a module be had at
// all that has a file which some system could not write: aux.go cannot be on Windows.
func TestTheModuleCanBeInstalled(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^(replace|exclude)\b.*$`).Find(mod); m != nil {
		t.Errorf("go.mod: %s: go install of a version refuses the module", m)
	}
	skip := regexp.MustCompile(`^\.\./(\.git|\.run|bin)$`)
	device := regexp.MustCompile(`(?i)^(con|prn|aux|nul|(com|lpt)[0-9])(\.|$)`)
	plain := regexp.MustCompile(`^[\pL0-9!#$%&()+,\-.=@\[\]^_{}~ ]*[^. ]$`)
	folded := map[string]string{}
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == "..":
			return err
		case d.IsDir() && skip.MatchString(filepath.ToSlash(path)):
			return filepath.SkipDir
		case device.MatchString(d.Name()):
			t.Errorf("%s: a device of Windows has this name", path)
		case !plain.MatchString(d.Name()):
			t.Errorf("%s: a module's file cannot be called so", path)
		}
		lower := strings.ToLower(path)
		if other, there := folded[lower]; there {
			t.Errorf("%s and %s are one file where names' case does not matter", other, path)
		}
		folded[lower] = path
		return nil
	})
	if err != nil || len(folded) < 1000 {
		t.Fatalf("%d files: %v", len(folded), err)
	}
}

// systemd understands each line of the units, and finds little that they may do beyond their work.
func TestSystemdAcceptsTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) != 5 {
		t.Fatal(units, err)
	}
	// The programs are not installed here; secrets.conf becomes a drop-in of the aggregator.
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, unit := range units {
		content, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`(?m)^ExecStart=\S+`).ReplaceAllString(string(content), "ExecStart="+program)
		name := filepath.Join(dir, strings.Replace(filepath.Base(unit), "@", "@nginx", 1))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	secrets, err := os.ReadFile("systemd/secrets.conf")
	if err != nil {
		t.Fatal(err)
	}
	dropIn := filepath.Join(dir, "tallygate-aggregator.service.d")
	if err := os.Mkdir(dropIn, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dropIn, "secrets.conf"), secrets, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no", "--recursive-errors=no"}, files...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	for _, file := range files {
		// 10 is a service that may do anything, and 20 tenths are what systemd calls OK.
		out, err := exec.Command(analyze, "security", "--no-pager", "--offline=yes", "--threshold=20", file).CombinedOutput()
		if err != nil {
			t.Errorf("systemd-analyze security %s: %v\n%s", file, err, out)
		}
	}
}
