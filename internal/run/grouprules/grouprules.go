// Package grouprules reads the versions of a group's rules as an aggregator answers with them.
package grouprules

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/rules"
)

// Parse reads what a client's Get of /v1/rules returns. An answer without a text is an error: to compile it would
// say of every rule that it is gone.
func Parse(body []byte, err error) (*api.Rules, error) {
	v, err := api.Decode[api.Rules](body, err)
	if err == nil && v.Source == "" {
		err = errors.New("read the aggregator's response: there are none in it")
	}
	if err != nil {
		return nil, fmt.Errorf("load the group's rules: %w", err)
	}
	return v, nil
}

// Beside reads a file that the rules name: those that were published with them, and nothing else.
func Beside(v *api.Rules) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if v != nil {
			if text, ok := v.Files[name]; ok {
				return text, nil
			}
		}
		return nil, fs.ErrNotExist
	}
}

// Compile compiles the version as the group runs it.
func Compile(v *api.Rules) (*rules.Set, error) {
	set, err := rules.CompilePublished("the group's rules", []byte(v.Source), Beside(v))
	if err != nil {
		return nil, fmt.Errorf("version %d of the group's rules does not compile here: %w", v.Version, err)
	}
	return set, nil
}
