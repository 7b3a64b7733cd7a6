package admit

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/grpclimit"
)

func TestBehindAnInterceptor(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, "    - {name: daily, match: {api: shop.send}, limit: 3, per: 1h, strict: true}\n")
		table, err := enforce.NewTable(enforce.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var events sent
		l, err := grpclimit.New(table, grpclimit.Options{UID: func(context.Context) string { return "42" }, Admit: r.admitter(), Events: &events})
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		send := func(ctx context.Context, _ any) (any, error) {
			ids[grpclimit.PermitOf(ctx).ID] = true
			return nil, nil
		}
		for i := range 30 {
			want := codes.OK
			if i >= 3 {
				want = codes.ResourceExhausted
			}
			if _, err := l.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/Shop/Send"}, send); status.Code(err) != want {
				t.Errorf("call %d: %v, want %v", i, err, want)
			}
		}
		for _, e := range events {
			if !ids[e.Permit.ID] || e.Permit.At == 0 {
				t.Errorf("its event has the permit %+v", e.Permit)
			}
		}
		if len(ids) != 3 || ids[""] || len(events) != 3 {
			t.Errorf("%d permits %v and %d events, want 3 each", len(ids), ids, len(events))
		}
	})
}
