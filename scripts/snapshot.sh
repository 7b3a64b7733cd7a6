#!/usr/bin/env bash
# Builds what a release consists of into bin/dist, and publishes nothing. Images need docker, and signatures a
# person: they are left out. With ONLY=1 it builds for this machine only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=$(scripts/goreleaser.sh)
PATH="$tools:$PATH" nice "$tools/snapshot"
