package emitcmd

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rotated is a file that had the followed one's name before.
type rotated struct {
	path string
	info os.FileInfo
	rank rank
}

// rank orders rotated files by their names: access.log.2 is older than access.log.1, and
// access.log-20261121 is older than access.log-20261122. Times of files may be equal.
type rank struct {
	index int    // 1 is the newest; 0: it has a date
	date  string // "" if it has an index
}

// newer tells whether r was rotated later than what has the rank of old.
func (r rank) newer(old rank) bool {
	if r.index > 0 || old.index > 0 {
		return r.index > 0 && r.index < old.index
	}
	return r.date > old.date
}

const maxIndex = 4 // digits; more are a date

// suffix matches the part that log rotation appends to a name, or puts in front of its extension.
var suffix = regexp.MustCompile(`^[._-]?(old|[0-9][0-9TZ:._-]*)$`)

// rankOf returns the rank of a file beside the followed one; ok is false if it is another log.
func rankOf(base, name string) (r rank, ok bool) {
	name = strings.TrimSuffix(name, ".gz")
	rest, ok := strings.CutPrefix(name, base)
	if !ok {
		extension := filepath.Ext(base)
		if rest, ok = strings.CutPrefix(name, strings.TrimSuffix(base, extension)); ok {
			rest, ok = strings.CutSuffix(rest, extension)
		}
	}
	m := suffix.FindStringSubmatch(rest)
	if !ok || m == nil {
		return rank{}, false
	}
	if m[1] == "old" {
		return rank{index: 1}, true
	}
	if n, err := strconv.Atoi(m[1]); err == nil && len(m[1]) <= maxIndex {
		return rank{index: n + 1}, true // some begin with 0
	}
	return rank{date: m[1]}, true
}

// rotatedOf returns the rotated files of a path, the oldest first, one that is not packed in front of
// one that is.
func rotatedOf(path string) (all []rotated, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		r, ok := rankOf(filepath.Base(path), e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		all = append(all, rotated{filepath.Join(filepath.Dir(path), e.Name()), info, r})
	}
	slices.SortFunc(all, func(a, b rotated) int {
		return cmp.Or(cmp.Compare(b.rank.index, a.rank.index), cmp.Compare(a.rank.date, b.rank.date), cmp.Compare(len(a.path), len(b.path)))
	})
	return all, nil
}

// find opens the file that has the contents up to a place, at that place: by its inode, or where it
// was copied or packed, by its first bytes. Of several, the newest is the one: a file that has just begun has
// few bytes. It returns nil if there is none.
func find(all []rotated, p place, but os.FileInfo) *source {
	for _, same := range []func(*source) bool{
		func(s *source) bool { return s.is(p) },
		func(*source) bool { return p.Head > 0 },
	} {
		for _, r := range slices.Backward(all) {
			if but != nil && os.SameFile(r.info, but) {
				continue
			}
			s, err := openSource(r.path)
			if err != nil {
				continue // removed, renamed, or being packed: there may be another one
			}
			if same(s) && s.holds(p) && s.skip(p.Offset) == nil {
				return s
			}
			_ = s.Close()
		}
	}
	return nil
}

// after returns the files that were rotated after one that is among them, the oldest first. Of a file
// and what packs it, the one is there twice; newer are both, or none.
func after(all []rotated, s *source) []rotated {
	i := slices.IndexFunc(all, func(r rotated) bool { return os.SameFile(r.info, s.info) })
	if i < 0 { // it was packed since, or removed
		i = slices.IndexFunc(all, func(r rotated) bool { return holdsAll(r.path, s) })
	}
	if i < 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(r rotated) bool { return !r.rank.newer(all[i].rank) })
}

// holdsAll tells whether a file is a copy of s.
func holdsAll(path string, s *source) bool {
	other, err := openSource(path)
	if err != nil {
		return false
	}
	defer other.Close()
	p := s.place(s.offset)
	return p.Head > 0 && other.holds(p)
}

// changedSince returns the files that were changed since a time.
func changedSince(all []rotated, t time.Time) []rotated {
	return slices.DeleteFunc(slices.Clone(all), func(r rotated) bool { return !r.info.ModTime().After(t) })
}
