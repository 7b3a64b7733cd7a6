package world

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/status"
)

// Memory is what Judge must know of earlier judgements. The zero value knows nothing.
type Memory struct {
	since   map[string]mark      // of links and notices, by name
	members map[string]time.Time // when each aggregator answered last
	most    int                  // how many there were at once, at mostAt or since
	mostAt  time.Time
	behind  backlog
}

// mark is what something was, and since when.
type mark struct {
	level Level
	at    time.Time
}

// forgetMember is when an aggregator that left, and was not replaced, is no longer missed.
const forgetMember = time.Hour

// Judge turns readings into the chain. It reads no clock and changes neither argument: the memory that it
// returns is for the next call.
func Judge(was Memory, r *Readings) (Chain, Memory) {
	now := Memory{since: map[string]mark{}, members: map[string]time.Time{}, behind: was.behind}
	now.meet(was, r)
	if now.behind = was.behind.look(r); r.NoRedis {
		now.behind = backlog{}
	}
	c := Chain{Links: []Link{judgeProducers(r), judgeEvents(r), judgeAggregators(r, now.gone(r)), judgeVerdicts(r, now.behind.since), judgeRedis(r)}}
	c.Links = append(c.Links, judgeEnforcers(r)...)
	c.Notices = notices(r)
	for i := range c.Links {
		l := &c.Links[i]
		l.Since = now.remember(was, "link "+l.Name, l.Level, r.Now)
	}
	for i := range c.Notices {
		n := &c.Notices[i]
		if since := now.remember(was, "notice "+n.Name, n.Level, r.Now); n.Since.IsZero() {
			n.Since = since
		}
	}
	return c, now
}

func (m *Memory) remember(was Memory, name string, level Level, now time.Time) time.Time {
	is, known := was.since[name]
	if !known || is.level != level {
		is = mark{level, now}
	}
	m.since[name] = is
	return is.at
}

// meet notes who answers, and keeps who did within the hour.
func (m *Memory) meet(was Memory, r *Readings) {
	for name, at := range was.members {
		if r.Now.Sub(at) < forgetMember {
			m.members[name] = at
		}
	}
	m.most, m.mostAt = was.most, was.mostAt
	if !r.Cluster.Known(r.Now) {
		return
	}
	for i := range r.Cluster.Value.Members {
		m.members[r.Cluster.Value.Members[i].Instance] = r.Now
	}
	if n := len(r.Cluster.Value.Members); n >= m.most || r.Now.Sub(m.mostAt) >= forgetMember {
		m.most, m.mostAt = n, r.Now
	}
}

// gone returns the aggregators that answered within the hour and are neither there nor replaced: there are
// fewer than there were.
func (m *Memory) gone(r *Readings) (names []string) {
	if !r.Cluster.Known(r.Now) {
		return nil
	}
	there := r.Cluster.Value.Members
	for name := range m.members {
		known := func(s status.Status) bool { return s.Instance == name }
		missing := func(s status.Missing) bool { return s.Instance == name }
		if !slices.ContainsFunc(there, known) && !slices.ContainsFunc(r.Cluster.Value.Missing, missing) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { // the latest that answered first
		return cmp.Or(m.members[b].Compare(m.members[a]), strings.Compare(a, b))
	})
	lost := m.most - len(there) - len(r.Cluster.Value.Missing)
	return names[:max(0, min(len(names), lost))]
}

// backlog is what was in the verdict topic, and not in Redis, at some time. Zero: nothing was. Owners' own records for
// strict limits come all the time, so that there is nearly always something: only these ends say how late Redis is.
type backlog struct {
	since time.Time
	ends  map[int32]int64
}

// look returns the backlog itself while Redis has not reached its ends, and then that of now.
func (b backlog) look(r *Readings) backlog {
	if !r.Kafka.Known(r.Now) || !r.Redis.Known(r.Now) {
		return b
	}
	for p, end := range b.ends {
		if r.Redis.Value.Reached[p] < min(end, r.Kafka.Value.Verdicts.Ends[p]) {
			return b
		}
	}
	if unpublished(r) == 0 {
		return backlog{}
	}
	return backlog{r.Now, maps.Clone(r.Kafka.Value.Verdicts.Ends)}
}

// unpublished is how many records of the verdict topic Redis has not.
func unpublished(r *Readings) (n int64) {
	for p, end := range r.Kafka.Value.Verdicts.Ends {
		n += max(0, end-r.Redis.Value.Reached[p])
	}
	return n
}

func judgeProducers(r *Readings) Link {
	l := Link{Name: "producers", Title: "Producers", Read: r.Kafka.At}
	switch quiet := r.Now.Sub(r.Kafka.Value.Moved); {
	case !r.Kafka.Known(r.Now):
		l.Level, l.Cause = Unknown, "not seen while Kafka cannot be read"
	case r.Kafka.Value.Events.Missing:
		l.Level, l.Cause = Unknown, "not seen without the topic of events"
	case r.Kafka.Value.Moved.IsZero() && r.Now.Sub(r.Began) < quietAfter:
		l.Level, l.Cause = Unknown, "no event since the console began to look, "+span(r.Now.Sub(r.Began))+" ago"
	case r.Kafka.Value.Moved.IsZero():
		l.Level, l.Cause, l.Do = Unknown, "no event for at least "+span(r.Now.Sub(r.Began)), quietDo
	case quiet >= quietAfter:
		l.Level, l.Cause, l.Do = Unknown, "no event for "+span(quiet)+": nobody sends, or what is sent does not arrive", quietDo
	case quiet >= 3*time.Second:
		l.Level, l.Cause = OK, "the last event came "+span(quiet)+" ago"
	default:
		l.Level, l.Cause = OK, "events arrive"
	}
	l.Plain = l.Cause
	return l
}

