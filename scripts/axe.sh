#!/usr/bin/env bash
# Prints the path of axe.min.js, which checks pages for accessibility, as scripts/axe's lock file says. It is
# fetched when missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/axe"

command -v npm >/dev/null || { echo 'axe.sh: npm is not installed: apt-get install npm' >&2; exit 1; }
folder=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}/axe-$(cat package.json package-lock.json | sha256sum | cut -c1-16)

if [[ ! -d $folder ]]; then
  mkdir -p "$(dirname "$folder")"
  # Made elsewhere first, so that one that failed half-way is not taken for whole.
  mkdir "$folder.$$" && cp package.json package-lock.json "$folder.$$" &&
    npm ci --prefix "$folder.$$" --ignore-scripts --no-audit --no-fund --silent >&2 ||
    { rm -rf "$folder.$$"; echo 'axe.sh: npm ci fails' >&2; exit 1; }
  mv -T "$folder.$$" "$folder" 2>/dev/null || rm -rf "$folder.$$"
fi
echo "$folder/node_modules/axe-core/axe.min.js"
