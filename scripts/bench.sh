#!/usr/bin/env bash
# bench.sh NAME [ARGS...]: a benchmark of whole programs, with the servers that it needs.
#
#   throughput   events per CPU-second of the aggregator, beside a bare consumer   (--per-record 100, --recovery)
#   latency      from Emit to denied in another process                            (--rates 5000 --attack 10000)
#   writes       the same with 48 partitions on three brokers in the distance      (--delays 0,20ms --replica-delays 0)
#   enforce      a check beside a map, xsync, other limiters and Redis             (--sizes 1000,100000)
#   decision     the decision server beside envoyproxy/ratelimit and a Redis script (ROUNDS SECONDS)
#   admit        a permit beside a bare script, GCRA, redis_rate and gubernator   (--clients 16 --rounds 5)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly run=${RUN:-.run} name=${1:?which benchmark? throughput, latency, writes, enforce, decision or admit}
shift

kafka() { scripts/kafka.sh start "$run/kafka"; }
redis() {
  scripts/redis.sh install
  scripts/redis.sh start "$run/redis"
}

# bench NAME ARGS...: a program of the module in bench. It runs in the repository's folder: it starts scripts and builds programs.
bench() {
  local at
  at=$(mkdir -p "$run/bench" && realpath "$run/bench")
  go build -C bench -o "$at/" "./$1"
  "$at/$1" "${@:2}"
}

case $name in
throughput) bench throughput --kafka "$(kafka)" "$@" ;;
latency) bench latency --kafka "$(kafka)" --redis "$(redis)" "$@" ;;
writes)
  bench latency --redis "$(redis)" --brokers 3 --partitions 48 --rates 100 --every 30ms \
    --probes 400 --delays 0,1ms,5ms,20ms "$@"
  ;;
enforce) bench enforce --redis "$(redis)" "$@" ;;
admit)
  work=$(mktemp -d) # a Redis of its own: the benchmark empties it
  trap 'scripts/redis.sh stop "$work"; rm -rf "$work"' EXIT
  scripts/redis.sh install
  address=$(scripts/redis.sh start "$work")
  bench admit --redis "$address" "$@"
  ;;
decision) exec scripts/bench-decision.sh "$@" ;;
*)
  echo "bench.sh: there is no benchmark $name: throughput, latency, writes, enforce, decision or admit" >&2
  exit 2
  ;;
esac
