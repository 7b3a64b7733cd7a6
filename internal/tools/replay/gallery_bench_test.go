package replay

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

const galleryFolder = "../../../testdata/rules"

// gallery is one set of all rules of the gallery.
func gallery(t testing.TB) *rules.Set {
	t.Helper()
	files, err := filepath.Glob(galleryFolder + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var spec, list, none strings.Builder
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, text, isRules := strings.Cut(string(src), "\nspec:\n")
		if !isRules {
			continue // tests
		}
		into := &spec
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "  ") && line[2] != ' ' && line[2] != '#' {
				switch name, _, _ := strings.Cut(line[2:], ":"); name {
				case "rules":
					into = &list
					continue
				case "apis", "attrs": // of one file's events
					into = &none
				default:
					into = &spec
				}
			}
			into.WriteString(line)
		}
	}
	src := "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: gallery}\nspec:\n" + spec.String() + "  rules:\n" + list.String()
	set, err := rules.CompileWith("gallery.yaml", []byte(src), func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(galleryFolder, filepath.Base(name)))
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// galleryEvents are events of the APIs that the gallery's rules are about, with all attributes that they
// ask for.
func galleryEvents(set *rules.Set, n int) []event.Event {
	r := rand.New(rand.NewPCG(1, 1))
	var apis []string
	for _, rule := range set.Rules {
		for _, api := range rule.APIs {
			apis = append(apis, strings.ReplaceAll(api, "*", "x"))
		}
	}
	text := func(name string, of int) event.Attr {
		return event.Attr{Name: name, Value: event.StringValue(fmt.Sprint(name[:1], r.IntN(of)))}
	}
	number := func(name string, most int) event.Attr {
		return event.Attr{Name: name, Value: event.NumberValue(event.Decimal(1+r.IntN(most)) * event.One)}
	}
	at, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	out := make([]event.Event, n)
	for i := range out {
		at += event.Micros(r.Int64N(int64(20 * event.Millisecond)))
		out[i] = event.Event{
			ID: fmt.Sprint("e", i), UID: fmt.Sprint("u", r.IntN(10_000)), API: apis[r.IntN(len(apis))],
			IP: netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(256)), byte(r.IntN(256))}), Cost: event.One,
			Outcome: []string{"success", "success", "failure", "denied"}[r.IntN(4)], Time: at, BrokerTime: event.NoTime,
			Attrs: []event.Attr{
				text("account", 500), text("campaign", 50), text("card", 5000), text("country", 20), text("customer", 1000), text("device", 20_000),
				text("item", 300), text("number", 5000), text("page", 1000), {Name: "plan", Value: event.StringValue([]string{"free", "pro"}[r.IntN(2)])},
				text("room", 50), number("amount", 900), number("bytes", 500_000), number("price", 3), number("quota", 5000), number("rows", 20_000),
			},
		}
	}
	return out
}

// BenchmarkGallery replays a million events through the whole gallery.
func BenchmarkGallery(b *testing.B) {
	set := gallery(b)
	events := galleryEvents(set, 1_000_000)
	b.Logf("%d rules, %d limits", len(set.Rules), len(set.Limits))
	for b.Loop() {
		e := engine.New(set)
		var out engine.Outcome
		hits, issued := 0, 0
		for i := range events {
			e.Apply(&events[i], event.NoTime, verdict.Cause{Offset: int64(i)}, &out)
			hits, issued = hits+len(out.Hits), issued+len(out.Issued)
		}
		if hits < len(events)/2 || issued == 0 {
			b.Fatalf("%d hits, %d verdicts", hits, issued)
		}
		b.ReportMetric(float64(hits)/float64(len(events)), "hits/event")
	}
}
