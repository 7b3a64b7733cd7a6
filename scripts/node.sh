#!/usr/bin/env bash
# Prints a folder whose node_modules has what the tests of clients/node need, as its lock file says. It is
# installed when missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../clients/node"

version=$(node -p 'process.versions.node' 2>/dev/null) || { echo 'node.sh: node is not installed: apt-get install nodejs npm' >&2; exit 1; }
[[ ${version%%.*} -ge 20 ]] || { echo "node.sh: node $version is too old, 20 is needed" >&2; exit 1; }
folder=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}/node-$(cat package.json package-lock.json | sha256sum | cut -c1-16)

if [[ ! -d $folder ]]; then
  mkdir -p "$(dirname "$folder")"
  # Made elsewhere first, so that one that failed half-way is not taken for whole.
  mkdir "$folder.$$" && cp package.json package-lock.json "$folder.$$" &&
    npm ci --prefix "$folder.$$" --ignore-scripts --no-audit --no-fund --silent >&2 ||
    { rm -rf "$folder.$$"; echo 'node.sh: npm ci fails' >&2; exit 1; }
  mv -T "$folder.$$" "$folder" 2>/dev/null || rm -rf "$folder.$$"
fi
echo "$folder"
