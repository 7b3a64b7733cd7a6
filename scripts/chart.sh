#!/usr/bin/env bash
# Packages the Helm chart as that of a version: the images that it names are that version's.
#   chart.sh VERSION DIR   writes DIR/tallygate-VERSION.tgz; the same files give the same bytes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ ${1:-} =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ && -n ${2:-} ]] || { echo "usage: chart.sh VERSION DIR, with a version such as 0.2.0" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R deploy/helm/tallygate "$work/tallygate"
sed -i.before -e "s/^version: .*/version: $1/" -e "s/^appVersion: .*/appVersion: \"$1\"/" "$work/tallygate/Chart.yaml"
rm "$work/tallygate/Chart.yaml.before"
chmod -R u=rwX,go=rX "$work/tallygate"
mkdir -p "$2"
rm -f "$2"/tallygate-*.tgz # of another version
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -cf - tallygate | gzip -n >"$2/tallygate-$1.tgz"
