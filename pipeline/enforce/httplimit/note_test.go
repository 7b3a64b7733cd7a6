package httplimit

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig/permits"
)

// said lists an event's fields beside those of the gate.
func said(e event.Event) string {
	s := fmt.Sprintf("%s %s cost %v id %q", e.API, e.Outcome, e.Cost, e.ID)
	for _, a := range e.Attrs {
		if a.Name != "latency_ms" {
			s += " " + a.Name + "=" + a.Value.Text
		}
	}
	return s
}

// What only the handler knows is in the gate's event, and Options.Event has the last word.
func TestHandlersNoteForTheGatesEvent(t *testing.T) {
	var got events
	gate := Middleware(newTable(t), Options{UID: byHeader, API: Constant("order.create"), Events: &got, Event: func(r *http.Request, e *event.Event) bool {
		if r.Pattern == "" {
			t.Error("Options.Event does not see the route")
		}
		return e.Outcome != "dropped"
	}})
	mux := http.NewServeMux()
	mux.HandleFunc("/orders", func(w http.ResponseWriter, r *http.Request) {
		enforce.Note(r.Context(), enforce.Attr("discounted", event.BoolValue(true)), enforce.EventID("o1"))
		done := make(chan struct{})
		go func() { // as those do that ask others
			enforce.Note(r.Context(), enforce.Cost(3*event.One))
			close(done)
		}()
		<-done
		enforce.Note(r.Context(), enforce.Outcome(r.URL.Query().Get("outcome")))
	})
	h := gate(http.HandlerFunc(mux.ServeHTTP))
	for _, outcome := range []string{"failure", "dropped"} {
		w, r := request("42")
		r.URL = &url.URL{Path: "/orders", RawQuery: "outcome=" + outcome}
		r.Header.Set(enforce.NoteHeader, "outcome=nothing") // a client's
		if h.ServeHTTP(w, r); r.Pattern != "/orders" {
			t.Errorf("middleware around the gate sees the route %q", r.Pattern)
		}
	}
	if len(got) != 1 || said(got[0]) != `order.create failure cost 3 id "o1" status=200 discounted=true` {
		t.Errorf("%+v", got)
	}
}

// What the admitter is told of the end is what the handler has noted, also where the gate emits nothing.
func TestANotedOutcomeEndsThePermit(t *testing.T) {
	for _, emitting := range []bool{false, true} {
		a, o := &permits.Admitter{}, Options{UID: byHeader}
		if o.Admit = a; emitting {
			o.Events = &events{}
		}
		w, r := request("ok")
		Middleware(newTable(t), o)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			enforce.Note(r.Context(), enforce.Outcome("failure"))
		})).ServeHTTP(w, r)
		if heard := a.Heard(); len(heard) != 2 || heard[1] != "ok done failure" {
			t.Errorf("emitting %v: %q", emitting, heard)
		}
	}
}

// A server behind a reverse proxy notes by a header, which its clients never see.
func TestResponsesNoteForTheGatesEvent(t *testing.T) {
	var log bytes.Buffer
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(usual)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Tallygate-Note"] = r.URL.Query()["note"]
		switch r.URL.Path {
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
		case "/flush":
			w.(http.Flusher).Flush()
		case "/fails":
			w.WriteHeader(http.StatusPaymentRequired)
		case "/body":
			_, _ = io.WriteString(w, "body")
		}
	}))
	defer backend.Close()
	to, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, want string
		o          Options
	}{
		{"/nothing?note=outcome=failure", "x failure cost 1 id \"\" status=200", Options{NoteHeader: true}},
		{"/body?note=cost=2&note=attrs.plan=pro", "x success cost 2 id \"\" status=200 plan=pro", Options{NoteHeader: true}},
		{"/flush?note=id=o1", "x success cost 1 id \"o1\" status=200", Options{NoteHeader: true}},
		{"/early?note=cost=2", "x success cost 2 id \"\" status=200", Options{NoteHeader: true}},
		{"/fails?note=outcome=unpaid", "x unpaid cost 1 id \"\" status=402", Options{NoteHeader: true}},
		{"/fails?note=outcome=a%20b", "x failure cost 1 id \"\" status=402", Options{NoteHeader: true}},
		{"/fails?note=uid=7", "x failure cost 1 id \"\" status=402", Options{NoteHeader: true}},
		{"/fails?note=outcome=unpaid", "x failure cost 1 id \"\" status=402", Options{}},
	} {
		var got events
		c.o.UID, c.o.API, c.o.Events = byHeader, Constant("x"), &got
		front := httptest.NewServer(Middleware(newTable(t), c.o)(httputil.NewSingleHostReverseProxy(to)))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(enforce.NoteHeader, "outcome=nothing")
		resp, err := front.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		front.Close() // then the event is emitted
		if len(got) != 1 || said(got[0]) != c.want {
			t.Errorf("%s: %+v, want %s", c.path, got, c.want)
		}
		if told := resp.Header.Get("Tallygate-Note") != ""; told == c.o.NoteHeader {
			t.Errorf("%s: the client sees it: %v", c.path, told)
		}
	}
	if n := strings.Count(log.String(), "a response notes what cannot be read"); n != 2 { // once per gate
		t.Errorf("%d lines: %s", n, &log)
	}
	// Without events it is taken out, too.
	front := httptest.NewServer(Middleware(newTable(t), Options{UID: byHeader, NoteHeader: true})(httputil.NewSingleHostReverseProxy(to)))
	defer front.Close()
	resp, err := front.Client().Get(front.URL + "/body?note=cost=2")
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.Header.Get("Tallygate-Note") != "" {
		t.Error("a gate that emits nothing passes the header on")
	}
}

// The server removes the files of the request that it has made: the handler's is another one.
func TestFilesOfFormsAreRemoved(t *testing.T) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("f", "f.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(part, strings.Repeat("x", 100))
	_ = form.Close()
	r := httptest.NewRequest(http.MethodPost, "/", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	r.Header.Set("X-User", "42")
	Middleware(newTable(t), Options{UID: byHeader, Events: &events{}})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
	if r.MultipartForm == nil || len(r.MultipartForm.File["f"]) != 1 {
		t.Fatal("the server does not know the form")
	}
	if err := r.MultipartForm.RemoveAll(); err != nil {
		t.Error(err)
	}
}

// A note costs nothing that the gate does not cost anyway, where there is none.
func TestNotesCostNothingWhereThereAreNone(t *testing.T) {
	h := Middleware(newTable(t), Options{UID: byHeader, API: Constant("x"), Events: dropped{}})(ok)
	w, r := request("42")
	if n := testrun.Allocs(100, func() { h.ServeHTTP(w, r) }); n > 8 && !raceEnabled {
		t.Errorf("%v allocations, want the 8 that it had before there were notes", n)
	}
}
