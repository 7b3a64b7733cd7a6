package input

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files replaces folders by the files in them that are wanted, at any depth, and patterns that the
// shell left alone by what they match. What is hidden is left out: there Kubernetes keeps the
// versions of what it mounts. want says in an error what was looked for.
func Files(args []string, wanted func(name string) bool, want string) (files []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(arg, "*?[") {
			if found, globErr := filepath.Glob(arg); globErr == nil && len(found) > 0 {
				files = append(files, found...)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		in, err := below(arg, wanted)
		if err != nil {
			return nil, err
		}
		if len(in) == 0 {
			return nil, fmt.Errorf("%s: no %s in it", arg, want)
		}
		files = append(files, in...)
	}
	return files, nil
}

func below(folder string, wanted func(name string) bool) (files []string, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != folder && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir() && wanted(d.Name()):
			files = append(files, path)
		}
		return nil
	})
	return files, err
}
