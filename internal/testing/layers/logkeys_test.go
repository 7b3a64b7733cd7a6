package layers

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A key that stands in as many calls as this is one that people search for: the reference has it.
const commonKey = 2

// The log's schema (docs/reference/metrics.md) is what the handler makes of every line. What it would have to mend is found here, where it is written.
func TestLogKeysAreOfTheSchema(t *testing.T) {
	l := &logCalls{fset: checked(t).fset, keys: map[string]int{}}
	for _, p := range checked(t).packages {
		l.lookAt(p.info, p.files)
	}
	if l.calls < 80 {
		t.Fatalf("%d calls of the log were found", l.calls)
	}
	for _, m := range l.mistakes {
		t.Error(m)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, logs, _ := strings.Cut(string(page), "\n## Logs\n")
	logs, _, _ = strings.Cut(logs, "\n## ")
	_, table, _ := strings.Cut(logs, "\n| name | what it is |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]bool{}
	for row := range strings.Lines(table) {
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			documented[name[1]] = true
		}
	}
	for key, n := range l.keys {
		if n >= commonKey && !strings.Contains(logs, "`"+key+"`") {
			t.Errorf("%d calls log %s: docs/reference/metrics.md does not say what it is", n, key)
		}
	}
	for key := range documented {
		if l.keys[key] == 0 {
			t.Errorf("docs/reference/metrics.md has %s, and no call logs it", key)
		}
	}
}

// What the test above is for is found.
func TestMistakesInLogKeysAreFound(t *testing.T) {
	l := &logCalls{fset: checked(t).fset, keys: map[string]int{}}
	for call, want := range map[string]string{
		`log.Info("text", "keys", 7, "took_seconds", took.Seconds(), "error", err)`: "",
		`log.Info("text", append([]any{"n", 1}, more...)...)`:                       "",
		`slog.Warn(fmt.Sprint("text ", 7))`:                                         "the message has values",
		`log.Warn("text", "Keys", 7)`:                                               "small letters",
		`log.WarnContext(ctx, "text", "err", err)`:                                  "an error's key is error",
		`log.Error("text", "reason", err)`:                                          "its key is error",
		`log.Error("text", "error", 7)`:                                             "want an error",
		`log.Info("text", "took", took)`:                                            "took_seconds, and its Seconds()",
		`log.Info("text", "took", took.Seconds())`:                                  "end in _seconds",
		`log.Info("text", "took_seconds", took.String())`:                           "end in _seconds",
		`log.Info("text", "keys", 7, "keys", 8)`:                                    "keys is there twice",
		`log.With("keys", 7, name, 8)`:                                              "no constant text",
		`log.Info("text", append([]any{"n", 1, "n", 2}, more...)...)`:               "n is there twice",
		`log.Info("text", "keys")`:                                                  "has no value",
	} {
		src := `package p
			import ("context"; "fmt"; "log/slog"; "time")
			func f(ctx context.Context, log *slog.Logger, took time.Duration, err error, name string, more []any) { fmt.Sprint(); ` + call + ` }`
		f, err := parser.ParseFile(l.fset, "p.go", src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		info := newInfo()
		if _, err := (&types.Config{Importer: checked(t).imports}).Check("p", l.fset, []*ast.File{f}, info); err != nil {
			t.Fatal(err)
		}
		l.mistakes = nil
		l.lookAt(info, []*ast.File{f})
		if got := strings.Join(l.mistakes, "; "); want == "" && got != "" || !strings.Contains(got, want) || len(l.mistakes) > 1 {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
}

// logCalls finds the calls of log/slog, by their types: a logger may have any name.
type logCalls struct {
	fset     *token.FileSet
	calls    int
	keys     map[string]int
	mistakes []string
}

// lookAt looks at a package.
func (l *logCalls) lookAt(info *types.Info, files []*ast.File) {
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				l.look(info, call)
			}
			return true
		})
	}
}

// begins is the index of a call's message among its arguments, and behind it the keys and values; -1: there is no
// message.
var begins = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1, "Log": 2, "LogAttrs": 2, "With": -1,
}

// leavesNotes is the function by which a shard, which knows no log, has its owner write a line: a level, the message,
// and keys and values.
const leavesNotes = "(*" + module + "/pipeline/aggregate/shard.base).note"

