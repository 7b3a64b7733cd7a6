package rules

import (
	"crypto/sha256"
	"fmt"

	"github.com/tallygate/tallygate/windows"
)

// setHash is of the source and of the zone data that goes with this program.
func setHash(src []byte) [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "tallygate rule set 1\x00zones %s\x00", windows.ZoneVersion)
	h.Write(src)
	return [32]byte(h.Sum(nil))
}

// sectionHash is of all that gives a limit's counters their meaning. The limit's number is
// not in it, so that a changed limit is judged against the counters there are, unless the
// change is one between exact times and panes.
func sectionHash(l *Limit) SectionHash {
	w := &l.Window
	h := sha256.New()
	fmt.Fprintf(h, "tallygate section 1\x00%q\x00%q\x00", l.Name, l.Rule.Shape.Dims)
	fmt.Fprintf(h, "count %d %q\x00", l.Rule.Count, l.Rule.SumAttr)
	switch w.Kind {
	case windows.Tumbling:
		fmt.Fprintf(h, "tumbling %d %d", w.Per, w.Offset)
	case windows.Sliding:
		fmt.Fprintf(h, "sliding %d %t %d", w.Per, w.Exact, w.Resolution)
	case windows.Calendar:
		zone := w.Zone.String()
		data, _ := windows.ZoneHash(zone) // the zone was loaded from there
		fmt.Fprintf(h, "calendar %d %d %q %x", w.Unit, w.WeekStarts, zone, data)
	}
	return SectionHash(h.Sum(nil))
}
