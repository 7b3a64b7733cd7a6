package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/rules"
)

// lookEvery is how often the rule file is looked at for a change.
const lookEvery = time.Second

// reloader publishes the rule file again when it has changed, or when it is told to.
type reloader struct {
	*Program
	agg *aggregate.Aggregator
}

// run follows the file, and SIGHUP, until ctx ends. A file that is replaced through a symlink
// somewhere in its path, as Kubernetes does, is another file.
func (r *reloader) run(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	path := r.Config.RuleFile.Name
	was, _ := os.Stat(path)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		why := "SIGHUP"
		select {
		case <-hup:
		case <-tick.C:
			info, err := os.Stat(path)
			if err != nil || same(was, info) {
				continue // a file that is away for a moment is about to be replaced
			}
			was, why = info, "the file has changed"
		case <-ctx.Done():
			return nil
		}
		_, _ = r.reload(ctx, why) // the log has it
	}
}

func same(a, b os.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// reload says in the log what came of it.
func (r *reloader) reload(ctx context.Context, why string) (aggregate.Reloaded, error) {
	done, err := r.publish(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		r.Log.Error("the rule file changes nothing", "why", why, "file", r.Config.RuleFile.Name, "err", err)
	case done.Changed:
		r.Log.Info("the rule file was published", "why", why, "file", r.Config.RuleFile.Name, "version", done.Version)
	}
	return done, err
}

func (r *reloader) publish(ctx context.Context) (aggregate.Reloaded, error) {
	file, err := readRules(r.Config.RuleFile.Name)
	if err != nil {
		return aggregate.Reloaded{}, err
	}
	return r.agg.Reload(ctx, file)
}

// serve answers POST /-/reload: 200 with the version that runs now; 422 for a file with
// mistakes, 409 for one that is older than what the group runs.
func (r *reloader) serve(w http.ResponseWriter, req *http.Request) {
	if len(r.Config.RuleFile.Source) == 0 {
		refuse(w, http.StatusNotImplemented, errors.New("this program was started without a rule file"))
		return
	}
	done, err := r.reload(req.Context(), "POST /-/reload")
	_, mistakes := errors.AsType[rules.Errors](err)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(done) // a client that went away is no error of ours
	case mistakes, errors.Is(err, os.ErrNotExist):
		refuse(w, http.StatusUnprocessableEntity, err)
	case errors.Is(err, aggregate.ErrOlderRules):
		refuse(w, http.StatusConflict, err)
	default:
		refuse(w, http.StatusServiceUnavailable, err)
	}
}

// refuse answers with RFC 9457's problem+json.
func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": err.Error(),
	})
}
