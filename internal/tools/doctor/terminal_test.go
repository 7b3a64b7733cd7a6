package doctor

import (
	"strings"
	"testing"
)

// What servers and members call themselves is in the details; it draws nothing on the operator's terminal.
func TestDetailsAreSafeForTerminals(t *testing.T) {
	var b strings.Builder
	writeResult(&b, Result{Name: "group", Status: Fail, Detail: "member \x1b]0;x\a of \u009b31m\nand more\r\xff", Fix: "a\x1b[2J\nb"})
	want := "FAIL  group           member \\x1b]0;x\\a of \\u009b31m\n" + strings.Repeat(" ", indent) + "and more\\r\\xff\n" +
		strings.Repeat(" ", indent) + "-> a\\x1b[2J\n" + strings.Repeat(" ", indent) + "-> b\n"
	if got := b.String(); got != want {
		t.Errorf("%q,\nwant %q", got, want)
	}
}
