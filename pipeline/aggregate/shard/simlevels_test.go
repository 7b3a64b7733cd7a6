package shard

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// simPermit is a permit that an event carries: its keys are to be told that it is settled.
type simPermit struct {
	id   string
	keys []string
}

// permit makes a permit for most events, as JSON behind their other fields.
func (w *simGroup) permit(uid, ip, api string) string {
	if !w.permitted || w.rng.IntN(4) == 0 {
		return ""
	}
	p := simPermit{id: fmt.Sprintf("p%d", len(w.permits))}
	at := w.now - event.Micros(w.rng.IntN(2_000_000))
	times := fmt.Sprintf("%q", at)
	if api == "a.x" {
		p.keys = append(p.keys, "uid="+uid)
	}
	if w.rng.IntN(2) == 0 {
		p.keys = append(p.keys, "ip="+ip, fmt.Sprintf("ip=10.9.0.%d", w.rng.IntN(simIPs))) // the event is not about the last
		times = ""
		for i, key := range p.keys {
			times += fmt.Sprintf(",%q:%q", key, at+event.Micros(i))
		}
		times = "{" + times[1:] + "}"
	}
	w.permits = append(w.permits, p)
	return fmt.Sprintf(`,"permit":%q,"permit_at":%s`, p.id, times)
}

// lose counts a permit as lost, which no event has; at times twice.
func (o *simOwner) lose() {
	w := o.w
	uid := fmt.Sprintf("u%d", w.rng.IntN(simUIDs))
	if partitionOfUID(uid) != o.id {
		return
	}
	yearly := w.rules.Set.Limits[0]
	l := &protocol.Lost{Key: "uid=" + uid, ID: fmt.Sprintf("l%d", len(w.permits)), At: w.now - event.Second, Parts: []protocol.Part{
		{Name: hex.EncodeToString(yearly.Hash[:]), Amount: event.One}, {Name: "ffffffffffff", Amount: event.One},
	}}
	value, err := AppendLost(nil, l)
	o.must(err)
	for range 1 + w.rng.IntN(2) {
		if o.epoch < w.loop[o.id].epochs[o.id] {
			o.dead = true
			return
		}
		w.loop[o.id].append(o.id, o.epoch, simEntry{value: value, at: w.now})
	}
	w.permits = append(w.permits, simPermit{l.ID, []string{l.Key}})
	w.counts["yearly uid="+uid]++
}

// levels publishes levels of so many keys.
func (o *simOwner) levels(most int) bool {
	if !o.s.levels.Waiting() {
		return false
	}
	_, err := o.s.levels.Publish(most)
	o.must(err)
	o.collect()
	return true
}

// readLevels reads the newest levels of a partition, and which permits they have ever settled. Each is
// behind the state that it is of.
func (w *simGroup) readLevels(partition int32, levels map[string]*protocol.Level, settled map[string]bool) {
	version := int64(0)
	defer func() {
		if version != w.rules.Number {
			w.fail("partition %d has said version %d, %d is in force", partition, version, w.rules.Number)
		}
	}()
	for _, e := range w.verdicts[partition].entries {
		r, err := protocol.ParseRecord(e.key, e.value)
		if errors.Is(err, protocol.ErrOtherRecord) {
			continue
		}
		switch {
		case err == nil && r.Version > 0:
			if int64(r.Version) < version {
				w.fail("version %d is said behind %d", r.Version, version)
			}
			version = int64(r.Version)
			continue
		case err == nil && r.Grants != nil:
			continue
		}
		if err != nil || r.Level == nil {
			w.fail("record %q of the verdicts: %v", e.key, err)
		}
		l := r.Level
		if was := levels[l.Key]; was != nil && l.Seq < was.Seq {
			w.fail("the level of %s has seq %d, behind %d", l.Key, l.Seq, was.Seq)
		}
		if s := w.table[partition].entries[l.Seq]; !s.gone && string(s.key) != l.Key {
			w.fail("the level %s is an orphan: at %d is the state of %q", e.value, l.Seq, s.key)
		}
		levels[l.Key] = l
		for _, id := range l.Settles {
			settled[id+" "+l.Key] = true
		}
	}
}

// grant writes which Redis may grant permits, at times another one.
func (o *simOwner) grant() {
	g := &protocol.Grants{Run: fmt.Sprintf("run %d", o.w.rng.IntN(2)), Life: "life", Until: o.w.now}
	o.must(o.s.levels.Grant(g))
	o.collect()
}

