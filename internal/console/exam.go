package console

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/tools/doctor"
)

// examRoom has the doctor's latest examination. One runs at a time, for all readers.
type examRoom struct {
	mu     sync.Mutex
	latest exam
	open   sync.WaitGroup
}

// exam is an examination, finished or not.
type exam struct {
	Began, Ended time.Time // zero: there was none; it runs
	By           string
	Results      []doctor.Result // what is wrong first
	Err          string
}

// Running reports whether more results will come.
func (e *exam) Running() bool { return !e.Began.IsZero() && e.Ended.IsZero() }

// Count counts the results with a status.
func (e *exam) Count(status string) (n int) {
	for i := range e.Results {
		if string(e.Results[i].Status) == status {
			n++
		}
	}
	return n
}

// Wrong are the results that somebody has to do something about, and Rest the others.
func (e *exam) Wrong() []doctor.Result { return e.Results[:e.wrong()] }

// Rest are the results beside Wrong.
func (e *exam) Rest() []doctor.Result { return e.Results[e.wrong():] }

func (e *exam) wrong() int { return e.Count(string(doctor.Fail)) + e.Count(string(doctor.Warn)) }

// About returns the results of some checks, by the beginnings of their names.
func (e *exam) About(names ...string) (some []doctor.Result) {
	for _, r := range e.Results {
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(r.Name, name) }) {
			some = append(some, r)
		}
	}
	return some
}

func (x *examRoom) now() *exam {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.latest
	e.Results = slices.Clone(e.Results)
	order := []doctor.Status{doctor.Fail, doctor.Warn, doctor.OK, doctor.Skipped}
	slices.SortStableFunc(e.Results, func(a, b doctor.Result) int {
		return cmp.Compare(slices.Index(order, a.Status), slices.Index(order, b.Status))
	})
	return &e
}

// begin starts an examination, until ctx ends, unless one runs.
func (x *examRoom) begin(ctx context.Context, cfg doctor.Config, by string, now func() time.Time) (started bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.latest.Running() {
		return false
	}
	x.latest = exam{Began: now(), By: by}
	x.open.Go(func() {
		_, err := doctor.Run(ctx, cfg, func(r doctor.Result) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.latest.Results = append(x.latest.Results, r)
		})
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.latest.Ended = now(); err != nil {
			x.latest.Err = err.Error()
		}
	})
	return true
}
