package rules

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/windows"
)

// What a limit takes of each key's state, by its window and by how many events the key had, a
// minute apart: the table in docs/internals/measurements.md. The key's own share, header and no ids, is
// left out.
func TestBytesByWindow(t *testing.T) {
	shanghai := zone(t, "Asia/Shanghai")
	for _, c := range []struct {
		name   string
		spec   windows.Spec
		amount event.Decimal
		most   map[int]int // bytes by events
	}{
		{"tumbling hour", windows.Spec{Kind: windows.Tumbling, Per: event.Hour, Lateness: event.Hour}, event.One, map[int]int{1: 17, 10: 17, 100: 18}},
		{"tumbling hour of sums", windows.Spec{Kind: windows.Tumbling, Per: event.Hour, Lateness: event.Hour}, 2048 * event.One, map[int]int{1: 18, 10: 19, 100: 22}},
		{"civil day", windows.Spec{Kind: windows.Calendar, Unit: windows.Day, Zone: shanghai, Lateness: event.Hour}, event.One, map[int]int{1: 23, 10: 23, 100: 24}},
		{"sliding minute in panes", windows.Spec{Kind: windows.Sliding, Per: event.Minute}, event.One, map[int]int{1: 20, 10: 22, 100: 22}},
		{"sliding hour in panes", windows.Spec{Kind: windows.Sliding, Per: event.Hour}, event.One, map[int]int{1: 20, 10: 38, 100: 141}},
		{"sliding hour, exact", windows.Spec{Kind: windows.Sliding, Per: event.Hour, Exact: true}, event.One, map[int]int{1: 17, 10: 53, 100: 254}},
		{"hopping hour, every minute", windows.Spec{Kind: windows.Hopping, Per: event.Hour, Every: event.Minute, Lateness: event.Hour}, event.One, map[int]int{1: 21, 10: 39, 100: 221}},
	} {
		rule := &Rule{Name: "r", Then: Then{UntilReset: true}}
		set := handmadeSet(t, &Limit{Rule: rule, Name: "r", Limit: event.MaxDecimal, Window: c.spec, Grain: event.Second})
		for _, events := range []int{1, 10, 100} {
			p := set.NewStepper()
			var state []byte
			for i := range events {
				state, _ = p.Step(nil, state, Input{Key: []byte("uid=42"), At: noon + event.Micros(i)*event.Minute, Hits: []Hit{{Limit: set.Limits[0], Amount: c.amount}}})
			}
			k, err := keystate.Read(state)
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s, %d events", c.name, events)
			t.Logf("%s: %d bytes", name, len(k.Sections))
			if len(k.Sections) > c.most[events] {
				t.Errorf("%s: %d bytes, at most %d are promised", name, len(k.Sections), c.most[events])
			}
		}
	}
}
