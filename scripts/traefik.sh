#!/usr/bin/env bash
# Prints a folder with traefik, which is built from its Go module when missing (some minutes of CPU, once).
# The module is pinned by its checksum, and what it needs by the go.sum in it. Three parts of it can't be had
# from a module proxy, and no test here needs them: ACME's DNS providers, a fork for basic and digest
# authentication, and an empty extension package. Small packages take their places.
set -euo pipefail

readonly version=3.7.13 sum=h1:T8wy9KuaFzCkmXCqAzDy7t73pBDR1DHrJe3pqXpNXTw=
readonly cache=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}
readonly dir=$cache/traefik-$version

die() { echo "traefik.sh: $*" >&2; exit 1; }

# field NAME prints a field of the JSON that go mod download prints.
field() { sed -nE "s/^\s*\"$1\": \"(.*)\",?$/\1/p"; }

if [[ -x $dir/traefik ]]; then
  echo "$dir"
  exit
fi
mkdir -p "$cache"
work=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$work"' EXIT
export GOWORK=off GOFLAGS=-mod=mod CGO_ENABLED=0

cd "$work"
module=$(go mod download -json "github.com/traefik/traefik/v3@v$version") || die "cannot fetch Traefik $version: $module"
[[ $(field Sum <<<"$module") == "$sum" ]] || die "Traefik $version has another checksum than $sum"
from=$(field Dir <<<"$module")
mkdir -p src/webui
cp -r "$from"/{cmd,pkg,go.mod,go.sum} src
cp -r "$from"/webui/{embed.go,static} src/webui
chmod -R u+w src
cd src

lego=$(go mod download -json "github.com/go-acme/lego/v5@$(sed -nE 's|.*github.com/go-acme/lego/v5 (v[^ ]+).*|\1|p' go.mod)") || die "cannot fetch lego: $lego"
cp -r "$(field Dir <<<"$lego")" lego
chmod -R u+w lego
cat >lego/providers/dns/zz_gen_dns_providers.go <<'GO'
package dns

import (
	"errors"

	"github.com/go-acme/lego/v5/challenge"
)

func NewDNSChallengeProviderByName(string) (challenge.Provider, error) {
	return nil, errors.New("this build has no DNS providers")
}
GO
mkdir -p pkg/config/dynamic/ext auth
printf 'module github.com/traefik/traefik/dynamic/ext\n' >pkg/config/dynamic/ext/go.mod
printf 'package ext\n\ntype (\n\tHTTP   struct{}\n\tRouter struct{}\n)\n' >pkg/config/dynamic/ext/ext.go
printf 'module github.com/abbot/go-http-auth\n' >auth/go.mod
cat >auth/auth.go <<'GO'
// Package auth refuses everybody.
package auth

import "net/http"

type BasicAuth struct {
	Realm   string
	Secrets func(user, realm string) string
}

func (*BasicAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }

func CheckSecret(string, string) bool { return false }

type DigestAuth struct{}

func (*DigestAuth) CheckAuth(*http.Request) (string, *string)               { return "", nil }
func (*DigestAuth) RequireAuth(w http.ResponseWriter, _ *http.Request)      { w.WriteHeader(401) }
func (*DigestAuth) RequireAuthStale(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }

func NewDigestAuthenticator(string, func(user, realm string) string) *DigestAuth { return &DigestAuth{} }
func DigestAuthParams(string) map[string]string                                  { return nil }
GO
go mod edit -replace github.com/abbot/go-http-auth=./auth -replace github.com/go-acme/lego/v5=./lego
mkdir ../made
nice go build -trimpath -ldflags "-s -w -X github.com/traefik/traefik/v3/pkg/version.Version=$version" -o ../made/traefik ./cmd/traefik >&2 || die "cannot build Traefik $version"
mv -T ../made "$dir" 2>/dev/null || [[ -x $dir/traefik ]] || die "cannot write $dir"
echo "$dir"
