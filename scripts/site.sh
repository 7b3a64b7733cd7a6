#!/usr/bin/env bash
# Builds the site from docs/ and README.md into the folder $1 (default: .site), and fails when a link or
# an anchor leads nowhere. `scripts/site.sh serve` shows it while pages are written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly version=9.8.1
readonly venv=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}/mkdocs-material-$version

if [[ ! -d $venv ]]; then
  mkdir -p "$(dirname "$venv")"
  # Made elsewhere first, so that one that failed half-way is not taken for whole.
  { python3 -m venv "$venv.$$" && "$venv.$$/bin/pip" install -q --disable-pip-version-check "mkdocs-material==$version" 'mkdocs==1.6.1'; } >&2 ||
    { rm -rf "$venv.$$"; echo "site.sh: cannot install mkdocs-material $version" >&2; exit 1; }
  mv -T "$venv.$$" "$venv" 2>/dev/null || rm -rf "$venv.$$"
fi
if [[ ${1-} == serve ]]; then
  exec "$venv/bin/python" -m mkdocs serve
fi
# Without its warnings, as with --quiet, the generator would not fail for them either.
NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -m mkdocs build --site-dir "${1:-.site}" 2>&1 | { grep -v '^INFO' || true; }
