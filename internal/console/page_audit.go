package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
)

func auditPage() page {
	return page{
		name: "audit", path: "/audit", title: "Audit", nav: "Audit", least: access.Viewer, load: loadAudit,
		actions: map[string]action{"search": {least: access.Viewer, do: searchAudit}},
	}
}

type auditView struct {
	Source  source
	Query   url.Values
	Types   []string
	Key     string // that is searched for, as the reader sees it; "" is any
	KeyPath string
	Table   table
	First   string
	Next    string
	Older   string // where what is older than memory is read; "": there is nothing older that is wanted
	Back    string // of a page that was read from the topic: how far it has read
	Export  string // "": the reader may not
}

const (
	auditPageSize = 100

	// olderWithin bounds the reading of the topic for a page.
	olderWithin = 10 * time.Second
)

// auditFilter reads the parameters. Times are in UTC, or spans back from now.
func (r *request) auditFilter(k *Keys) (f auditlog.Filter, err error) {
	v := r.query()
	if t := v.Get("type"); t != "" {
		f.Types = []string{t}
	}
	f.Rule, f.By = strings.TrimSpace(v.Get("rule")), strings.TrimSpace(v.Get("who"))
	if ref := v.Get("key"); ref != "" {
		if f.Key, err = k.refs.Key(ref); err != nil {
			return f, &Problem{Status: http.StatusNotFound, Title: "This link names no key", Detail: err.Error(), Do: "Search for the key again.", Link: "/audit"}
		}
		f.KeyOnly = true
	}
	f.From = r.Now.Add(-24 * time.Hour)
	if text := strings.TrimSpace(v.Get("from")); text != "" {
		if f.From, err = parseMoment(text, r.Now); err != nil {
			return f, err
		}
	}
	if text := strings.TrimSpace(v.Get("to")); text != "" {
		if f.To, err = parseMoment(text, r.Now); err != nil {
			return f, err
		}
		if !f.From.Before(f.To) {
			return f, invalid("The span is empty", "Its end is not after its start.")
		}
	}
	return f, nil
}

func loadAudit(r *request) (any, error) {
	k, err := r.keys()
	if err != nil {
		return nil, err
	}
	f, err := r.auditFilter(k)
	if err != nil {
		return nil, err
	}
	e := r.eyesOf(k, f.Key)
	q := r.query()
	v := &auditView{Source: k.auditSource(r.Now), Query: q, Types: auditlog.Types()}
	if len(f.Key) > 0 {
		v.Key, v.KeyPath = e.text(f.Key), e.path(f.Key)
	}
	after, older := q.Get("after"), q.Get("older") != ""
	first := after != "" || older
	q.Del("after")
	q.Del("older")
	var found auditlog.Found
	if older {
		found, err = v.fromTopic(r, k, f, after)
	} else {
		if found, err = k.audit.Find(f, after, auditPageSize); err != nil {
			err = &Problem{Status: http.StatusNotFound, Title: "There is no such page", Detail: err.Error(), Do: "Begin at the first page.", Link: "/audit"}
		}
	}
	if err != nil {
		return nil, err
	}
	at := func(name, value string) string {
		return "/audit?" + strings.TrimPrefix(q.Encode()+"&", "&") + name + "=" + value
	}
	if first {
		v.First = withQuery("/audit", q)
	}
	if found.Next != "" && older {
		v.Next = at("older", "1") + "&after=" + found.Next
	} else if found.Next != "" {
		v.Next = at("after", found.Next)
	} else if h := k.audit.Health(); !older && (h.From.IsZero() || f.From.Before(h.From.Add(-time.Minute))) {
		v.Older = at("older", "1")
	}
	if r.may(access.Operator) {
		v.Export = withQuery("/audit/export.ndjson", q)
	}
	v.Table = e.auditTable(found.Entries)
	v.Table.Caption, v.Table.Hidden = "Entries of the audit, the latest first", true
	v.Table.Empty = empty{Title: "No entry", Text: "Nothing in this span matches the filter.", Link: "/audit", LinkText: "Show all of the last day"}
	return v, nil
}

// fromTopic reads what is older than memory.
func (v *auditView) fromTopic(r *request, k *Keys, f auditlog.Filter, after string) (auditlog.Found, error) {
	ctx, cancel := context.WithTimeout(r.ctx(), olderWithin)
	defer cancel()
	part, err := k.audit.Older(ctx, f, after, auditPageSize)
	if err != nil {
		return auditlog.Found{}, &Problem{Status: http.StatusBadGateway, Title: "The audit topic cannot be read", Detail: err.Error(), Do: "The overview says whether Kafka answers.", Link: "/audit"}
	}
	back := part.Back.UTC().Format("2006-01-02 15:04:05") + " UTC"
	switch {
	case part.Done:
		v.Back = "Read from Kafka, back to the start of the span, " + back + "."
	case len(part.Entries) >= auditPageSize:
		v.Back = "Read from Kafka, back to " + back + "."
	default:
		v.Back = "Read from Kafka for " + span(olderWithin) + ", back to " + back + " so far. The next page goes on from there."
	}
	return part.Found, nil
}

// searchAudit shows a key's entries: the form sends the key in its body, so that no address has it.
func searchAudit(r *request) (result, error) {
	k, err := r.keys()
	if err != nil {
		return result{}, err
	}
	key, err := parseKey(r.PostForm.Get("key"))
	if err != nil {
		return result{}, err
	}
	shown, err := r.reveal(k, key, "audit", "")
	if err != nil {
		return result{}, err
	}
	q := url.Values{"key": {k.refs.Ref(key)}}
	if from := strings.TrimSpace(r.PostForm.Get("from")); from != "" {
		q.Set("from", from)
	}
	done := result{To: "/audit?" + q.Encode()}
	if shown != nil {
		done.cookies = append(done.cookies, shown)
	}
	return done, nil
}