// sees checks what goes to the changelog, or to the verdict topic: no Redis is named to enforcers that
// the changelog did not name before.
func (o *simOwner) sees(a *Append) {
	w := o.w
	named := func(run string) string { return fmt.Sprint(o.id, " ", run) }
	if string(a.Key) == grantedKey {
		var rec grantedRecord
		if err := json.Unmarshal(a.Value, &rec); err != nil {
			w.fail("%v", err)
		}
		w.named[named(rec.Run)] = true
		return
	}
	if string(a.Key) == sayingKey {
		var rec sayingRecord
		if err := json.Unmarshal(a.Value, &rec); err != nil {
			w.fail("%v", err)
		}
		w.named[named(fmt.Sprint("version ", rec.Number))] = true
		return
	}
	r, err := protocol.ParseRecord(a.Key, a.Value)
	if err == nil && r.Grants != nil && !w.named[named(r.Grants.Run)] {
		w.fail("%s may grant permits, which the changelog does not say", r.Grants.Run)
	}
	if err == nil && r.Version > 0 && !w.named[named(fmt.Sprint("version ", r.Version))] {
		w.fail("version %d is said, which the changelog does not say", r.Version)
	}
	if err == nil && r.Version > 0 {
		o.seesVersion(int64(r.Version))
	}
}

// strictKeys are the keys of an owner that have something under a strict limit.
func (o *simOwner) strictKeys() (keys []string) {
	for part := range Parts {
		all, _ := o.s.KeysBehind(part, "", 1<<20)
		for _, key := range all {
			state, err := o.s.State(key)
			o.must(err)
			if len(o.s.rules.stepper.Level(state).Limits) > 0 {
				keys = append(keys, string(key))
			}
		}
	}
	return keys
}

// simBefore is a partition's state when limits became strict.
type simBefore struct {
	version int64    // that is not said yet
	end     int64    // of the verdict topic
	keys    []string // that have something under a strict limit
}

// seesVersion checks that an owner says a version behind the levels of all keys that had something when
// limits became strict with it.
func (o *simOwner) seesVersion(version int64) {
	if version != o.before.version {
		return // newer rules are in force since it was asked for
	}
	levels := map[string]bool{}
	for _, e := range o.w.verdicts[o.id].entries[o.before.end:] {
		if r, err := protocol.ParseRecord(e.key, e.value); err == nil && r.Level != nil {
			levels[r.Level.Key] = len(r.Level.Sections) > 0
		}
	}
	for _, key := range o.before.keys {
		if !levels[key] {
			o.w.fail("partition %d says version %d, and the level of %s is not published", o.id, version, key)
		}
	}
}

// compareLevels compares the newest levels with the counts, and looks for permits that are not settled.
func (w *simGroup) compareLevels(levels map[string]*protocol.Level, settled map[string]bool) {
	for p, o := range w.owners {
		if last := w.takeOver(int32(p)).s.levels.LastGrants(); (last == nil) != (o.s.levels.granted == nil) || last != nil && last.Run != o.s.levels.granted.Run {
			w.fail("who takes over partition %d knows of %v, the last grants are %v", p, last, o.s.levels.granted)
		}
	}
	for _, p := range w.permits {
		for _, key := range p.keys {
			if !settled[p.id+" "+key] {
				w.fail("the permit %s of %s is not settled", p.id, key)
			}
		}
	}
	counted := map[string]int64{}
	for key, l := range levels {
		for _, s := range l.Sections {
			hash, err := hex.DecodeString(s.Name)
			limit := w.rules.Set.StrictLimit(rules.SectionHash(hash))
			if err != nil {
				w.fail("the level of %s is of %q: %v", key, s.Name, err)
			}
			if limit == nil {
				continue // it was strict when the level was published
			}
			var sum event.Decimal
			for _, step := range s.Steps {
				if step.Until > w.now {
					sum += step.Amount
				}
			}
			counted[limit.Name+" "+key] = int64(sum / event.One)
		}
	}
	for limitAndKey, want := range w.counts {
		name, _, _ := strings.Cut(limitAndKey, " ")
		i := slices.IndexFunc(w.rules.Set.Limits, func(l *rules.Limit) bool { return l.Name == name })
		if i >= 0 && w.rules.Set.Limits[i].Strict && counted[limitAndKey] != want {
			w.fail("the level of %s is %d, %d is counted", limitAndKey, counted[limitAndKey], want)
		}
	}
}
