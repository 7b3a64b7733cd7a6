// Package rulewatch knows the versions of a group's rules, and how each rule fares: it asks the programs now and
// then, whoever reads, so that a page of five hundred rules costs its readers nothing.
package rulewatch

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/grouprules"
	"github.com/tallygate/tallygate/rules"
)

// Get asks an aggregator for a path, with the console's own credential.
type Get func(ctx context.Context, path string) ([]byte, error)

const (
	maxListed  = 100 // versions whose changes are known; older ones can be opened
	maxOpened  = 6   // versions that are kept compiled
	openAtOnce = 4   // versions that one Refresh reads for their changes
)

// Opened is a version, compiled.
type Opened struct {
	*api.Rules
	Set    *rules.Set // nil if it does not compile here
	Broken error      // why
	Parts  grouprules.Parts
}

// Rule is a rule of it; nil if there is none.
func (o *Opened) Rule(name string) *rules.Rule {
	if o.Set == nil {
		return nil
	}
	for _, r := range o.Set.All() {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// Book keeps versions. Many goroutines may use it.
type Book struct {
	get  Get
	seed maphash.Seed

	mu      sync.Mutex
	list    api.RuleVersions
	listErr error
	running int64           // 0: unknown
	facts   map[int64]facts // of the listed ones
	opened  map[int64]*Opened
	used    []int64 // of opened: the least recently used first
}

// facts are hashes of a version's rules.
type facts map[string]uint64

// NewBook returns an empty Book.
func NewBook(get Get) *Book {
	return &Book{get: get, seed: maphash.MakeSeed(), facts: map[int64]facts{}, opened: map[int64]*Opened{}}
}

// Open returns a version; 0 is the one that runs.
func (b *Book) Open(ctx context.Context, version int64) (*Opened, error) {
	b.mu.Lock()
	if version == 0 {
		version = b.running
	}
	o := b.opened[version]
	if o != nil {
		b.use(version)
	}
	b.mu.Unlock()
	if o != nil {
		return o, nil
	}
	path := "/v1/rules"
	if version != 0 {
		path += "?version=" + strconv.FormatInt(version, 10)
	}
	v, err := grouprules.Parse(b.get(ctx, path))
	if err != nil {
		return nil, err
	}
	o = &Opened{Rules: v, Parts: grouprules.Split(v.Source)}
	o.Set, o.Broken = grouprules.Compile(v)
	b.keep(o)
	return o, nil
}

// keep adds a version, and drops the least recently used one.
func (b *Book) keep(o *Opened) {
	said := facts{}
	for name, part := range o.Parts.Rules {
		said[name] = maphash.String(b.seed, part.Plain)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened[o.Version] = o
	b.facts[o.Version] = said
	b.use(o.Version)
	if len(b.used) > maxOpened {
		delete(b.opened, b.used[0])
		b.used = b.used[1:]
	}
}

func (b *Book) use(version int64) {
	b.used = append(slices.DeleteFunc(b.used, func(v int64) bool { return v == version }), version)
}

// Refresh learns which versions there are, and reads some whose changes it does not know. running is the version
// that the group runs; 0 if that is unknown.
func (b *Book) Refresh(ctx context.Context, running int64) error {
	b.mu.Lock()
	same := running != 0 && running == b.running && b.listErr == nil && len(b.list.Versions) > 0 && b.list.Versions[0].Version >= running
	b.mu.Unlock()
	if !same {
		if err := b.relist(ctx, running); err != nil {
			return err
		}
	}
	for range openAtOnce {
		version, all := b.unknown()
		if all {
			break
		}
		if _, err := b.Open(ctx, version); err != nil {
			return err
		}
	}
	return nil
}

func (b *Book) relist(ctx context.Context, running int64) error {
	list, err := api.Decode[api.RuleVersions](b.get(ctx, "/v1/rules/versions?limit="+strconv.Itoa(maxListed)))
	if err == nil && running == 0 && len(list.Versions) > 0 {
		running = list.Versions[0].Version
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listErr = err
	if running != 0 {
		b.running = running
	}
	if err != nil {
		return fmt.Errorf("list the versions of the rules: %w", err)
	}
	b.list = *list
	for version := range b.facts {
		if !slices.ContainsFunc(list.Versions, func(l api.RuleVersion) bool { return l.Version == version }) {
			delete(b.facts, version)
		}
	}
	return nil
}

// unknown is the newest version whose changes are not known.
func (b *Book) unknown() (version int64, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.list.Versions {
		if v := b.list.Versions[i].Version; b.facts[v] == nil {
			return v, false
		}
	}
	return 0, true
}

// List returns the result of the last Refresh, the newest first, and the reason for which there is no newer list.
func (b *Book) List() (api.RuleVersions, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.list, b.listErr
}

// Numbers are the listed versions, the newest first.
func (b *Book) Numbers() (out []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.list.Versions {
		out = append(out, b.list.Versions[i].Version)
	}
	return out
}

// Running is the number of the version that runs; 0 if it is unknown.
func (b *Book) Running() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

// Change is a version in which a rule became another.
type Change struct {
	api.RuleVersion
	What string // new, changed, gone; or "there", of the oldest version that is known
}

// Who published it.
func (c *Change) Who() string { return Who(c.By, c.OnBehalfOf) }

// Who names a person, and on whose behalf they acted.
func Who(by, onBehalfOf string) string {
	if onBehalfOf != "" && onBehalfOf != by {
		return onBehalfOf + " (by " + by + ")"
	}
	return by
}

// Changes are those of a rule, the newest first, as far as versions are known.
func (b *Book) Changes(rule string) (out []Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.list.Versions {
		v := &b.list.Versions[i]
		said := b.facts[v.Version]
		if said == nil {
			return out
		}
		now, here := said[rule]
		if i+1 == len(b.list.Versions) {
			if here {
				out = append(out, Change{*v, "there"})
			}
			return out
		}
		before := b.facts[b.list.Versions[i+1].Version]
		if before == nil {
			return out
		}
		was, there := before[rule]
		switch {
		case here && !there:
			out = append(out, Change{*v, "new"})
		case !here && there:
			out = append(out, Change{*v, "gone"})
		case here && now != was:
			out = append(out, Change{*v, "changed"})
		}
	}
	return out
}

// LastChanges is the newest change of each rule of the running version.
func (b *Book) LastChanges() map[string]Change {
	out := map[string]Change{}
	b.mu.Lock()
	said := b.facts[b.running]
	b.mu.Unlock()
	for name := range said {
		if list := b.Changes(name); len(list) > 0 {
			out[name] = list[0]
		}
	}
	return out
}

// patience bounds a question of a Watch.
const patience = 5 * time.Second
