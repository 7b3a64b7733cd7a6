// Package envoylimit serves Envoy's two gRPC protocols from an enforcer's table: RateLimitService
// v3, and ext_authz v3. A program registers a Server with its grpc.Server; the decision server
// does.
package envoylimit
