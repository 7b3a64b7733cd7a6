package rig

import (
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/verdict"
)

// Block is a verdict that blocks uid from now on for a while.
func Block(uid string, seq int64, d time.Duration) verdict.Verdict {
	now := event.FromTime(time.Now())
	return verdict.Verdict{
		Rule: "r", Key: []event.Dim{{Name: "uid", Value: uid}}, Action: verdict.ActBlock, APIs: []string{"*"},
		Count: 2 * event.One, Limit: event.One, Since: now - event.Second, Until: now + event.FromDuration(d), Seq: seq,
	}
}

// Clearing is a verdict that ends the block of uid.
func Clearing(uid string, seq int64) verdict.Verdict {
	v := Block(uid, seq, 0)
	v.State, v.Since = verdict.Clear, v.Until
	return v
}

// Record is a verdict as its topic has it.
func Record(v verdict.Verdict) store.Record {
	return store.Record{Key: verdict.AppendRecordKey(nil, &v), Value: verdict.AppendJSON(nil, &v)}
}

// Tombstone is the record that removes a verdict.
func Tombstone(v verdict.Verdict) store.Record {
	return store.Record{Key: verdict.AppendRecordKey(nil, &v)}
}

// Fence is one of the owners' own records.
func Fence() store.Record { return store.Record{Key: []byte("\x00fence"), Value: []byte("x")} }

// UIDs are n names that begin with prefix.
func UIDs(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(prefix, i)
	}
	return all
}
