#!/usr/bin/env bash
# The steps of a release that are done in the repository; CONTRIBUTING.md has all of them.
#   release.sh notes VERSION   prints what CHANGELOG.md says of a version
#   release.sh tag VERSION     writes the version where modules need each other, commits, and makes the tags
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly module=github.com/tallygate/tallygate

die() { echo "release.sh: $*" >&2; exit 1; }

# notes VERSION prints the section of a version, without its heading.
notes() {
  local text
  text=$(awk -v heading="## [$1]" 'index($0, "## ") == 1 { inside = index($0, heading) == 1; next } inside' CHANGELOG.md)
  [[ -n ${text//[[:space:]]/} ]] || die "CHANGELOG.md has no section $1: give it a heading such as ## [$1] - $(date -u +%F)"
  printf '%s\n' "$text"
}

# published are the folders of modules that others import, beside the root. Conformance is a test.
published() { git ls-files 'adapters/*/go.mod' | sed 's|/go.mod$||' | grep -v '/conformance$'; }

# require VERSION lets each module that names another one of ours, through one of adapters, name that version.
# At home a replace still leads to the folder; elsewhere there is none, and v0.0.0 could not be had.
require() {
  local file name
  for file in $(git ls-files 'adapters/*/go.mod'); do
    for name in $(awk -v m="$module" '$1 == "require" { $1 = ""; $0 = $0 } index($1, m) == 1 && $2 ~ /^v/ { print $1 }' "$file"); do
      go mod edit -require="$name@v$1" "$file"
    done
  done
}

tag() {
  local dir
  [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || die "$1 is no version such as 0.2.0 or 0.2.0-rc.1"
  [[ -z $(git status --porcelain) ]] || die "commit your changes first: git status lists them"
  ! git rev-parse -q --verify "refs/tags/v$1" >/dev/null || die "there is a tag v$1 already: what was published keeps its number"
  notes "$1" >/dev/null
  require "$1"
  git diff --quiet || git commit -qam "release: $1"
  git tag -a "v$1" -m "Tallygate $1"
  for dir in $(published); do
    git tag -a "$dir/v$1" -m "Tallygate $1"
  done
  echo "committed and tagged; to publish: git push --atomic origin HEAD $(git tag --points-at HEAD | tr '\n' ' ')"
}

case ${1:-} in
  notes | tag) "$1" "${2:?name a version, such as 0.2.0}" ;;
  *) die "usage: release.sh notes|tag VERSION" ;;
esac
