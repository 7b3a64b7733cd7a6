package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// lookout asks both enforcers all the time for some of the keys with verdicts: none may let an
// entry go before its until, or hold it after.
type lookout struct {
	s      *stage
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	watched map[string]*watched // by record key
	early   []offence
	late    []offence
	shown   map[string]map[sighting]bool // all that was ever shown, by record key
	asked   int                          // answers
	seen    int                          // entries in them
	latest  time.Duration                // by how much an entry was held too long, at most
}

// watched is a record key that is asked for.
type watched struct {
	query json.RawMessage
	until event.Micros // of the last verdict there was
}

// sighting is a verdict as an enforcer has shown it.
type sighting struct {
	seq   int64
	until event.Micros
}

// offence is an entry that was not there when it should be, or there when it should not.
type offence struct {
	enforcer, key string
	sighting
	from, to event.Micros // the question and its answer
}

func (o offence) String() string {
	return fmt.Sprintf("%s: %s seq %d until %v, asked %v, answered %v", o.enforcer, o.key, o.seq, o.until, o.from, o.to)
}

const (
	watchedKeys = 300
	resolution  = 5 * event.Millisecond // of an enforcer's clock
)

func (s *stage) watchEnforcers() *lookout {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	w := &lookout{s: s, cancel: cancel, watched: map[string]*watched{}, shown: map[string]map[sighting]bool{}}
	c, err := sarama.NewConsumerFromClient(s.fetch)
	if err != nil {
		s.t.Fatal(err)
	}
	for p := range s.partitions {
		pc, err := c.ConsumePartition(s.names.Verdicts, p, sarama.OffsetOldest)
		if err != nil {
			s.t.Fatal(err)
		}
		w.wg.Go(func() { w.follow(ctx, pc) })
	}
	for _, g := range s.guards {
		w.wg.Go(func() { w.watch(ctx, g) })
	}
	return w
}

func (w *lookout) stop() {
	if w != nil {
		w.cancel()
		w.wg.Wait()
	}
}

