package world

import (
	"time"

	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

const (
	// unheard is the age from which on a beat is late: they come every two seconds. Until GoneAfter the
	// enforcer may only have been slow.
	unheard = presence.Every + 1200*time.Millisecond

	feedWarn = 5 * time.Second // an enforcer's table is behind
	skewWarn = time.Second     // of an enforcer's clock against Redis'
)

// judgeEnforcers has a link for each enforcer. Without any there is one that says so.
func judgeEnforcers(r *Readings) []Link {
	none := Link{Name: "enforcers", Title: "Enforcers", Read: r.Enforcers.At, Level: Unknown, Runbook: "TallygateNoEnforcer"}
	switch {
	case r.NoRedis:
		none.Cause, none.Runbook = "the console has no --redis to see them in", ""
		return []Link{none}
	case r.Enforcers.At.IsZero():
		none.Cause, none.Runbook = "not seen while Redis cannot be read", ""
		return []Link{none}
	case len(r.Enforcers.Value) == 0:
		none.Cause = "no enforcer announces itself in this Redis"
		none.Do = "Start one. Those of older versions do not announce themselves."
		return []Link{none}
	}
	links := make([]Link, len(r.Enforcers.Value))
	for i := range r.Enforcers.Value {
		links[i] = JudgeEnforcer(r, &r.Enforcers.Value[i])
	}
	return links
}

// JudgeEnforcer is the link of one enforcer, without its Since.
func JudgeEnforcer(r *Readings, b *presence.Beat) Link {
	l := Link{Name: "enforcer:" + b.ID, Title: b.Name, Read: r.Enforcers.At, Runbook: "TallygateEnforcerBehind"}
	behind := seconds(b.Staleness)
	switch {
	case !r.Enforcers.Known(r.Now):
		l.Level, l.Cause, l.Runbook = Unknown, "last seen "+span(r.Now.Sub(r.Enforcers.At)+b.Age)+" ago, before Redis could not be read any more", "TallygateRedisRefuses"
	case b.Gone():
		l.Level, l.Cause, l.Runbook = Bad, "not heard of for "+span(b.Age)+": it was killed, or cannot reach Redis", "TallygateProgramDown"
		l.Do = "Look whether it runs. One that was told to stop says goodbye, and is not here."
	case b.Age >= unheard:
		l.Level, l.Cause, l.Runbook = Unknown, "not heard of for "+span(b.Age), "TallygateProgramDown"
	case !b.Enabled:
		l.Level, l.Cause, l.Runbook = Bad, "a kill switch ("+b.OffCause+") allows everything", "TallygateKillSwitch"
		l.Do = "Take the kill switch back when it is no longer needed."
	case b.Error != "":
		l.Level, l.Cause, l.Do = Bad, "it cannot follow the blocklist: "+short(b.Error), "Check its user, password and rights at Redis, and the network between them."
	case b.Staleness < 0:
		l.Level, l.Cause, l.Do = Bad, "it has no blocklist yet, and answers as --in-doubt says", "Wait a few seconds; then look whether Redis has a blocklist."
	case b.Stale:
		l.Level, l.Cause, l.Do = Bad, "its blocklist is "+span(behind)+" old: it answers as --in-doubt says", "Look at the links before it, then at its log."
	case b.Skew().Abs() >= skewWarn:
		l.Level, l.Cause, l.Runbook = Warn, clockText(b.Skew())+": blocks end at the wrong time there", "TallygateClockSkew"
		l.Do = "Let NTP set its clock."
	case behind >= feedWarn:
		l.Level, l.Cause, l.Runbook = Warn, "its blocklist is "+span(behind)+" behind", "TallygateSlowFeed"
		l.Do = "Look at the links before it, then at its log."
	default:
		l.Level, l.Runbook, l.Cause = OK, "", count(b.Entries, "verdict")+", "+span(behind)+" behind"
	}
	return l
}

func clockText(skew time.Duration) string {
	if skew < 0 {
		return "its clock is " + span(-skew) + " slow"
	}
	return "its clock is " + span(skew) + " fast"
}
