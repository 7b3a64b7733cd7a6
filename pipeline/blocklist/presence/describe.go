package presence

import (
	"runtime/debug"
	"time"

	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// Describe returns the Beat of a Config for a table and the feed that fills it. Kind is Go, the name
// HostName; change what it returns to say something else.
func Describe(table *enforce.Table, feed *blocklist.Feed) func() Beat {
	version, started, name := Version(), time.Now().UTC(), HostName()
	return func() Beat {
		table.Refresh() // so that no scrape of the metrics walks over a large table
		held := table.Summary()
		b := Beat{Kind: Go, Name: name, Version: version, Started: started,
			Staleness: -1, Stale: table.Stale(), Entries: held.Entries, Enabled: table.Enabled(), Denied: denied(&held)}
		if table.Ready() {
			b.Staleness = table.Staleness().Seconds()
		}
		if cause, since := table.Off(); cause != "" {
			b.Enabled, b.OffCause, b.OffSince = false, string(cause), since.UTC()
		}
		if s := feed.Stats(); s.Refused != nil {
			b.Error = s.Refused.Error()
		} else if s.Failing && s.LastError != nil {
			b.Error = s.LastError.Error()
		}
		return b
	}
}

// denied counts the checks that the table's middleware denied.
func denied(s *enforce.Summary) (sum uint64) {
	for i := range s.Rules {
		for action, n := range s.Rules[i].Decided {
			if action != verdict.ActLog {
				sum += n
			}
		}
	}
	return sum
}

const module = "github.com/tallygate/tallygate"

// Version is this module's, in whichever program it is.
func Version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if b.Main.Path == module {
		return orDevel(b.Main.Version)
	}
	for _, m := range b.Deps {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return orDevel(m.Version)
	}
	return "unknown"
}

func orDevel(version string) string {
	if version == "" || version == "(devel)" {
		return "devel"
	}
	return version
}
