package layers

import (
	"slices"
	"strings"
	"testing"
)

// rooms are the module's folders, bottom first: what one imports, tests excepted, stands before it.
var rooms = []string{"docs", "testdata", "event", "verdict", "windows", "rules", "api", "internal/base", "pipeline",
	"internal/run", "internal/testing", "internal/tools", "internal/console", "internal/notify", "internal/programs",
	"", "tallygatetest", "cmd", "examples", "clients", "deploy", "scripts"}

// upward are the packages that import a room above their own: a stage for tests, internal to its parent.
var upward = []string{"pipeline/blocklist/internal/rig"}

// Folders import each other in one direction: nobody goes in a circle.
func TestRoomsPointDown(t *testing.T) {
	used := map[int]bool{}
	for path, p := range list(t) {
		at := roomOf(t, path)
		if at < 0 {
			continue
		}
		used[at] = true
		for _, imported := range p.Imports {
			if roomOf(t, imported) > at && !within(path, upward) {
				t.Errorf("%s imports %s, which is above it", path, imported)
			}
		}
	}
	for i, room := range rooms {
		if !used[i] {
			t.Errorf("there is no Go package in %q: drop it from the rooms", room)
		}
	}
}

// roomOf returns the room's number, and -1 for packages of other modules.
func roomOf(t *testing.T, path string) int {
	folder, ours := strings.CutPrefix(path, module)
	folder = strings.TrimPrefix(folder, "/")
	if folder, _, _ = strings.Cut(folder, " "); !ours || strings.HasSuffix(folder, ".test") {
		return -1
	}
	if folder == "" {
		return slices.Index(rooms, "")
	}
	at := slices.IndexFunc(rooms, func(room string) bool { return room != "" && within(module+"/"+folder, []string{room}) })
	if at < 0 {
		t.Errorf("%s is in no room: say where it stands, bottom first", path)
	}
	return at
}
