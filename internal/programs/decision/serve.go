package decision

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
)

// drainWithin bounds current calls after the server was told to stop.
const drainWithin = 10 * time.Second

// ServeGRPC answers on l until ctx ends, then lets current calls finish, for ten seconds.
func ServeGRPC(ctx context.Context, l net.Listener, s *grpc.Server) error {
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		cut := time.AfterFunc(drainWithin, s.Stop) // longer calls are cut off
		defer cut.Stop()
		s.GracefulStop()
	})
	if err := s.Serve(l); stop() {
		return fmt.Errorf("serve gRPC on %s: %w", l.Addr(), err)
	}
	<-drained
	return nil
}
