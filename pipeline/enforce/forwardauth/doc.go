// Package forwardauth answers proxies that ask over HTTP before they let a request through: nginx's
// auth_request, ForwardAuth of Traefik and of APISIX, forward_auth of Caddy, and Envoy's ext_authz. Who asks,
// and for what, is in headers that the proxy sets. It links the standard library and the enforcer only.
package forwardauth
