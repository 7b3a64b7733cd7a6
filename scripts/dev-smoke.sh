#!/usr/bin/env bash
# What a newcomer does first: builds the tool and the example app, starts `tallygate dev` on
# free ports, waits at most 20 s for the first verdict, runs the commands it prints, gets a
# 429 from the app as well, and stops with Ctrl-C.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
dev='' shop=''
cleanup() {
  local status=$?
  for pid in $dev $shop; do kill -KILL "$pid" 2>/dev/null || true; done
  if [[ $status != 0 ]]; then tail -n 40 "$work"/*.out >&2 || true; fi
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT

fail() {
  printf 'dev-smoke: %s\n' "$*" >&2
  exit 1
}

# shown EXPRESSION prints what its first group matches on dev's screen, if it is there.
shown() { sed -nE "s|.*$1.*|\\1|p" "$work/dev.out" | head -n 1; }

# within SECONDS COMMAND... tries the command until it succeeds.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    if ((SECONDS >= end)); then return 1; fi
    if ! kill -0 "$dev" 2>/dev/null; then fail 'dev has ended'; fi
    sleep 0.1
  done
}

go build -o "$work/" ./cmd/tallygate ./examples/quickstart
export PATH=$work:$PATH

began=$SECONDS
touch "$work/dev.out" "$work/shop.out"
tallygate dev --listen 127.0.0.1:0 >"$work/dev.out" 2>"$work/dev-errors.out" &
dev=$!
within 20 grep -qE 'try it: +curl' "$work/dev.out" || fail 'no verdict on the screen within 20 s'
printf 'the first verdict was on the screen after %d s\n' $((SECONDS - began))

# The curl line: 429, and what a client needs.
curl_line=$(shown 'try it: +(curl .*)')
eval "$curl_line -sS" >"$work/denied.out"
grep -qE '^HTTP/1.1 429 ' "$work/denied.out" || fail "not denied: $curl_line"
grep -qiE '^Retry-After: [1-9]' "$work/denied.out" || fail 'no Retry-After'
grep -qiE '^Content-Type: application/problem\+json' "$work/denied.out" || fail 'no problem+json'
printf 'denied: %s\n' "$curl_line"

# Why: as the screen says it, and over HTTP.
explain_line=$(shown 'and why: +(tallygate explain .*)')
eval "$explain_line" >"$work/explain.out"
grep -q ' block until ' "$work/explain.out" || fail "no block in: $explain_line"
uid=$(shown "X-Tallygate-Uid: ([^']+)'")
explain_url=$(shown 'aggregator +(http://[^?]+/v1/explain)')
curl -sSf "$explain_url?uid=$uid" >"$work/answer.out" && grep -q '"rules":\[{"rule":' "$work/answer.out" || fail "no explanation from $explain_url"
metrics_url=$(shown 'metrics +(http://.+)')
curl -sSf "$metrics_url" >"$work/metrics.out" && grep -q '^tallygate_events_total{result="counted"} [1-9]' "$work/metrics.out" || fail "no metrics at $metrics_url"

# The console, whose address comes first: every link of the chain works.
console_url=$(shown 'console +(http://[^ ]+)')
chain() { curl -sSf "$console_url" >"$work/console.out" && grep -q 'events arrive' "$work/console.out" && grep -q 'every partition is counted' "$work/console.out"; }
within 20 chain || fail "the console at $console_url does not show that events are counted"
printf 'the console shows it: %s\n' "$console_url"

# The example app: 200 for a while, over both of its APIs, then 429.
quickstart --listen 127.0.0.1:0 --kafka "$(shown 'Kafka +([^ ,]+), topic')" --redis "$(shown 'Redis +([^ ]+)$')" >"$work/shop.out" 2>&1 &
shop=$!
shop_url() { sed -nE "s|.*(http://[^/]+)/search.*|\\1|p" "$work/shop.out" | grep .; }
within 10 shop_url >/dev/null || fail 'the example app does not start'
allowed=0
visit() { # it is true when the visit was denied
  local path=/search status
  if ((allowed % 2)); then path=/suggest; fi
  status=$(curl -sS -o /dev/null -w '%{http_code}' -H 'X-User: 42' "$(shop_url)$path")
  case $status in
  200) allowed=$((allowed + 1)) && return 1 ;;
  429) return 0 ;;
  *) fail "the example app answers $status" ;;
  esac
}
within 20 visit || fail 'the example app denies nobody'
if ((allowed < 6)); then fail "the example app allowed $allowed requests; five are within the limit, and the sixth exceeds it"; fi
printf 'the example app denied after %d requests\n' "$allowed"

# Its coupons are under a strict rule: three, and no fourth, though they are asked for at once.
within 20 grep -qE 'permits +uid=customer-1 +coupons +8 asked at once: 3 admitted, 5 denied' "$work/dev.out" || fail 'no permits on the screen'
coupons=$(for _ in 1 2 3 4 5 6; do curl -sS -o /dev/null -w '%{http_code}\n' -X POST -H 'X-User: 43' "$(shop_url)/coupon" & done; wait)
if [[ $(grep -c 200 <<<"$coupons") != 3 || $(grep -c 429 <<<"$coupons") != 3 ]]; then fail "six coupons at once: ${coupons//$'\n'/ }"; fi
printf 'the example app gave three coupons, and no fourth\n'
kill -INT "$shop"
wait "$shop" || fail "the example app ends with status $?"
shop=''

# Ctrl-C ends dev well, and nothing was logged as an error.
kill -INT "$dev"
wait "$dev" || fail "dev ends with status $?"
dev=''
if [[ -s $work/dev-errors.out ]]; then fail 'dev has logged errors'; fi
grep -qx stopped "$work/dev.out" || fail 'dev does not say that it stopped'
