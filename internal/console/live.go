package console

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
)

// livePath returns the path at which a page's parts are pushed.
func livePath(path string) string { return "/live" + path }

const (
	followWithin = 10 * time.Second       // for the reader to take what is pushed
	followGap    = 250 * time.Millisecond // between two rounds, at least
	followBeat   = 3 * time.Second        // at most, however little happens
	mostBeat     = 5 * time.Second        // the same for pages with a time of their own: browsers miss it after six
)

// follow pushes a page's parts as server-sent events, at once and whenever their text changes. Each round
// ends with an event "beat", whether or not anything changed: a page that gets none says that it is old.
func (s *server) follow(p *page, r *request, w http.ResponseWriter) {
	out := http.NewResponseController(w)
	if out.SetReadDeadline(time.Time{}) != nil { // the server's would end the request after half a minute
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	sent := map[string]string{}
	for {
		text := s.round(p, r, sent)
		if out.SetWriteDeadline(time.Now().Add(followWithin)) != nil {
			return
		}
		if _, err := w.Write(text); err != nil || out.Flush() != nil {
			return
		}
		if !s.next(r, p.every) {
			return
		}
		if r.Who.Met(r.ctx()) {
			_, _ = w.Write([]byte("event: ended\ndata: an aggregator answers again\n\n")) // the page loads itself again
			return
		}
		r.State, r.Now = s.Health.State(), s.Now()
	}
}

// next waits for the next round: for every, or, if that is 0, until the world has changed. It is false at the
// end.
func (s *server) next(r *request, every time.Duration) bool {
	changed := s.Health.Changed()
	atMost := followBeat
	if every > 0 {
		changed, atMost = nil, min(every, mostBeat)
	}
	if !retry.Sleep(r.ctx(), followGap) {
		return false
	}
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-changed:
	case <-late.C:
	case <-r.ctx().Done():
		return false
	case <-s.base.Done():
		return false
	}
	return true
}

// round renders the parts, and returns the events for those that have changed.
func (s *server) round(p *page, r *request, sent map[string]string) []byte {
	var events bytes.Buffer
	data, err := r.data(p)
	if err != nil {
		writeEvent(&events, "trouble", problemOf(err).Error())
		return events.Bytes()
	}
	v := s.viewOf(p, r, data)
	for _, part := range p.parts {
		var b strings.Builder
		if err := s.looks[p.name].ExecuteTemplate(&b, part, v); err != nil {
			s.cannotRender(part, err)
			writeEvent(&events, "trouble", "the part "+part+" cannot be rendered")
			continue
		}
		if text := b.String(); sent[part] != text {
			sent[part] = text
			writeEvent(&events, part, text)
		}
	}
	writeEvent(&events, "beat", r.Now.UTC().Format(time.RFC3339))
	return events.Bytes()
}

func writeEvent(to *bytes.Buffer, name, data string) {
	fmt.Fprintf(to, "event: %s\n", name)
	for line := range strings.Lines(strings.ReplaceAll(data, "\r", "")) {
		fmt.Fprintf(to, "data: %s\n", strings.TrimRight(line, "\n"))
	}
	to.WriteString("\n")
}