const (
	quietAfter = time.Minute
	quietDo    = "If services should be sending: look at tallygate_emit_errors_total and the logs of one of them."
)

func judgeEvents(r *Readings) Link {
	l := Link{Name: "events", Title: "Kafka", Read: r.Kafka.At, Runbook: "TallygateKafkaRefuses"}
	if !r.Kafka.Known(r.Now) {
		unread(&l, &r.Kafka, r.Now, "Kafka")
		return l
	}
	k := &r.Kafka.Value
	who, trouble := kafkaTrouble(r)
	switch {
	case trouble != nil:
		l.Level, l.Cause, l.Plain = Bad, fmt.Sprintf("Kafka refuses %s (%s): %s", who, trouble.Reason, short(trouble.Error)), "Kafka refuses an aggregator"
		l.Do = "Give the aggregators' principal its rights again: tallygate doctor --acls prints the commands."
	case k.Events.Missing && counted(r):
		l.Level, l.Cause = Warn, "Kafka does not show the topic "+k.Events.Name+" to the console, and aggregators count it"
		l.Do = "Give the console's principal its rights: tallygate doctor --acls prints the commands."
	case k.Events.Missing:
		l.Level, l.Cause = Bad, "the topic "+k.Events.Name+" does not exist, or the console may not see it"
		l.Do = "Start an aggregator, which makes it; or correct --prefix, or the console's rights."
	case len(k.Events.Leaderless) > 0:
		l.Level, l.Cause = Bad, "no broker leads "+partitions(k.Events.Leaderless)+" of "+k.Events.Name
		l.Do = "Start the brokers that are away."
	case len(k.Verdicts.Leaderless) > 0:
		l.Level, l.Cause = Bad, "no broker leads "+partitions(k.Verdicts.Leaderless)+" of "+k.Verdicts.Name
		l.Do = "Start the brokers that are away."
	case len(k.Events.Thin)+len(k.Verdicts.Thin) > 0:
		l.Level, l.Cause = Warn, fmt.Sprintf("%d partitions have a replica out of sync: one more failure may stop them", len(k.Events.Thin)+len(k.Verdicts.Thin))
		l.Do = "Start the broker that is away, or wait until it has caught up."
	default:
		l.Level, l.Runbook = OK, ""
		l.Cause = fmt.Sprintf("%s on %s, all in sync", count(k.Events.Partitions, "partition"), count(k.Brokers, "broker"))
	}
	l.Plain = cmp.Or(l.Plain, l.Cause)
	return l
}

// counted reports whether an aggregator counts a partition: then there is a topic.
func counted(r *Readings) bool {
	return r.Cluster.Known(r.Now) && slices.ContainsFunc(r.Cluster.Value.Members, func(m status.Status) bool { return m.Aggregator != nil && len(m.Aggregator.Partitions) > 0 })
}

// kafkaTrouble is what an aggregator has with Kafka; nil if none has.
func kafkaTrouble(r *Readings) (who string, t *status.Trouble) {
	return trouble(r, func(a *status.Aggregator) *status.Trouble { return a.Kafka })
}

// redisTrouble is what an aggregator has with Redis; nil if none has.
func redisTrouble(r *Readings) (who string, t *status.Trouble) {
	return trouble(r, func(a *status.Aggregator) *status.Trouble { return a.Redis })
}

func trouble(r *Readings, of func(*status.Aggregator) *status.Trouble) (who string, t *status.Trouble) {
	if !r.Cluster.Known(r.Now) {
		return "", nil
	}
	for _, m := range r.Cluster.Value.Members {
		if m.Aggregator == nil {
			continue
		}
		if t := of(m.Aggregator); t != nil {
			return "the aggregator " + m.Instance, t
		}
	}
	return "", nil
}

// unread judges a link whose server does not answer, or no longer does.
func unread[T any](l *Link, r *Reading[T], now time.Time, server string) {
	switch {
	case r.Err != nil && refusal(r.Err):
		l.Level, l.Plain = Warn, server+" refuses the console"
		l.Cause = l.Plain + ": " + short(r.Err.Error())
		l.Do = "Check user, password, certificates and rights: those of other programs may be refused, too."
	case r.Err != nil:
		l.Level, l.Plain = Bad, server+" does not answer"
		l.Cause = l.Plain + ": " + short(r.Err.Error())
		l.Do = "Check that it runs, and the network to it."
	case r.At.IsZero():
		l.Level, l.Cause = Unknown, server+" has not answered yet"
	default:
		l.Level, l.Cause = Unknown, server+" was last read "+span(now.Sub(r.At))+" ago"
	}
	l.Plain = cmp.Or(l.Plain, l.Cause)
}

// refusal reports whether a server answered, and does not let the console in.
func refusal(err error) bool {
	if s := refusedWith(err); s == http.StatusUnauthorized || s == http.StatusForbidden {
		return true
	}
	text := strings.ToLower(err.Error())
	for _, sign := range []string{"noperm", "noauth", "wrongpass", "authorization failed", "authentication", "sasl"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// short is an error's first line, without what would fill the page.
func short(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	const most = 240
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

var errNoMember = errors.New("no aggregator is in the group")
