package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/admit"
)

// addresses are the first line of --json, and the ready file.
type addresses struct {
	Console    string `json:"console"` // a URL
	Kafka      string `json:"kafka"`   // HOST:PORT,…
	Events     string `json:"events_topic"`
	Redis      string `json:"redis"` // HOST:PORT,…
	Prefix     string `json:"prefix"`
	Decisions  string `json:"decision_server"` // a URL, as are the next ones
	Aggregator string `json:"aggregator"`
	Metrics    string `json:"metrics"`
	GRPC       string `json:"grpc"` // HOST:PORT
}

func (s *stack) addresses() addresses {
	return addresses{
		Console: "http://" + s.pages.Addr().String() + "/",
		Kafka:   strings.Join(s.kafka.Brokers, ","), Events: s.prefix + ".events", Redis: s.rds, Prefix: s.prefix,
		Decisions: "http://" + s.decisions.Addr().String(), Aggregator: "http://" + s.api.Addr().String(),
		Metrics: "http://" + s.metrics.Addr().String() + "/metrics", GRPC: s.calls.Addr().String(),
	}
}

const (
	readyEvery  = 50 * time.Millisecond // between two looks
	readyWithin = 5 * time.Second       // of one look
)

// untilReady waits until everything works; false is that ctx ended first.
func (s *stack) untilReady(ctx context.Context) bool {
	client := &http.Client{Timeout: readyWithin, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for !s.isReady(ctx, client) {
		if !retry.Sleep(ctx, readyEvery) {
			return false
		}
	}
	return true
}

// announce writes the ready file, and says that everything works. The file is there until ctx ends.
func (s *stack) announce(ctx context.Context, to *screen) error {
	if s.readyFile != "" {
		text, err := json.Marshal(s.addresses())
		if err == nil {
			err = replaceFile(s.readyFile, append(text, '\n'))
		}
		if err != nil {
			return fmt.Errorf("write --ready-file: %w", err)
		}
		defer func() { _ = os.Remove(s.readyFile) }() // it may be gone
	}
	to.ready()
	<-ctx.Done()
	return nil
}

// dropReadyFile removes the file of a process that was killed: who waits for ours would take it for that.
func dropReadyFile(path string) error {
	if path == "" {
		return nil
	}
	switch info, err := os.Stat(filepath.Dir(path)); {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", filepath.Dir(path))
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", path)
	}
	return os.Remove(path)
}

// replaceFile writes a file that others wait for: it is there when all of it is.
func replaceFile(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// isReady reports whether events are counted, requests are answered, and permits are granted if a rule is
// strict.
func (s *stack) isReady(ctx context.Context, client *http.Client) bool {
	for _, l := range []string{s.addresses().Aggregator, s.addresses().Decisions} {
		if status, _ := s.ask(ctx, client, http.MethodGet, l+"/readyz", ""); status != http.StatusOK {
			return false
		}
	}
	return len(s.rules.Strict()) == 0 || s.grants(ctx) && s.knowsRules(ctx, client)
}

// grants reports whether Redis grants permits in each partition. How many a Kafka has that is not embedded
// is not known here.
func (s *stack) grants(ctx context.Context) bool {
	if !s.ownKafka() {
		return true
	}
	looker := admit.NewLooker(s.redis, s.prefix, 1, partitions)
	for id := range int32(partitions) {
		if seen, err := looker.Look(ctx, id, "uid="+nobody, nil); err != nil || !seen.Grants {
			return false
		}
	}
	return true
}

// nobody asks whether the decision server answers by the rules.
const nobody = "tallygate.dev"

// knowsRules reports whether the decision server knows the rules: until then each request is in doubt.
func (s *stack) knowsRules(ctx context.Context, client *http.Client) bool {
	_, answer := s.ask(ctx, client, http.MethodPost, s.addresses().Decisions+"/v1/admit", `{"uid": "`+nobody+`", "api": "`+nobody+`"}`)
	var a api.Admission
	if json.Unmarshal(answer, &a) != nil || a.InDoubt || !a.Admitted && !a.Limited {
		return false
	}
	if a.Token != "" { // a rule is for any API
		body, _ := json.Marshal(map[string]string{"token": a.Token}) // a text always marshals
		_, _ = s.ask(ctx, client, http.MethodPost, s.addresses().Decisions+"/v1/cancel", string(body))
	}
	return true
}

// ask returns the status and the body of an answer; a status of 0 is none.
func (*stack) ask(ctx context.Context, client *http.Client, method, url, body string) (status int, answer []byte) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil // it does not listen yet
	}
	defer resp.Body.Close()
	answer, _ = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, answer
}
