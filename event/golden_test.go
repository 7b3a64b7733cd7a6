package event

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// goldenCase is one record in testdata/decode.txt, of its comments and headers, and of what becomes
// of it.
type goldenCase struct {
	comment []string
	headers []Header
	input   string
	output  []string
}

func readCases(file string) []goldenCase {
	text, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	var cases []goldenCase
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		var c goldenCase
		for line := range strings.SplitSeq(block, "\n") {
			switch sign, rest, _ := strings.Cut(line, " "); sign {
			case "#":
				c.comment = append(c.comment, rest)
			case "@":
				k, v, _ := strings.Cut(rest, ": ")
				c.headers = append(c.headers, Header{k, []byte(v)})
			case "<":
				c.input = rest
			default:
				c.output = append(c.output, line)
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// TestWire decodes each record of testdata/decode.txt, and encodes its events again.
func TestWire(t *testing.T) {
	const file = "testdata/decode.txt"
	cases := readCases(file)
	var out strings.Builder
	d := NewDecoder()
	for _, c := range cases {
		dropped := d.DroppedIPs
		events, err := d.Decode([]byte(c.input), c.headers, nil, nil)
		var got []string
		for i := range events {
			roundTrip(t, &events[i])
			got = append(got, "> "+string(AppendJSON(nil, &events[i])))
		}
		for i := range d.Bad {
			got = append(got, fmt.Sprintf("! %d %v", d.Bad[i].Index, d.Bad[i].Err))
		}
		if d.DroppedIPs > dropped {
			got = append(got, fmt.Sprintf("ips dropped: %d", d.DroppedIPs-dropped))
		}
		if (err == nil) != (len(d.Bad) == 0) {
			t.Errorf("%s: err = %v, Bad = %v", c.input, err, d.Bad)
		}
		if g, w := strings.Join(got, "\n"), strings.Join(c.output, "\n"); g != w && !testrun.Rewriting() {
			t.Errorf("%s\n%s\n got\n%s\nwant\n%s", strings.Join(c.comment, " "), c.input, g, w)
		}
		for _, line := range c.comment {
			fmt.Fprintf(&out, "# %s\n", line)
		}
		for _, h := range c.headers {
			fmt.Fprintf(&out, "@ %s: %s\n", h.Key, h.Value)
		}
		fmt.Fprintf(&out, "%s\n\n", strings.Join(append([]string{"< " + c.input}, got...), "\n"))
	}
	testrun.Golden(t, file, strings.TrimSpace(out.String())+"\n")
}
