package input

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Beside returns what reads the files that a rule file names: those in its folder, and below it.
// Nothing outside of it is opened, whatever the name.
func Beside(path string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		root, err := os.OpenRoot(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer root.Close()
		return fs.ReadFile(root.FS(), filepath.ToSlash(filepath.Clean(name)))
	}
}
