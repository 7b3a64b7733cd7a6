package rules

import (
	"strings"

	"github.com/tallygate/tallygate/rules/document"
)

// vocabulary lists the words of rule files. Its fields are those of the table, and those of files of tests.
var vocabulary = func() *document.Vocabulary {
	v := &document.Vocabulary{
		Empty:      "the file holds no rule set",
		EmptyHint:  "a rule set begins with `apiVersion: tallygate.dev/v1` and `kind: RuleSet`",
		SecondHint: "one file holds one RuleSet: put the other into a file of its own",
		Foreign:    foreignText,
		Fields:     strings.Fields("uid ip rule_files tests start events expect id cost times every arrives verdict rule until since"),
		Places:     map[string]string{},
		Examples:   map[string]string{},
		Synonyms:   fieldWords,
		Values:     valueWords,
	}
	called := map[string][]string{}
	for _, p := range allPlaces {
		v.Examples[p.what] = p.example
		for _, f := range p.fields {
			v.Fields = append(v.Fields, f.name)
			if p.called != "" {
				called[f.name] = append(called[f.name], p.called)
			}
		}
	}
	for name, places := range called {
		if len(places) <= 2 { // more are no hint
			v.Places[name] = strings.Join(places, " or ")
		}
	}
	return v
}()

// ParseDocument reads a file beside rule files, such as one of tests, whose mistakes are told as those of
// rule files are. what says in errors what the file is, such as "a file of tests".
func ParseDocument(file string, src []byte, what string) (*document.File, error) {
	words := *vocabulary
	words.Empty, words.EmptyHint = "the file is empty: "+what+" is expected", ""
	words.SecondHint = what + " is one document: put the other into a file of its own"
	f := document.New(file, src, &words)
	if !f.Parse(src) {
		return nil, f.Err()
	}
	f.FindInvisible()
	return f, nil
}
