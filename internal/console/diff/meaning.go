package diff

import (
	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/grouprules"
	"github.com/tallygate/tallygate/rules"
)

// Meaning is the effect of going from one version of the rules to another.
type Meaning struct {
	New, Gone []string // rules
	Changed   []string // rules whose text is another one, comments aside
	// Empty are limits of rules that were there, whose counters start empty, since they count something else.
	Empty []string
	// Judged are limits that go on counting, and whose keys are judged again.
	Judged []string
	// Settings tells that what stands outside of the rules differs: defaults, lateness, networks, exemptions.
	Settings bool
	// Unknown says why nothing more is known: a version does not compile here.
	Unknown string
}

// Nothing reports whether both versions mean the same.
func (m *Meaning) Nothing() bool {
	return m.Unknown == "" && !m.Settings && len(m.New)+len(m.Gone)+len(m.Changed)+len(m.Empty)+len(m.Judged) == 0
}

// Compare finds the effect of going from one version to another. It compiles both as a group runs them.
func Compare(old, now *api.Rules) Meaning {
	was, err := grouprules.Compile(old)
	if err != nil {
		return Meaning{Unknown: err.Error()}
	}
	will, err := grouprules.Compile(now)
	if err != nil {
		return Meaning{Unknown: err.Error()}
	}
	return CompareOpened(old, was, now, will)
}

// CompareOpened is Compare for versions that are compiled; a nil set does not compile here.
func CompareOpened(old *api.Rules, was *rules.Set, now *api.Rules, will *rules.Set) Meaning {
	if was == nil || will == nil {
		return Meaning{Unknown: "What it means is not known: a program of this version does not read both of them."}
	}
	m := CompareSets(was, will)
	before, after := grouprules.Split(old.Source), grouprules.Split(now.Source)
	for _, r := range will.All() {
		if text, there := before.Rules[r.Name]; there && text.Plain != after.Rules[r.Name].Plain {
			m.Changed = append(m.Changed, r.Name)
		}
	}
	m.Settings = before.Rest != after.Rest || !sameFiles(old, now)
	return m
}

// sameFiles compares the lists of networks that the versions name: their rules may read alike, and match others.
func sameFiles(a, b *api.Rules) bool {
	if len(a.Files) != len(b.Files) {
		return false
	}
	for name, text := range a.Files {
		if other, ok := b.Files[name]; !ok || string(other) != string(text) {
			return false
		}
	}
	return true
}

// CompareSets is Compare for what is compiled: without Changed and Settings, which are about the texts.
func CompareSets(was, will *rules.Set) (m Meaning) {
	before, after, isNew := namesOf(was), namesOf(will), map[string]bool{}
	for _, r := range was.All() {
		if !after[r.Name] {
			m.Gone = append(m.Gone, r.Name)
		}
	}
	for _, r := range will.All() {
		if isNew[r.Name] = !before[r.Name]; isNew[r.Name] {
			m.New = append(m.New, r.Name)
		}
	}
	judged := will.Judged()
	since := will.Since(was.Judged())
	for _, l := range will.Limits {
		by, goesOn := since[l.Hash]
		switch {
		case isNew[l.Rule.Name] || l.Shadow:
		case !goesOn:
			m.Empty = append(m.Empty, l.Name)
		case by != judged[l.Hash]:
			m.Judged = append(m.Judged, l.Name)
		}
	}
	m.emptyUnderWay(was, will, isNew)
	return m
}

func namesOf(set *rules.Set) map[string]bool {
	out := map[string]bool{}
	for _, r := range set.All() {
		out[r.Name] = true
	}
	return out
}

// emptyUnderWay adds limits of what is under way: these are counted in Redis, by the same name.
func (m *Meaning) emptyUnderWay(was, will *rules.Set, isNew map[string]bool) {
	known := map[rules.SectionHash]bool{}
	for _, r := range was.InFlight {
		for _, l := range r.Limits {
			known[l.Hash] = true
		}
	}
	for _, r := range will.InFlight {
		for _, l := range r.Limits {
			if !known[l.Hash] && !isNew[r.Name] {
				m.Empty = append(m.Empty, l.Name)
			}
		}
	}
}
