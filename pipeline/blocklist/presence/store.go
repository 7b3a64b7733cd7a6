package presence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// Key returns the name of the hash that has the beats: a field for each enforcer, its id.
func Key(prefix string) string { return cmp.Or(prefix, "tallygate") + "-enforcers" }

// written is a Beat as it lies in Redis.
type written struct {
	Beat
	Seen time.Time `json:"seen"` // by Redis' clock
}

// longest bounds the bytes of a name, an address or an error.
const longest = 300

// Write announces an enforcer, in place of what it wrote before. It asks Redis for the time first: the
// enforcer's own clock may be wrong.
func Write(ctx context.Context, client redis.UniversalClient, prefix string, b Beat) error {
	now, err := redisTime(ctx, client, prefix)
	if err != nil {
		return err
	}
	for _, text := range []*string{&b.Kind, &b.Name, &b.Version, &b.URL, &b.OffCause, &b.Error} {
		*text = oneLine(*text)
	}
	value, err := json.Marshal(written{b, now})
	if err != nil {
		return fmt.Errorf("presence: write the beat: %w", err)
	}
	if err := client.HSet(ctx, Key(prefix), b.ID, value).Err(); err != nil {
		return fmt.Errorf("presence: write the beat: %w", err)
	}
	return nil
}

// Remove takes an enforcer's beat away: it has stopped.
func Remove(ctx context.Context, client redis.UniversalClient, prefix, id string) error {
	return remove(ctx, client, prefix, id)
}

func remove(ctx context.Context, client redis.UniversalClient, prefix string, ids ...string) error {
	if err := client.HDel(ctx, Key(prefix), ids...).Err(); err != nil {
		return fmt.Errorf("presence: remove beats: %w", err)
	}
	return nil
}

// List returns all enforcers heard of within ForgottenAfter, in the order of their names and ids. Those that
// are gone are among them: see Beat.Gone. A field that is no beat is left out.
func List(ctx context.Context, client redis.UniversalClient, prefix string) ([]Beat, error) {
	all, err := read(ctx, client, prefix)
	all = slices.DeleteFunc(all, forgotten)
	slices.SortFunc(all, func(a, b Beat) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

func forgotten(b Beat) bool { return b.Age >= ForgottenAfter }

// clean removes what List leaves out because of its age, and returns how many enforcers are left.
func clean(ctx context.Context, client redis.UniversalClient, prefix string) (left int, err error) {
	all, err := read(ctx, client, prefix)
	if err != nil {
		return 0, err
	}
	var old []string
	for _, b := range all {
		if forgotten(b) {
			old = append(old, b.ID)
		}
	}
	if len(old) > 0 {
		err = remove(ctx, client, prefix, old...)
	}
	return len(all) - len(old), err
}

func read(ctx context.Context, client redis.UniversalClient, prefix string) ([]Beat, error) {
	fields, err := client.HGetAll(ctx, Key(prefix)).Result()
	if err != nil {
		return nil, fmt.Errorf("presence: list enforcers: %w", err)
	}
	if len(fields) == 0 {
		return nil, nil
	}
	now, err := redisTime(ctx, client, prefix)
	if err != nil {
		return nil, err
	}
	all := make([]Beat, 0, len(fields))
	for id, value := range fields {
		var w written
		if err := json.Unmarshal([]byte(value), &w); err != nil {
			continue // of a program that is newer than this one, or no enforcer's
		}
		b := w.Beat
		// Redis' clock may have been set back since. Who lives beats again at once, so what is from the
		// future is old, too.
		b.ID, b.Seen, b.Age = id, w.Seen, now.Sub(w.Seen).Abs()
		all = append(all, b)
	}
	return all, nil
}

// redisTime asks the server that has the key: those of a Cluster have a clock each.
func redisTime(ctx context.Context, client redis.UniversalClient, prefix string) (now time.Time, err error) {
	var asked interface {
		Time(context.Context) *redis.TimeCmd
	} = client
	if c, ok := client.(*redis.ClusterClient); ok {
		if asked, err = c.MasterForKey(ctx, Key(prefix)); err != nil {
			return now, fmt.Errorf("presence: find the server with the key: %w", err)
		}
	}
	if now, err = asked.Time(ctx).Result(); err != nil {
		return now, fmt.Errorf("presence: ask Redis for the time: %w", err)
	}
	return now.UTC(), nil
}

// validPrefix returns an error for a prefix that the blocklist's keys refuse, too.
func validPrefix(prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return errors.New("presence: Prefix has braces: give the one that the blocklist's keys begin with, without them")
	}
	return nil
}

// oneLine shortens a text, and makes a line of it.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= longest {
		return text
	}
	cut := longest
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
