package aggregate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
)

// asked shows an instance to package ask.
type asked struct{ *instance }

func (a asked) Online() bool { return a.online.Load() }

func (a asked) Partitions() int32 {
	if found := a.found.Load(); found != nil {
		return found.Partitions
	}
	return 0
}

func (a asked) Part(id int32) ask.Part {
	if p := a.partition(id); p != nil && p.Live() {
		return p
	}
	return nil
}

func (a asked) Owned() []ask.Part {
	var live []ask.Part
	for _, p := range a.owned() {
		if p.Live() {
			live = append(live, p)
		}
	}
	slices.SortFunc(live, func(x, y ask.Part) int { return cmp.Compare(x.ID(), y.ID()) })
	return live
}

func (a asked) Unmatched() []api.UnmatchedEvents { return a.metrics.partitions.Unmatched() }

func (a asked) Audit(ctx context.Context, key string, entry any) error {
	return a.writeAudit(ctx, key, entry)
}

func (a asked) Owners() (map[int32]ask.Address, error) { return a.owners() }

func (a asked) Knows(ctx context.Context, key string, now bool) bool {
	return a.members.knows(ctx, a.instance, key, now)
}

func (a asked) Seen(ctx context.Context) (seen ask.Seen, err error) {
	group, err := a.members.within(ctx, a.instance, memberAge, membersWithin)
	if err != nil {
		seen.Trouble = &api.Trouble{Since: group.at.UTC(), Reason: reasonOf(err), Error: "ask for the group's members: " + err.Error()}
		if group.at.IsZero() {
			seen.Trouble.Since = time.Now().UTC()
		}
	}
	seen.Owners, seen.OwnersErr = ownersOf(a.instance, group.groups)
	for m, is := range membersOf(group.groups) {
		if is.Key == a.cfg.peerKey || is.Advertise != "" && is.Advertise == a.cfg.Advertise {
			continue
		}
		other := ask.Member{Name: cmp.Or(is.Advertise, m.ClientHost), At: ask.Address{Addr: is.Advertise, TLS: is.TLS}}
		if m.ClientId != a.cfg.Prefix+defaultClient {
			other.Name = m.ClientId // its instance id
		}
		seen.Others = append(seen.Others, other)
	}
	return seen, err
}
