package aggregator

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/rules"
)

// LoadRules reads and compiles a rule file.
func LoadRules(path string) (*rules.Set, aggregate.RuleFile, error) {
	set, file, _, err := readRules(path)
	return set, file, err
}

// readRules reads and compiles a rule file with the files that it names. It returns these as paths,
// also if one of them is what is wrong. The time of change is that of the newest.
func readRules(path string) (set *rules.Set, file aggregate.RuleFile, named []string, err error) {
	if file, err = readOne(path); err != nil {
		return nil, file, nil, err
	}
	read := input.Beside(path)
	set, err = compileWith(file, func(name string) ([]byte, error) {
		named = append(named, filepath.Join(filepath.Dir(path), filepath.FromSlash(name)))
		return read(name)
	})
	slices.Sort(named)
	named = slices.Compact(named)
	if err != nil {
		return nil, file, named, err
	}
	file.Files = map[string][]byte{}
	for name, text := range set.Files {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), filepath.FromSlash(name)))
		if err != nil {
			return nil, file, named, fmt.Errorf("read the rules: %w", err)
		}
		if info.ModTime().After(file.Modified) {
			file.Modified = info.ModTime()
		}
		file.Files[name] = text
	}
	return set, file, named, nil
}

func readOne(path string) (aggregate.RuleFile, error) {
	file := aggregate.RuleFile{Name: path}
	f, err := os.Open(path)
	if err != nil {
		return file, fmt.Errorf("read the rules: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		file.Modified = info.ModTime()
		file.Source, err = io.ReadAll(f)
	}
	if err == nil && len(file.Source) == 0 {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return file, fmt.Errorf("read the rules: %s: %w", path, err)
	}
	return file, nil
}

// CompileRules is rules.Compile for programs that run the set: it refuses a set whose keys can have
// more state than fits.
func CompileRules(path string, src []byte) (*rules.Set, error) {
	return compileFile(aggregate.RuleFile{Name: path, Source: src})
}

// compileFile reads the files that the rules name from their folder, unless they came with the
// rules.
func compileFile(f aggregate.RuleFile) (*rules.Set, error) {
	if f.Files == nil {
		return compileWith(f, input.Beside(f.Name))
	}
	return compileWith(f, f.Beside)
}

// compileWithin bounds how long a rule file may take, far above what one does. A version that the group runs
// already has no bound: whoever could not read it could not take over.
const compileWithin = time.Minute

func compileInTime(file string, src []byte, beside func(name string) ([]byte, error)) (*rules.Set, error) {
	began := time.Now()
	return rules.CompileUntil(file, src, beside, func() error {
		if time.Since(began) < compileWithin {
			return nil
		}
		return fmt.Errorf("%s: reading the rules takes more than %v: use fewer rules, APIs or exemptions", file, compileWithin)
	})
}

func compileWith(f aggregate.RuleFile, beside func(name string) ([]byte, error)) (*rules.Set, error) {
	compile := compileInTime
	if f.Published {
		compile = rules.CompilePublished
	}
	set, err := compile(f.Name, f.Source, beside)
	if err != nil {
		return nil, err
	}
	if n, dims := set.LargestState(); n > rules.MaxStateBytes {
		return nil, fmt.Errorf("%s: a key of %s can have %d bytes of state, at most %d are allowed: use fewer limits a key, or longer panes (resolution)",
			f.Name, strings.Join(dims, ", "), n, rules.MaxStateBytes)
	}
	return set, nil
}
