#!/usr/bin/env bash
# Plans of faults, played on a Kafka and a Redis of their own. It is called by `make chaos`:
#
#   SEED    the first plan's seed, each further one's is one more (default: of chance)
#   RUNS    how many plans (1)
#   EVENTS  events of a plan (500000)
#   UIDS    uids of a plan (20000)
#   FAULTS  faults of a plan (14)
#   STRICT  1: strict rules in each plan, and none that forgets within seconds; else in some
#   ONLY    draw faults that match this expression only: ONLY='Redis|paused'
#   REPORT  write the table of faults to this file, as Markdown
#   LOGS    write the programs' logs into this folder
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# from_here FILE: as it is meant where the script was called; tests run elsewhere.
from_here() { case ${1:-} in '' | /*) echo "${1:-}" ;; *) echo "$here/$1" ;; esac; }

scripts/kafka.sh install >/dev/null
scripts/redis.sh install
export TALLYGATE_TEST_KAFKA=own TALLYGATE_TEST_REDIS=own TALLYGATE_TEST_REQUIRE=1 TALLYGATE_TEST_NIGHTLY=chaos
exec go test -v -count=1 -timeout 0 -run '^TestChaos$' ./internal/testing/e2e \
  -chaos.seed "${SEED:-0}" -chaos.runs "${RUNS:-1}" -chaos.events "${EVENTS:-500000}" -chaos.uids "${UIDS:-20000}" \
  -chaos.faults "${FAULTS:-14}" -chaos.strict="${STRICT:-0}" -chaos.only "${ONLY:-}" -chaos.report "$(from_here "${REPORT:-}")" -chaos.logs "$(from_here "${LOGS:-}")"
