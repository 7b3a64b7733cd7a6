#!/usr/bin/env bash
# The decision server under load, beside a Redis script per check and envoyproxy/ratelimit, on one machine in one run:
#
#   bench-decision.sh [--lines] [ROUNDS [SECONDS]]     (default 3 rounds of 4 seconds each)
#
# With --lines it also prints results in Go's benchmark format.
#
# What each is asked: may this one user do this now? The decision server has 100,000 other users blocked. Every load is 32
# connections; rounds are interleaved, and medians shown. Needs wrk, h2load (Debian: wrk, nghttp2-client), redis.
# CPU is that of the server, and of the Redis behind it where it asks one; a load generator has the other part.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lines=
if [[ ${1:-} == --lines ]]; then lines=1; shift; fi
readonly lines rounds=${1:-3} seconds=${2:-4} connections=32
work=$(mktemp -d)
readonly work
pids=()
cleanup() {
  local status=$?
  for pid in "${pids[@]}"; do
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  scripts/redis.sh kill9 "$work/redis" || true
  if [[ $status != 0 ]]; then tail -n 5 "$work"/*.log >&2 || true; fi
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT
for program in wrk h2load redis-benchmark redis-cli; do
  command -v "$program" >/dev/null || { echo "bench-decision: $program is needed" >&2; exit 1; }
done

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
await() { local end=$((SECONDS + 30)); until (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do ((SECONDS < end)) || return 1; sleep 0.1; done; }

# cpu PID... prints the processes' CPU time so far, in hundredths of a second.
cpu() { for pid in "$@"; do awk '{ print $14 + $15 }' "/proc/$pid/stat"; done | awk '{ n += $1 } END { print n }'; }

redis=$(scripts/redis.sh start "$work/redis")
redis_port=${redis##*:}
redis_pid=$(<"$work/redis/pid")

# 100,000 blocked users, as a publisher writes them.
now=$(date +%s)
python3 - "$now" <<'PY' | redis-cli -p "$redis_port" --pipe >/dev/null
import json, sys
now = int(sys.argv[1]) * 1000000
def command(*args):
    out = b"*%d\r\n" % len(args)
    for a in args:
        a = a if isinstance(a, bytes) else str(a).encode()
        out += b"$%d\r\n%s\r\n" % (len(a), a)
    sys.stdout.buffer.write(out)
meta = {b"\0epoch": 1, b"\0n": 1, b"\0stamp": "s", b"\0applied": now}
for name, value in meta.items():
    command("HSET", "{tallygate:0}:verdicts", name, value)
for i in range(100000):
    verdict = {"rule": "r", "key": {"uid": "blocked-%d" % i}, "state": "block", "mode": "enforce", "action": "block", "apis": ["*"],
               "count": 6, "limit": 5, "since": "2020-01-01T00:00:00Z", "until": "2099-01-01T00:00:00Z", "seq": i}
    command("HSET", "{tallygate:0}:verdicts", "uid=blocked-%d|r" % i, json.dumps(verdict, separators=(",", ":")))
command("XADD", "{tallygate:0}:changes", "1-1", "s", "s", "p", "", "h", now)
PY

go build -o "$work/enforcer" ./cmd/enforcer
http=$(free_port) grpc=$(free_port)
"$work/enforcer" --redis "$redis" --listen "127.0.0.1:$http" --grpc-listen "127.0.0.1:$grpc" --metrics-listen 127.0.0.1:0 \
  --max-staleness 1h --log-level error >"$work/enforcer.log" 2>&1 &
enforcer=$!
pids+=("$enforcer")
until curl -sf "http://127.0.0.1:$http/readyz" >/dev/null; do sleep 0.1; done

# envoyproxy/ratelimit, with a limit that nobody reaches, on the same Redis.
(cd bench/decision && go build -o "$work/ratelimit" github.com/envoyproxy/ratelimit/src/service_cmd)
mkdir -p "$work/runtime/ratelimit/config"
printf 'domain: shop\ndescriptors:\n  - key: uid\n    rate_limit: {unit: minute, requests_per_unit: 4000000000}\n' >"$work/runtime/ratelimit/config/config.yaml"
peer=$(free_port)
USE_STATSD=false LOG_LEVEL=error REDIS_SOCKET_TYPE=tcp REDIS_URL=$redis RUNTIME_ROOT=$work/runtime RUNTIME_SUBDIRECTORY=ratelimit \
  RUNTIME_WATCH_ROOT=false HOST=127.0.0.1 GRPC_HOST=127.0.0.1 GRPC_PORT=$peer PORT=$(free_port) DEBUG_HOST=127.0.0.1 DEBUG_PORT=$(free_port) \
  "$work/ratelimit" >"$work/ratelimit.log" 2>&1 &
ratelimit=$!
pids+=("$ratelimit")
await "$peer"

# A request: domain shop, one descriptor uid=free-user (and api=get, which the peer has no limit for and so is left out there).
python3 - "$work" <<'PY'
import sys
def field(n, data): return bytes([n << 3 | 2, len(data)]) + data
def message(*entries):
    descriptor = b"".join(field(1, field(1, k) + field(2, v)) for k, v in entries)
    body = field(1, b"shop") + field(2, descriptor)
    return b"\0" + len(body).to_bytes(4, "big") + body
open(sys.argv[1] + "/ours.bin", "wb").write(message((b"uid", b"free-user"), (b"api", b"get")))
open(sys.argv[1] + "/peer.bin", "wb").write(message((b"uid", b"free-user")))
PY

# answers PORT FILE: is the question answered, with OK in the answer? A wrong one would be fast, too.
answers() {
  curl -s --http2-prior-knowledge -D "$work/head" -o "$work/body" -H 'content-type: application/grpc' -H 'te: trailers' --data-binary "@$2" \
    "http://127.0.0.1:$1/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
  # After the five bytes of gRPC's own: field 1, overall_code, is 1, OK.
  if ! grep -qi '^grpc-status: 0' "$work/head" || [[ $(od -An -tx1 -j5 -N2 "$work/body" | tr -d ' ') != 0801 ]]; then
    echo "bench-decision: port $1 does not answer OK" >&2
    return 1
  fi
}
answers "$grpc" "$work/ours.bin"
answers "$peer" "$work/peer.bin"

# Each load prints checks per second and the 99th percentile in ms.
with_wrk() {
  wrk -t1 -c"$connections" -d"${seconds}s" --latency -H 'X-Tallygate-Uid: free-user' -H 'X-Tallygate-Api: get' "http://127.0.0.1:$http/v1/forward-auth" >"$work/out"
  if grep -q 'Non-2xx' "$work/out"; then return 1; fi
  awk '/99%/ { t = $2; f = t ~ /us$/ ? 0.001 : t ~ /ms$/ ? 1 : 1000; p = t * f } /Requests\/sec/ { r = $2 } END { printf "%.0f %.2f\n", r, p }' "$work/out"
}
with_h2load() { # PORT FILE
  rm -f "$work/times"
  h2load -t1 -c"$connections" -m1 -D"$seconds" --warm-up-time=0 --log-file="$work/times" -d "$2" -H 'content-type: application/grpc' -H 'te: trailers' \
    "http://127.0.0.1:$1/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" >"$work/out"
  awk '$2 != 200 { exit 1 } { print $3 }' "$work/times" | sort -n >"$work/sorted" || return 1
  awk -v s="$seconds" '{ t[NR] = $1 } END { printf "%.0f %.2f\n", NR / s, t[int(NR * 0.99)] / 1000 }' "$work/sorted"
}
gcra=$(redis-cli -p "$redis_port" SCRIPT LOAD "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2]
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + tonumber(ARGV[1])
if tat - now > tonumber(ARGV[2]) then return tat - now end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', 60000) return 0")
with_redis() {
  redis-benchmark -p "$redis_port" -c "$connections" -n "$((seconds * ${redis_rate:-15000}))" --csv EVALSHA "$gcra" 1 free-user 1 60000000 2>/dev/null |
    tail -n 1 | tr -d '"' | awk -F, '{ redis = $2; printf "%.0f %.2f\n", $(NF-6), $(NF-1) }'
}

measure() { # NAME PIDS COMMAND...
  local name=$1 before after began took line
  read -ra of <<<"$2"
  shift 2
  before=$(cpu "${of[@]}") began=$(date +%s%N)
  line=$("$@")
  after=$(cpu "${of[@]}") took=$(($(date +%s%N) - began))
  # The server's CPU time per check, in µs.
  awk -v name="$name" -v cpu=$((after - before)) -v took="$took" '{ printf "%s\t%s\t%s\t%.1f\n", name, $1, $2, cpu * 10000 / ($1 * took / 1e9) }' <<<"$line" >>"$work/results"
}

for ((round = 0; round < rounds; round++)); do
  measure 'decision server, HTTP forward-auth' "$enforcer" with_wrk
  measure 'decision server, gRPC rate limit' "$enforcer" with_h2load "$grpc" "$work/ours.bin"
  measure 'envoyproxy/ratelimit, gRPC rate limit' "$ratelimit $redis_pid" with_h2load "$peer" "$work/peer.bin"
  measure 'Redis, a Lua script a check' "$redis_pid" with_redis
done

printf '%-40s %12s %10s %14s   (medians of %d rounds of %d s, %d connections)\n' '' 'checks/s' 'p99 ms' 'CPU µs/check' "$rounds" "$seconds" "$connections"
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
cut -f1 "$work/results" | awk '!seen[$0]++' | while read -r name; do
  mine() { awk -F'\t' -v name="$name" -v f="$1" '$1 == name { print $f }' "$work/results" | median; }
  printf '%-40s %12s %10s %14s\n' "$name" "$(mine 2)" "$(mine 3)" "$(mine 4)"
  if [[ $lines ]]; then
    printf 'BenchmarkDecision/%s %s %s CPU-µs/check %s checks/s %s p99-ms\n' "${name//[ ,]/_}" "$rounds" "$(mine 4)" "$(mine 2)" "$(mine 3)"
  fi
done
