package console

import (
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/console/rulewatch"
	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/rules"
)

// ruleFuncs are functions of templates for the pages about rules.
func ruleFuncs() template.FuncMap {
	return template.FuncMap{
		"sum":    func(a, b int) int { return a + b },
		"size64": func(n int) string { return size(int64(n)) },
		"who":    rulewatch.Who,
		"vname":  func(version int64) string { return "version " + strconv.FormatInt(version, 10) },
		"place":  fieldOf,
		"caret":  caret,
		"micros": func(m event.Micros) time.Time {
			if m == event.NoTime {
				return time.Time{}
			}
			return m.Time()
		},
	}
}

// mistake is a mistake, or a warning.
func mistake(of any) *rules.Error {
	switch e := of.(type) {
	case *rules.Error:
		return e
	case rules.Warning:
		return (*rules.Error)(&e)
	}
	return &rules.Error{}
}

// fieldOf is the field whose text has a mistake.
func fieldOf(of any) string {
	if mistake(of).File == workbench.TestsFile {
		return "f-tests"
	}
	return "f-rules"
}

// caret is the line of a mistake with a caret below its place, as the command prints it; "" without one.
func caret(of any) string {
	e := mistake(of)
	lines := strings.Split(e.Error(), "\n")
	if strings.TrimSpace(e.SourceLine) == "" || len(lines) < 3 {
		return ""
	}
	return strings.TrimPrefix(lines[1], "    ") + "\n" + strings.TrimPrefix(lines[2], "    ")
}
