package apitest

import (
	"flag"
	"fmt"
	"os"
	"slices"
)

// Tests run a package's tests: a *testing.M.
type Tests interface{ Run() int }

// Complete runs a package's tests. They fail unless they had each answer of a document that is not
// given elsewhere: METHOD /path STATUS, or METHOD /path. So no document promises what no server does.
// A part of the tests, as by -run, need not have them.
func Complete(m Tests, name string, elsewhere ...string) Tests { return complete{m, name, elsewhere} }

type complete struct {
	Tests
	name      string
	elsewhere []string
}

func (c complete) Run() int {
	status := c.Tests.Run()
	for _, part := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if f := flag.Lookup(part); f != nil && f.Value.String() != "" {
			return status
		}
	}
	d, err := opened(c.name)
	if status != 0 {
		return status
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, missing := range d.Unseen() {
		var method, path, code string
		_, _ = fmt.Sscan(missing, &method, &path, &code)
		if !slices.Contains(c.elsewhere, missing) && !slices.Contains(c.elsewhere, method+" "+path) {
			fmt.Fprintf(os.Stderr, "FAIL: %s describes %s, and no test of the package had that answer\n", c.name, missing)
			status = 1
		}
	}
	return status
}
