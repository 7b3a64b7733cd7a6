#!/usr/bin/env bash
# completions.sh DIR writes there what completes command lines, under the names that shells look for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=${1:?name a folder}
mkdir -p "$dir"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOOS='' GOARCH='' go build -o "$work/tallygate" ./cmd/tallygate # for this machine, whatever is built next
"$work/tallygate" completion bash >"$dir/tallygate.bash"
"$work/tallygate" completion zsh >"$dir/_tallygate"
"$work/tallygate" completion fish >"$dir/tallygate.fish"
