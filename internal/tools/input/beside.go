package input

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Beside returns what reads the files that a rule file names: those in its folder, and below it.
// Nothing outside of it is opened, whatever the name, and nothing but files: of a pipe or a device a read may
// wait for ever, or never end.
func Beside(path string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		root, err := os.OpenRoot(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer root.Close()
		f, err := root.OpenFile(filepath.Clean(name), os.O_RDONLY|withoutWaiting, 0) // to open a pipe waits for a writer
		if err != nil {
			return nil, err
		}
		defer f.Close()
		switch info, err := f.Stat(); {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s is no regular file but %s", name, kind(info.Mode()))
		}
		return io.ReadAll(f)
	}
}

// kind names what is no regular file.
func kind(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&os.ModeNamedPipe != 0:
		return "a named pipe"
	case m&os.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
