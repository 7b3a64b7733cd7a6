package testrun

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew from what the code does")

// Rewriting reports whether the flag -rewrite is given: tests write their golden files.
func Rewriting() bool { return *rewrite }

// Golden compares a text with a golden file, or writes it with -rewrite. An empty text has no file. A failure shows the
// first lines that differ, because golden files are long. Texts must not depend on the run: see Steady.
func Golden(t testing.TB, path, got string) {
	t.Helper()
	want, err := os.ReadFile(path)
	if err != nil && (!os.IsNotExist(err) || got != "" && !*rewrite) {
		t.Fatal(err)
	}
	switch {
	case string(want) == got:
	case !*rewrite:
		test, _, _ := strings.Cut(t.Name(), "/")
		t.Errorf("%s %s\nIf it should: go test -run %s -rewrite, and read the difference.", path, difference(string(want), got), test)
	case got == "":
		err = os.Remove(path)
	default:
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.WriteFile(path, []byte(got), 0o644)
		}
	}
	if err != nil && *rewrite && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// Section is Golden for the part of a page between two lines that stay.
func Section(t testing.TB, path, begin, end, got string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no %q with an end", path, begin)
	}
	Golden(t, path, before+begin+got+end+after)
}

// difference shows the first lines that differ, not the whole of long texts.
func difference(want, got string) string {
	const shown = 12
	w, g := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	same := 0
	for same < min(len(w), len(g)) && w[same] == g[same] {
		same++
	}
	part := func(lines []string) string { return strings.Join(lines[same:min(same+shown, len(lines))], "") }
	return fmt.Sprintf("differs from line %d on; there is\n%s\nand the code gives\n%s", same+1, part(w), part(g))
}

// Script plays a golden file of questions and answers, so that a question and what it is answered stand side by side in
// a review, and a new one needs no code. Questions are played in the order of the file, one at a time. The lines of a question begin with "> "; its answer is
// everything below, up to the next question or comment, which begins with "# ". With -rewrite the answers are
// written anew. To add a question, write its lines.
func Script(t testing.TB, path string, play func(question []string) (answer string)) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	var out strings.Builder
	for i := 0; i < len(lines); {
		var question []string
		for ; i < len(lines) && strings.HasPrefix(lines[i], "> "); i++ {
			question = append(question, lines[i][2:])
			out.WriteString(lines[i] + "\n")
		}
		if question != nil {
			if answer := strings.TrimRight(play(question), "\n"); answer != "" {
				out.WriteString(answer + "\n")
			}
			out.WriteString("\n")
			for i < len(lines) && !strings.HasPrefix(lines[i], "> ") && !strings.HasPrefix(lines[i], "# ") {
				i++
			}
			continue
		}
		if strings.HasPrefix(lines[i], "# ") || lines[i] == "" && i > 0 && strings.HasPrefix(lines[i-1], "# ") {
			out.WriteString(lines[i] + "\n")
		}
		i++
	}
	Golden(t, path, strings.TrimRight(out.String(), "\n")+"\n")
}

// Request makes the HTTP request of a question, which is METHOD PATH, pairs of words such as "as viewer", lines of header
// fields, and a body. A body is JSON unless a field says otherwise, and "as" is a bearer token. The host is example.com.
func Request(t testing.TB, question []string) (r *http.Request, about map[string]string) {
	t.Helper()
	first, rest := strings.Fields(question[0]), question[1:]
	about = map[string]string{}
	for i := 2; i+1 < len(first); i += 2 {
		about[first[i]] = first[i+1]
	}
	header := http.Header{}
	for len(rest) > 0 && !strings.HasPrefix(rest[0], "{") && strings.Contains(rest[0], ": ") {
		name, value, _ := strings.Cut(rest[0], ": ")
		header.Add(name, value)
		rest = rest[1:]
	}
	r, err := http.NewRequestWithContext(t.Context(), first[0], "http://example.com"+first[1], strings.NewReader(strings.Join(rest, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header = header; len(rest) > 0 && header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	if about["as"] != "" {
		header.Set("Authorization", "Bearer "+about["as"])
	}
	return r, about
}

// Answer is an HTTP answer as golden files show it: the status, the header fields that a server chose, and the body.
// It reads the body. Date and Content-Length are the library's, and follow from the rest.
func Answer(t testing.TB, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n", resp.StatusCode)
	var fields []string
	for name, values := range resp.Header {
		if name != "Date" && name != "Content-Length" {
			fields = append(fields, name+": "+strings.Join(values, " | ")+"\n")
		}
	}
	slices.Sort(fields)
	b.WriteString(strings.Join(fields, ""))
	b.Write(body)
	return b.String()
}

// Steady returns a text without what differs from run to run: times, identifiers and addresses have the same
// placeholders in all golden files. The fields are names of JSON numbers to be hidden, too, such as rates.
func Steady(text string, fields ...string) string {
	for _, m := range unsteady {
		text = m.what.ReplaceAllString(text, m.by)
	}
	for _, name := range fields {
		text = regexp.MustCompile(`("`+name+`":)-?[0-9][-+.0-9e]*`).ReplaceAllString(text, "${1}<n>")
	}
	return text
}

// unsteady has the forms in which times, identifiers and addresses are written. What only one package writes, such as
// rates, that package hides itself: a form here must be sure to hide nothing else.
var unsteady = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)`), "<time>"},
	{regexp.MustCompile(`(127\.0\.0\.1|localhost):\d{2,5}\b`), "<address>"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "<id>"},
	{regexp.MustCompile(`~[0-9a-z]{8,16}-[0-9a-z]+`), "<permit>"},
	{regexp.MustCompile(regexp.QuoteMeta(os.TempDir()) + `/[^ "',:;]+/`), "<dir>/"},
}