func (l *logCalls) look(info *types.Info, call *ast.CallExpr) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	f, ok := info.Uses[selector.Sel].(*types.Func)
	if !ok || f.Pkg() == nil {
		return
	}
	message, ok := begins[f.Name()]
	if f.FullName() == leavesNotes {
		message = 1
	} else if receiver := f.Signature().Recv(); !ok || f.Pkg().Path() != "log/slog" || receiver != nil && receiver.Type().String() != "*log/slog.Logger" {
		return
	}
	l.calls++
	if message >= 0 {
		l.message(info, call.Args[message])
	}
	args := call.Args[message+1:]
	if call.Ellipsis.IsValid() { // what is not written here is looked at where it is
		args = append(slices.Clone(args[:len(args)-1]), literal(args[len(args)-1])...)
	}
	seen := map[string]bool{}
	for len(args) > 0 {
		key := l.key(info, args[0])
		switch {
		case seen[key]:
			l.wrong(call, "%s is there twice", key)
		case len(args) == 1:
			l.wrong(call, "%s has no value", key)
			return
		default:
			l.value(info, key, args[1])
		}
		seen[key] = true
		l.keys[key]++
		args = args[2:]
	}
}

// literal returns the written elements of a list: []any{…}, or the first argument of an append to one.
func literal(list ast.Expr) []ast.Expr {
	if call, ok := list.(*ast.CallExpr); ok && len(call.Args) > 0 {
		list = call.Args[0]
	}
	if c, ok := list.(*ast.CompositeLit); ok {
		return c.Elts
	}
	return nil
}

func (l *logCalls) wrong(at ast.Node, format string, args ...any) {
	position := l.fset.Position(at.Pos())
	if path, err := filepath.Abs(root); err == nil {
		position.Filename, _ = filepath.Rel(path, position.Filename)
	}
	l.mistakes = append(l.mistakes, fmt.Sprintf("%s: %s", position, fmt.Sprintf(format, args...)))
}

// message: it is a text by which lines are found and counted.
func (l *logCalls) message(info *types.Info, arg ast.Expr) {
	ast.Inspect(arg, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && !info.Types[call.Fun].IsType() {
			l.wrong(arg, "the message has values in it that change: give them names")
			return false
		}
		return true
	})
}

var logKey = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

func (l *logCalls) key(info *types.Info, arg ast.Expr) string {
	v := info.Types[arg].Value
	if v == nil || v.Kind() != constant.String {
		l.wrong(arg, "a key is no constant text")
		return ""
	}
	key := constant.StringVal(v)
	switch {
	case !logKey.MatchString(key):
		l.wrong(arg, "%q: keys are of small letters, digits and single _", key)
	case key == "err", key == "time", key == "level", key == "msg":
		l.wrong(arg, "%q is not for callers; an error's key is error", key)
	}
	return key
}

var failure = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

func (l *logCalls) value(info *types.Info, key string, arg ast.Expr) {
	typ := info.Types[arg].Type
	basic, _ := typ.Underlying().(*types.Basic)
	number := basic != nil && basic.Info()&types.IsNumeric != 0
	text := basic != nil && basic.Info()&types.IsString != 0
	switch {
	case typ.String() == "time.Duration":
		l.wrong(arg, "%s is a time span: %s_seconds, and its Seconds()", key, strings.TrimSuffix(key, "_seconds"))
	case strings.HasSuffix(key, "_seconds") != isSeconds(info, arg) && (!number || !strings.HasSuffix(key, "_seconds")):
		l.wrong(arg, "%s: keys of numbers of seconds, and no others, end in _seconds", key)
	case types.Implements(typ, failure) && key != "error" && key != "err":
		l.wrong(arg, "%s is an error: its key is error", key)
	case key == "error" && !types.Implements(typ, failure) && !text:
		l.wrong(arg, "error is %s: want an error", typ)
	}
}

// isSeconds reports whether an expression is the Seconds of a time span.
func isSeconds(info *types.Info, arg ast.Expr) bool {
	call, ok := arg.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && info.Uses[selector.Sel] != nil && info.Uses[selector.Sel].String() == "func (time.Duration).Seconds() float64"
}
