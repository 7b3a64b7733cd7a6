package rules

import "strings"

// CompilePublished is CompileWith for a source that a group runs already, as a program of a version before accepted it. What has a
// meaning, and is refused in files since it is nearly always a mistake, such as a comparison that never holds, keeps that meaning: a
// program that refused it could not take over the group's counts. Set.Outdated says what it is.
func CompilePublished(file string, src []byte, read func(name string) ([]byte, error)) (*Set, error) {
	c := newCompiler(file, src, read)
	c.Accept, c.patterns.Accept = true, true
	return c.compile()
}

// isOnceAccepted reports whether an API's name, which is none, was accepted before: no event has it.
func isOnceAccepted(api string) bool {
	return api != "" && !strings.Contains(api, "**") && !strings.ContainsAny(api, " \t\n,")
}
