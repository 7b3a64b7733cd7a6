package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/pipeline/aggregate"
)

// lookEvery is the interval between looks at the rule file.
const lookEvery = time.Second

// replacing is for so many looks a file that is missing is taken to be replaced.
const replacing = 3

// reloader publishes the rule file again when it has changed, or on request.
type reloader struct {
	*Program
	agg  *aggregate.Aggregator
	file *fileState

	mu    sync.Mutex
	named []string // the files that the rule file names, as paths
	gone  bool     // a file was not there when it was last read: it may come back as it was
}

// run follows the file, the files that it names, and SIGHUP, until ctx ends. A file that is
// replaced through a symlink in its path, as Kubernetes does, counts as changed. What could not be
// published without Kafka is retried. So is the file at the start, which may have changed since it
// was read. A file that stays missing is a mistake as any other: a restart would meet it.
func (r *reloader) run(ctx context.Context) error {
	hup := r.Hangup
	if hup == nil {
		own := make(chan os.Signal, 1)
		signal.Notify(own, syscall.SIGHUP)
		defer signal.Stop(own)
		hup = own
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var was []os.FileInfo
	again, said, missing := true, "", 0
	for {
		why := "SIGHUP"
		select {
		case <-hup:
			said = ""
		case <-tick.C:
			is, err := r.look()
			if missing++; err == nil {
				missing = 0
			}
			if err != nil && missing < replacing || err == nil && !again && same(was, is) && !r.wasGone() {
				continue
			}
			if !same(was, is) {
				was, said = is, ""
			}
			why = "the file has changed"
		case <-ctx.Done():
			return nil
		}
		_, err := r.publish(ctx)
		again = err != nil && !errors.Is(err, aggregate.ErrRules) && !errors.Is(err, aggregate.ErrOlderRules)
		if err == nil || errors.Is(err, aggregate.ErrNotConnected) || err.Error() == said || ctx.Err() != nil {
			continue
		}
		said = err.Error()
		r.Log.Error("the rule file was not loaded", "reason", why, "file", r.Config.RuleFile.Name, "retries", again, "error", err)
	}
}

// look returns the state of the rule file and the files that it names.
func (r *reloader) look() ([]os.FileInfo, error) {
	r.mu.Lock()
	paths := append([]string{r.Config.RuleFile.Name}, r.named...)
	r.mu.Unlock()
	out := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		var err error
		if out[i], err = os.Stat(path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// wasGone reports whether the last attempt to read the files missed one. A reload between two looks may have
// met the moment in which a file is replaced: what comes back looks as it did at the look before.
func (r *reloader) wasGone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}

// same reports whether nothing has happened to the files between two looks. Files are compared by what they are,
// too: one with the time and size of another may be put in its place.
func same(a, b []os.FileInfo) bool {
	return slices.EqualFunc(a, b, func(a, b os.FileInfo) bool {
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
	})
}

func (r *reloader) publish(ctx context.Context) (api.Reloaded, error) {
	_, file, named, err := readRules(r.Config.RuleFile.Name)
	r.mu.Lock()
	r.named = named // also those of a broken set: one of them may be what will be mended
	r.gone = errors.Is(err, fs.ErrNotExist)
	r.mu.Unlock()
	if err != nil {
		r.file.note(err)
		r.agg.RuleFileRefused()
		return api.Reloaded{}, fmt.Errorf("%w: %w", aggregate.ErrRules, err)
	}
	done, err := r.agg.Reload(ctx, file)
	var wrong error
	if errors.Is(err, aggregate.ErrRules) || errors.Is(err, aggregate.ErrRulesTooLarge) {
		wrong = err
	}
	r.file.note(wrong)
	if done.Changed {
		log := r.Log
		if who := access.From(ctx).Name; who != "" {
			log = log.With("by", who)
		}
		log.Info("the rule file was published", "file", r.Config.RuleFile.Name, "version", done.Version)
	}
	return done, err
}

// serve answers POST /-/reload: 200 with the version that runs now; 422 for a file with mistakes;
// 409 for one that is older than the group's rules.
func (r *reloader) serve(w http.ResponseWriter, req *http.Request) {
	if !r.hasFile() {
		httpjson.Problem(w, http.StatusNotImplemented, "this program was started without a rule file")
		return
	}
	done, err := r.publish(req.Context())
	switch {
	case err == nil:
		httpjson.Reply(w, done)
	case errors.Is(err, aggregate.ErrRules):
		httpjson.Problem(w, http.StatusUnprocessableEntity, err.Error())
	case errors.Is(err, aggregate.ErrOlderRules):
		httpjson.Problem(w, http.StatusConflict, err.Error())
	default:
		httpjson.Problem(w, http.StatusServiceUnavailable, err.Error())
	}
}
