//go:build unix

package input

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A rule file may name a pipe: to read it waited for a writer, for ever.
func TestFilesThatRulesNameAreFiles(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	read := Beside(at("rules.yaml"))
	if err := os.WriteFile(at("networks.txt"), []byte("10.0.0.0/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "networks.txt", "to-pipe": "pipe", "out": "/dev/zero"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"networks.txt", "./networks.txt", "folder/../networks.txt", "link"} {
		if text, err := read(name); err != nil || string(text) != "10.0.0.0/8\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for name, want := range map[string]string{"pipe": "pipe is no regular file but a named pipe", "to-pipe": "but a named pipe", "folder": "but a folder",
		"out": "escapes", "../x": "escapes", "/dev/zero": "escapes", "away": "no such file"} {
		if text, err := read(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", name, text, err, want)
		}
	}
}