// follow picks keys from the verdict topic.
func (w *lookout) follow(ctx context.Context, pc sarama.PartitionConsumer) {
	defer func() { _ = pc.Close() }()
	for {
		select {
		case m := <-pc.Messages():
			if verdict.OwnRecord(m.Key) || crc32.ChecksumIEEE(m.Key)%5 != 0 {
				continue
			}
			if v, err := verdict.Parse(m.Value); err == nil {
				w.noteVerdict(string(m.Key), &v)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *lookout) noteVerdict(key string, v *verdict.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch k := w.watched[key]; {
	case k != nil:
		k.until = max(k.until, v.Until)
	case len(w.watched) < watchedKeys && v.Until > event.FromTime(time.Now()):
		w.watched[key] = &watched{queryOf(v), v.Until}
	}
}

// queryOf is a check by a caller with the key.
func queryOf(v *verdict.Verdict) json.RawMessage {
	q := struct {
		UID   string            `json:"uid,omitempty"`
		IP    string            `json:"ip,omitempty"`
		API   string            `json:"api"`
		Attrs map[string]string `json:"attrs,omitempty"`
	}{API: "profile.view", Attrs: map[string]string{}}
	for _, d := range v.Key {
		switch name, isAttr := strings.CutPrefix(d.Name, "attrs."); {
		case isAttr:
			q.Attrs[name] = d.Value
		case d.Name == "uid":
			q.UID = d.Value
		case d.Name == "api":
			q.API = d.Value
		case d.Name != "all":
			q.IP, _, _ = strings.Cut(d.Value, "/")
		}
	}
	if !v.Covers(q.API) {
		q.API = strings.ReplaceAll(v.APIs[0], "*", "put")
	}
	text, err := json.Marshal(q)
	if err != nil {
		panic(err) // of strings
	}
	return text
}

// some returns what to ask for, and gives up keys whose verdicts ended long ago.
func (w *lookout) some() (keys []string, body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var queries []json.RawMessage
	old := event.FromTime(time.Now()) - 5*event.Second
	for key, k := range w.watched {
		if k.until < old {
			delete(w.watched, key)
			continue
		}
		keys, queries = append(keys, key), append(queries, k.query)
	}
	body, err := json.Marshal(map[string]any{"checks": queries})
	if err != nil {
		panic(err) // of what json made
	}
	return keys, body
}

// watch asks one enforcer.
func (w *lookout) watch(ctx context.Context, g *guard) {
	held := map[string]sighting{} // the last of each key
	over := map[string]sighting{} // held for too long, in the last answer
	life := int64(-1)
	for ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		keys, body := w.some()
		born := g.life.Load()
		from := event.FromTime(time.Now())
		found, err := g.askAll(ctx, body)
		to := event.FromTime(time.Now())
		if err != nil || g.life.Load() != born || len(found) != len(keys) {
			continue
		}
		if born != life { // another process, with another table
			life = born
			clear(held)
		}
		late := map[string]sighting{}
		for i, key := range keys {
			w.compare(g, key, found[i], held, over, late, from, to)
		}
		over = late
	}
}

// compare notes what is wrong with an answer.
func (w *lookout) compare(g *guard, key string, found []verdict.Verdict, held, over, late map[string]sighting, from, to event.Micros) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	i := slices.IndexFunc(found, func(v verdict.Verdict) bool { return string(verdict.AppendRecordKey(nil, &v)) == key })
	if i < 0 {
		if last, was := held[key]; was && to+resolution < last.until {
			w.early = append(w.early, offence{g.name, key, last, from, to})
		}
		delete(held, key)
		return
	}
	w.seen++
	now := sighting{found[i].Seq, found[i].Until}
	held[key] = now
	if w.shown[key] == nil {
		w.shown[key] = map[sighting]bool{}
	}
	w.shown[key][now] = true
	if now.until+resolution < from {
		w.latest = max(w.latest, (from - now.until).Duration())
		late[key] = now
		// Once may be a machine that was too busy to move the enforcer's clock; not twice.
		if over[key] == now {
			w.late = append(w.late, offence{g.name, key, now, from, to})
		}
	}
}

// askAll returns what is in force for each question.
func (g *guard) askAll(ctx context.Context, body []byte) ([][]verdict.Verdict, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url("/v1/check/batch"), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var reply struct {
		Results []struct {
			Verdicts []verdict.Verdict `json:"verdicts"`
		} `json:"results"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("check/batch: %d %w", resp.StatusCode, err)
	}
	out := make([][]verdict.Verdict, len(reply.Results))
	for i, r := range reply.Results {
		out[i] = r.Verdicts
	}
	return out, nil
}

// judge compares what was seen with all that was published.
func (w *lookout) judge(topic published) {
	w.s.t.Helper()
	d := differencesOf("enforcers, asked all the time")
	d.all = w.asked
	for _, o := range w.early {
		if !endedEarly(topic.all[o.key], o) {
			d.add("let go too early: %v\n   published: %s", o, history(topic.all[o.key]))
		}
	}
	for _, o := range w.late {
		d.add("held too long: %v", o)
	}
	for key, all := range w.shown {
		for s := range all {
			if !slices.ContainsFunc(topic.all[key], func(v verdict.Verdict) bool { return v.Seq == s.seq && v.Until == s.until }) {
				d.add("shown, but never published: %s seq %d until %v", key, s.seq, s.until)
			}
		}
	}
	d.report(w.s.t)
	w.s.t.Logf("%d entries of %d keys seen in %d answers; held for at most %v too long", w.seen, len(w.shown), w.asked, w.latest)
}

// endedEarly reports whether a later verdict ended what was shown.
func endedEarly(all []verdict.Verdict, o offence) bool {
	return slices.ContainsFunc(all, func(v verdict.Verdict) bool {
		return v.Seq > o.seq && (v.State == verdict.Clear || v.Until <= o.to)
	})
}
