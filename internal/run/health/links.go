package health

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

func producers(o *Observations) Link {
	l := Link{Name: "producers", Title: "Producers", Read: o.Kafka.At}
	switch quiet := o.Now.Sub(o.Kafka.Value.Moved); {
	case !o.Kafka.Known(o.Now):
		l.Level, l.Cause = Unknown, "not seen while Kafka cannot be read"
	case o.Kafka.Value.Events.Missing:
		l.Level, l.Cause = Unknown, "not seen without the topic of events"
	case o.Kafka.Value.Moved.IsZero() && o.Now.Sub(o.Began) < quietAfter:
		l.Level, l.Cause = Unknown, "no event since the console began to look, "+span(o.Now.Sub(o.Began))+" ago"
	case o.Kafka.Value.Moved.IsZero():
		l.Level, l.Cause, l.Do = Unknown, "no event for at least "+span(o.Now.Sub(o.Began)), quietDo
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

// faulty fills in the first fault of a link. Without any it reports false.
func (l *Link) faulty(o *Observations) bool {
	all := Of(o, func(f *Finding) bool { return f.Link == l.Name })
	if len(all) == 0 {
		return false
	}
	f := &all[0]
	l.Level, l.Cause, l.Do, l.Runbook = f.Level, f.Text, sentence(f.Fix()), f.Runbook
	l.Plain = cmp.Or(f.Plain, f.Text)
	return true
}

// is fills in a link without a fault.
func (l *Link) is(level Level, cause string) Link {
	l.Level, l.Cause, l.Plain = level, cause, cause
	return *l
}

// unread fills in a link whose server has been silent for too long, or has not answered yet, without an error.
func unread[T any](l *Link, r *Reading[T], now time.Time, server string) Link {
	if r.At.IsZero() {
		return l.is(Unknown, server+" has not answered yet")
	}
	return l.is(Unknown, server+" was last read "+span(now.Sub(r.At))+" ago")
}

func kafkaLink(o *Observations) Link {
	l := Link{Name: linkEvents, Title: "Kafka", Read: o.Kafka.At}
	k := &o.Kafka.Value
	switch {
	case o.Kafka.Err == nil && !o.Kafka.Known(o.Now):
		return unread(&l, &o.Kafka, o.Now, "Kafka")
	case l.faulty(o):
		return l
	}
	return l.is(OK, fmt.Sprintf("%s on %s, all in sync", words.Plural(k.Events.Partitions, "partition"), words.Plural(k.Brokers, "broker")))
}

func aggregatorsLink(o *Observations) Link {
	l := Link{Name: linkAggregators, Title: "Aggregators", Read: o.Cluster.At}
	switch s := refusedWith(o.Cluster.Err); {
	case s == http.StatusNotFound:
		l.Do = "Update them."
		return l.is(Unknown, "the aggregators are of a version without /v1/cluster")
	case s != 0 && s < 500:
		l.Do = "Give the console a token with the role viewer: --token-file."
		l.is(Unknown, "the aggregators refuse the console's token")
		l.Cause += ": " + short(o.Cluster.Err.Error())
		return l
	case o.Cluster.Err == nil && !o.Cluster.Known(o.Now):
		return unread(&l, &o.Cluster, o.Now, "an aggregator")
	case l.faulty(o):
		return l
	}
	return l.is(OK, words.Plural(len(o.Cluster.Value.Members), "member")+", every partition is counted")
}

func verdictsLink(o *Observations) Link {
	l := Link{Name: linkVerdicts, Title: "Verdicts", Read: o.Redis.At}
	if o.Kafka.At.Before(l.Read) {
		l.Read = o.Kafka.At
	}
	switch {
	case o.NoRedis:
		return l.is(Unknown, "the console has no --redis to compare them with")
	case !o.Kafka.Known(o.Now):
		return l.is(Unknown, "not seen while Kafka cannot be read")
	case o.Kafka.Value.Verdicts.Missing:
		return l.is(Unknown, "there is no topic of verdicts yet")
	case !o.Redis.Known(o.Now):
		return l.is(Unknown, "not seen while Redis cannot be read")
	case l.faulty(o):
		return l
	}
	return l.is(OK, "in Redis "+span(max(0, o.Redis.Value.staleness()))+" after their events")
}

func redisLink(o *Observations) Link {
	l := Link{Name: linkRedis, Title: "Redis", Read: o.Redis.At}
	switch {
	case o.NoRedis:
		l.is(Unknown, "the console has no --redis to look at")
		l.Plain = "the console looks at no Redis"
		return l
	case o.Redis.Err == nil && !o.Redis.Known(o.Now):
		return unread(&l, &o.Redis, o.Now, "Redis")
	case l.faulty(o):
		return l
	}
	l.is(OK, "answers in "+span(o.Redis.Value.Latency))
	if n := o.Redis.Value.Entries(); n >= 0 {
		l.Cause = words.Plural(int(n), "verdict") + ", " + l.Cause
	}
	return l
}

// Unheard is the age from which on a beat is late: they come every two seconds. Until GoneAfter the enforcer may only
// have been slow.
const Unheard = presence.Every + 1200*time.Millisecond

// enforcerLinks has a link for each enforcer. Without any there is one that says so.
func enforcerLinks(o *Observations) []Link {
	none := Link{Name: linkEnforcers, Title: "Enforcers", Read: o.Enforcers.At, Level: Unknown}
	switch {
	case o.NoRedis:
		none.Cause = "the console has no --redis to see them in"
		return []Link{none}
	case o.Enforcers.At.IsZero():
		none.Cause = "not seen while Redis cannot be read"
		return []Link{none}
	case len(o.Enforcers.Value) == 0:
		row := Named("no-enforcer")
		none.Cause, none.Do, none.Runbook = "no enforcer announces itself in this Redis", sentence(row.Do), row.Runbook
		return []Link{none}
	}
	links := make([]Link, len(o.Enforcers.Value))
	for i := range o.Enforcers.Value {
		links[i] = Enforcer(o, &o.Enforcers.Value[i])
	}
	return links
}

// Enforcer is the link of one enforcer, without its Since.
func Enforcer(o *Observations, b *presence.Beat) Link {
	l := Link{Name: "enforcer:" + b.ID, Title: b.Name, Read: o.Enforcers.At}
	switch {
	case !o.Enforcers.Known(o.Now):
		l.Level, l.Cause, l.Runbook = Unknown,
			"last seen "+span(o.Now.Sub(o.Enforcers.At)+b.Age)+" ago, before Redis could not be read any more", "TallygateRedisRefuses"
		return l
	case b.Age >= Unheard && !b.Gone():
		l.Level, l.Cause, l.Runbook = Unknown, "not heard of for "+span(b.Age), "TallygateProgramDown"
		return l
	}
	for i := range Findings {
		f := &Findings[i]
		if f.Link != linkEnforcers {
			continue
		}
		if level, what := f.of(o, b); level != OK {
			l.Level, l.Cause, l.Do, l.Runbook = level, fmt.Sprintf(f.one, what), sentence(f.Do), f.Runbook
			return l
		}
	}
	if l.Level = OK; b.Gone() {
		l.Cause = "it has begun again, under the same name"
		return l
	}
	l.Cause = words.Plural(b.Entries, "verdict") + ", " + span(Seconds(b.Staleness)) + " behind"
	return l
}

// notices returns the lines of the banner, the worst first.
func notices(o *Observations) (all []Notice) {
	for _, f := range Of(o, func(f *Finding) bool { return f.Banner }) {
		name := f.Name
		if len(f.About) > 0 && f.beat == nil {
			name += ":" + f.About[0].Name
		}
		all = append(all, Notice{Name: name, Level: f.Level, Text: strings.TrimSuffix(sentence(f.Text), "."), Do: sentence(f.Fix()), Runbook: f.Runbook,
			Link: f.Page, Since: f.Since})
	}
	slices.SortStableFunc(all, func(a, b Notice) int { return b.Level.Compare(a.Level) })
	return all
}
