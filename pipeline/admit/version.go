package admit

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/tallygate/tallygate/pipeline/admit/limits"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// version is a version of the rules.
type version struct {
	number   uint64
	set      *rules.Set
	limits   map[*rules.Limit]*limits.Limit
	requests sync.Pool // of *rules.Requests
}

func newVersion(number uint64, set *rules.Set) *version {
	v := &version{number: number, set: set, limits: map[*rules.Limit]*limits.Limit{}}
	strict := set.Strict()
	for _, r := range strict {
		for _, l := range r.Limits {
			v.limits[l] = limits.Of(l)
		}
	}
	v.requests.New = func() any { return rules.NewRequests(strict) }
	return v
}

func (v *version) strict() bool { return len(v.limits) > 0 }

// ahead tells whether permits may be granted ahead under a limit.
func (v *version) ahead() bool {
	for l := range v.limits {
		if l.Rule.Strict.Ahead > 0 {
			return true
		}
	}
	return false
}

// record holds the fields of a rules topic's record that matter here.
type record struct {
	Format int               `json:"format"`
	File   string            `json:"file"`
	Source string            `json:"source"`
	Files  map[string][]byte `json:"files"`
}

const recordFormat = 1

var errNotBeside = errors.New("it was not published with the rules")

// parseVersion compiles a version's text: its record in the rules topic, or nothing, when no rule of it
// asks for anything.
func parseVersion(of uint64, text []byte) (*version, error) {
	if len(text) == 0 {
		return newVersion(of, &rules.Set{}), nil
	}
	number := protocol.RulesNumber(of)
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read version %d of the rules: %w", number, err)
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("read version %d of the rules: it has format %d, this program reads %d: update it", number, r.Format, recordFormat)
	}
	set, err := rules.CompilePublished(r.File, []byte(r.Source), func(name string) ([]byte, error) {
		if b, ok := r.Files[name]; ok {
			return b, nil
		}
		return nil, fmt.Errorf("%s: %w", name, errNotBeside)
	})
	if err != nil {
		return nil, fmt.Errorf("compile version %d of the rules; if a newer program published it, update this one: %w", number, err)
	}
	return newVersion(of, set), nil
}
