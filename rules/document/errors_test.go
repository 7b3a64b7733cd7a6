package document

import (
	"strings"
	"testing"
)

func TestLongLinesAreCutAroundTheColumn(t *testing.T) {
	line := strings.Repeat("a", 500) + "X" + strings.Repeat("b", 500)
	shown, blanks := excerpt(line, 501)
	if r := []rune(shown); len(r) > 170 || r[len(blanks)] != 'X' || !strings.HasPrefix(shown, "…") || !strings.HasSuffix(shown, "…") {
		t.Errorf("%q under %q", blanks, shown)
	}
}
