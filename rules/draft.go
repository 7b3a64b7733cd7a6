package rules

// Draft is a rule file in which limits have no number yet: `limit: suggest`, or of a bucket `burst: suggest`.
// Sets have only the rules with such limits.
type Draft struct {
	Source []byte
	Sought []Sought

	// Set counts the sought limits as large ones are counted, and judges none of them.
	Set *Set
	// Exact counts those of sliding windows as limits up to windows.ExactLimit are counted: by the events' own times.
	// Nil when there are none.
	Exact *Set
}

// CompileDraft is CompileUntil for a draft. A file in which no limit is sought is a mistake.
func CompileDraft(file string, src []byte, read func(name string) ([]byte, error), stop func() error) (*Draft, error) {
	compile := func(form draftForm, only func(rule int) bool) (*Set, []Sought, error) {
		c := newCompiler(file, src, read)
		c.Stop, c.drafts = stop, drafts{form: form, only: only}
		set, err := c.compile()
		return set, c.drafts.sought, err
	}
	_, sought, err := compile(draftLarge, nil) // of all rules, for the mistakes
	if err != nil {
		return nil, err
	}
	if len(sought) == 0 {
		return nil, Errors{{
			File: file, Line: 1, Column: 1, Message: "no limit is to be suggested",
			Hint: "write limit: suggest where a number is missing; of a bucket burst: suggest",
		}}
	}
	d := &Draft{Source: src, Sought: sought}
	has, exact := map[int]bool{}, map[int]bool{}
	for _, s := range sought {
		has[s.Rule] = true
	}
	if d.Set, _, err = compile(draftLarge, func(rule int) bool { return has[rule] }); err != nil {
		return nil, err
	}
	times, _, err := compile(draftExact, func(rule int) bool { return has[rule] })
	if err != nil {
		return nil, err
	}
	for i := range d.Sought {
		s := &d.Sought[i]
		for _, l := range times.Limits {
			if l.Name == s.Limit && l.Window.Exact {
				s.Exact, exact[s.Rule] = true, true
			}
		}
	}
	if len(exact) > 0 {
		d.Exact, _, err = compile(draftExact, func(rule int) bool { return exact[rule] })
	}
	return d, err
}
