// Package forwardauth answers proxies that ask over HTTP whether to allow a request: nginx's
// auth_request, ForwardAuth of Traefik and APISIX, Caddy's forward_auth, and Envoy's ext_authz.
// Headers that the proxy sets say who sent the request and what it asks for. The package links only
// the standard library and the enforcer.
package forwardauth
