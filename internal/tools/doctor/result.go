package doctor

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/base/words"
)

// Status is the state of one thing.
type Status string

// The values of Status.
const (
	OK      Status = "ok"
	Warn    Status = "warn" // works, but is a risk
	Fail    Status = "fail" // does not work, or loses data
	Skipped Status = "skipped"
)

// Result is one finding. A check that finds several things wrong has a result for each.
type Result struct {
	Name   string `json:"name"` // of the check: stable, for programs
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do, one step per line; often a command
}

// Report is the result of a run.
type Report struct {
	Well    bool     `json:"well"` // nothing failed
	Results []Result `json:"results"`
}

func (r *Report) count(s Status) (n int) {
	for _, x := range r.Results {
		if x.Status == s {
			n++
		}
	}
	return n
}

var marks = map[Status]string{OK: "ok", Warn: "warn", Fail: "FAIL", Skipped: "skip"}

const (
	nameWidth = 15
	indent    = 6 + nameWidth + 1
)

// writeResult writes one line for people, and below it what to do.
func writeResult(w io.Writer, r Result) {
	hang := "\n" + strings.Repeat(" ", indent)
	fmt.Fprintf(w, "%-5s %-*s %s\n", marks[r.Status], nameWidth, r.Name, strings.ReplaceAll(words.Lines(r.Detail), "\n", hang))
	if r.Fix != "" {
		fmt.Fprintf(w, "%s-> %s\n", hang[1:], strings.ReplaceAll(words.Lines(r.Fix), "\n", hang+"-> "))
	}
}

func writeSummary(w io.Writer, r *Report) {
	fmt.Fprintf(w, "\n%d failed, %s, %d ok, %d skipped\n", r.count(Fail), words.Plural(r.count(Warn), "warning"), r.count(OK), r.count(Skipped))
}

func ok(name, format string, args ...any) Result {
	return Result{Name: name, Status: OK, Detail: fmt.Sprintf(format, args...)}
}

func skip(name, format string, args ...any) Result {
	return Result{Name: name, Status: Skipped, Detail: fmt.Sprintf(format, args...)}
}

func warn(name, fix, format string, args ...any) Result {
	return Result{Name: name, Status: Warn, Detail: fmt.Sprintf(format, args...), Fix: fix}
}

func fail(name, fix, format string, args ...any) Result {
	return Result{Name: name, Status: Fail, Detail: fmt.Sprintf(format, args...), Fix: fix}
}

// human formats long durations in days, as rules do.
func human(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}

// refused reports whether Kafka denied this principal a right.
func refused(err error) bool {
	for _, e := range []error{
		sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
		sarama.ErrTransactionalIDAuthorizationFailed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// hidden reports whether Redis denied this user a command, or does not know it.
func hidden(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := strings.ToLower(answer.Error())
	return strings.HasPrefix(text, "noperm") || strings.Contains(text, "unknown")
}
