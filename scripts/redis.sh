#!/usr/bin/env bash
# Redis for tests: one server on loopback that writes nothing to disk.
#
#   redis.sh install              install Debian's redis-server when none is there
#   redis.sh start   DIR [PORT]   start a server; print host:port once it answers
#   redis.sh stop    DIR          stop it, and wait for its end
#   redis.sh kill9   DIR          kill it without notice (it comes back empty)
#
# A start on a DIR that was used before keeps, without PORT, its port; where a server runs
# already, start only prints its address.
#   REDIS_SERVER  the program (default redis-server)
#   REDIS_EXTRA   more settings as on redis-server's command line: --maxmemory 100mb
#   REDIS_WATCH   "HOST PORT QUORUM" of a master: start is that of a Sentinel, which calls it "tallygate"
set -euo pipefail

readonly server=${REDIS_SERVER:-redis-server}

die() { echo "redis.sh: $*" >&2; exit 1; }

# answers PORT: is there a server, and has it loaded its data?
answers() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'PING\r\n' >&3 && read -rt 1 -u 3 line && [[ $line != -LOADING* ]]) 2>/dev/null
}

# free_port prints a port that nobody listens on, below the range that ":0" gets its ports from.
free_port() {
  local port
  while port=$((15000 + RANDOM % 7000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

# alive DIR: does the process of DIR's pid file run, and is it a Redis (pids are used again)?
alive() { [[ -f $1/pid && $(ps -ww -o args= -p "$(<"$1/pid")" 2>/dev/null) == *"127.0.0.1:$(<"$1/port")"* ]]; }

install_server() {
  command -v "$server" >/dev/null && return
  if [[ $server != redis-server || $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    die "$server is needed"
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server; } >&2
  # Debian starts a server of its own, where there is an init that can.
  if [[ -d /run/systemd/system ]]; then systemctl disable --now redis-server >&2 || true; fi
}

# run DIR PORT becomes the server.
run() {
  # shellcheck disable=SC2086 # REDIS_EXTRA is words
  if [[ -n ${REDIS_WATCH:-} ]]; then
    # A Sentinel rewrites its file; it is there from the second start on.
    [[ -f $1/sentinel.conf ]] || printf '%s\n' "port $2" "bind 127.0.0.1" "dir $1" \
      "sentinel monitor tallygate $REDIS_WATCH" "sentinel down-after-milliseconds tallygate 1000" \
      "sentinel failover-timeout tallygate 6000" >"$1/sentinel.conf"
    exec setsid nohup "$server" "$1/sentinel.conf" --sentinel ${REDIS_EXTRA:-}
  else
    exec setsid nohup "$server" --bind 127.0.0.1 --port "$2" --dir "$1" --save "" --appendonly no \
      --daemonize no --loglevel notice --maxmemory-policy noeviction ${REDIS_EXTRA:-}
  fi
}

start() {
  local dir=$1 port=${2:-}
  mkdir -p "$dir"
  if alive "$dir"; then
    echo "127.0.0.1:$(<"$dir/port")"
    return
  fi
  command -v "$server" >/dev/null || die "$server is missing: $0 install"
  [[ -n $port || ! -f $dir/port ]] || port=$(<"$dir/port")
  port=${port:-$(free_port)}
  answers "$port" && die "port $port is taken"
  echo "$port" >"$dir/port"
  run "$dir" "$port" >"$dir/redis.log" 2>&1 </dev/null &
  echo $! >"$dir/pid"
  local deadline=$((SECONDS + 30))
  until answers "$port"; do
    if ! kill -0 "$(<"$dir/pid")" 2>/dev/null || ((SECONDS >= deadline)); then
      tail -30 "$dir/redis.log" >&2
      die "the server does not start"
    fi
    sleep 0.05
  done
  echo "127.0.0.1:$port"
}

# end DIR SIGNAL sends the signal and waits until the process is gone.
end() {
  local deadline=$((SECONDS + 30))
  [[ -f $1/pid ]] || return 0
  if alive "$1"; then kill "-$2" "$(<"$1/pid")"; fi
  # A killed process first loses its name, then its port.
  while alive "$1" || answers "$(<"$1/port")"; do
    ((SECONDS < deadline)) || die "the server in $1 does not end"
    sleep 0.05
  done
  rm -f "$1/pid"
}

case ${1:-} in
  install) install_server ;;
  start) [[ $# -ge 2 ]] || die "start DIR [PORT]"; start "$2" "${3:-}" ;;
  stop) [[ $# -eq 2 ]] || die "stop DIR"; end "$2" TERM ;;
  kill9) [[ $# -eq 2 ]] || die "kill9 DIR"; end "$2" KILL ;;
  *) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
