#!/usr/bin/env bash
# Apache Kafka for tests: one KRaft node that is broker and controller at once.
#
#   kafka.sh install [DIR]        fetch Kafka's jars from Maven Central into DIR; print DIR
#                                 It also archives the classes, with which java starts in half the time.
#   kafka.sh start   DIR [PORT]   start a broker with its data in DIR; print host:port once it answers
#   kafka.sh stop    DIR          stop it, and wait for its end
#   kafka.sh kill9   DIR          kill it without notice (a start on the same DIR recovers it)
#
# A start on a DIR that was used before keeps its data and, without PORT, its port; where a
# broker runs already, start only prints its address.
#   KAFKA_LIB     the jars (default: $TALLYGATE_CACHE/kafka-VERSION, fetched when missing)
#   KAFKA_EXTRA   more broker properties, one a line; the last of equal names wins
#   KAFKA_LISTENERS, KAFKA_ADVERTISED   more listeners, and how they are advertised, as in Kafka's properties
#   KAFKA_HEAP    java's heap (default 1g)
#   KAFKA_SESSION ms without a heartbeat after which the controller fences the broker (default 60000: there is no
#                 other one, and a busy machine is no reason). A start after kill9 waits for it
#   KAFKA_JAVA    more flags for java, such as -XX:TieredStopAtLevel=1
#   KAFKA_DATA    where the data is (default DIR/data)
#   KAFKA_CLUSTER_ID   22 characters, the same for all nodes of a cluster (default: random)
#   KAFKA_PRELOAD a library that java is started with (LD_PRELOAD)
set -euo pipefail

readonly version=4.1.0 log4j=2.24.3
readonly cache=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}
lib=${KAFKA_LIB:-$cache/kafka-$version}

die() { echo "kafka.sh: $*" >&2; exit 1; }

# free_port prints a port that nobody listens on, below the range that outgoing connections
# and ":0" get theirs from, and those of the tests' programs (from 22000), so that it stays
# free until the broker takes it.
free_port() {
  local port
  while port=$((15000 + RANDOM % 7000)); answers "$port"; do :; done
  echo "$port"
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# alive DIR: does the process of DIR's pid file run, and is it ours (pids are used again)?
alive() { [[ -f $1/pid && $(ps -ww -o args= -p "$(<"$1/pid")" 2>/dev/null) == *"$1/server.properties"* ]]; }

# end DIR SIGNAL sends the signal and waits until the process is gone.
end() {
  local dir deadline=$((SECONDS + 60))
  [[ -f $1/pid ]] || return 0
  dir=$(cd "$1" && pwd)
  if alive "$dir"; then kill "-$2" "$(<"$dir/pid")"; fi
  # A killed process first loses its name, then its port.
  while alive "$dir" || answers "$(<"$dir/port")"; do
    ((SECONDS < deadline)) || die "the broker in $dir does not end"
    sleep 0.1
  done
  rm -f "$dir/pid"
}

# install_jars [DIR] fetches the jars unless they are there. They get their folder at once
# when all have come, so that two that fetch at the same time don't meet.
install_jars() {
  lib=${1:-$lib}
  if [[ ! -d $lib ]]; then
    command -v mvn >/dev/null || die "mvn is needed to fetch Kafka"
    mkdir -p "$(dirname "$lib")"
    local work
    work=$(mktemp -d "$lib.XXXXXX")
    cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.tallygate</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>$log4j</version></dependency>
  </dependencies>
</project>
POM
    for try in 1 2 3; do
      mvn -q -B -Dstyle.color=never -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/lib" >&2 && break
      ((try < 3)) || { rm -rf "$work"; die "cannot fetch Kafka $version"; }
    done
    mv -T "$work/lib" "$lib" 2>/dev/null || [[ -d $lib ]] || die "cannot write $lib"
    rm -rf "$work"
  fi
  archive
  echo "$lib"
}

# archive_file prints where the archive of Kafka's classes is: each java has its own.
archive_file() {
  local home
  home=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
  echo "$cache/kafka-$version-$({ echo "$lib"; cat "$home/release" 2>/dev/null || true; } | cksum | cut -d ' ' -f 1).jsa"
}

# archive makes the archive, unless it is there, from what a broker loads that starts and ends. Java
# does without one that does not fit it. Where none can be made, an empty file says so.
archive() {
  local file work
  file=$(archive_file)
  [[ -z ${archiving:-} && ! -f $file ]] || return 0
  mkdir -p "$cache"
  work=$(mktemp -d "$file.XXXXXX")
  : >"$work/jsa"
  if ! (archiving=$work/jsa KAFKA_LISTENERS='' KAFKA_ADVERTISED='' KAFKA_EXTRA='' KAFKA_DATA='' KAFKA_PRELOAD='' start "$work/kafka" >/dev/null && end "$work/kafka" TERM); then
    echo "kafka.sh: java makes no archive of Kafka's classes, and starts more slowly" >&2
  fi
  mv -T "$work/jsa" "$file"
  rm -rf "$work"
}

# configure DIR PORT CONTROLLER writes the broker's properties.
configure() {
  cat >"$1/server.properties" <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$3
listeners=PLAINTEXT://127.0.0.1:$2,CONTROLLER://127.0.0.1:$3${KAFKA_LISTENERS:+,$KAFKA_LISTENERS}
advertised.listeners=PLAINTEXT://127.0.0.1:$2${KAFKA_ADVERTISED:+,$KAFKA_ADVERTISED}
controller.listener.names=CONTROLLER
log.dirs=${KAFKA_DATA:-$1/data}
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
broker.session.timeout.ms=${KAFKA_SESSION:-60000}
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.retention.ms=-1
log.retention.bytes=-1
num.network.threads=2
num.io.threads=4
${KAFKA_EXTRA:-}
CONF
  cat >"$1/log4j2.properties" <<CONF
rootLogger.level=WARN
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=INFO
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
CONF
}

start() {
  local dir=$1 port=${2:-} controller
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  if alive "$dir"; then
    echo "127.0.0.1:$(<"$dir/port")"
    return
  fi
  install_jars >/dev/null
  [[ -n $port || ! -f $dir/port ]] || port=$(<"$dir/port")
  port=${port:-$(free_port)}
  if [[ -f $dir/controller ]]; then controller=$(<"$dir/controller"); else controller=$(free_port); fi
  answers "$port" && die "port $port is taken"
  echo "$port" >"$dir/port"
  echo "$controller" >"$dir/controller"
  configure "$dir" "$port" "$controller"

  local java=(java -cp "$lib/*" -Dlog4j2.configurationFile="$dir/log4j2.properties") dump=() classes
  classes=$(archive_file)
  if [[ -n ${archiving:-} ]]; then
    dump=("-XX:ArchiveClassesAtExit=$archiving")
  elif [[ -s $classes ]]; then
    java+=("-XX:SharedArchiveFile=$classes")
  fi
  local data=${KAFKA_DATA:-$dir/data}
  if [[ ! -f $data/meta.properties ]]; then
    "${java[@]}" -XX:TieredStopAtLevel=1 kafka.tools.StorageTool format \
      -t "$(cluster_id)" -c "$dir/server.properties" >"$dir/format.log" 2>&1 ||
      { cat "$dir/format.log" >&2; die "cannot format $data"; }
  fi
  [[ ! -f $dir/kafka.log ]] || mv "$dir/kafka.log" "$dir/kafka.log.before"
  launch() {
    : >"$dir/kafka.log" # it is looked into before the broker's shell has made it
    # shellcheck disable=SC2086 # KAFKA_JAVA is words
    LD_PRELOAD=${KAFKA_PRELOAD:-} setsid nohup "${java[@]}" "${dump[@]}" ${KAFKA_JAVA:-} -Xms256m "-Xmx${KAFKA_HEAP:-1g}" -XX:ParallelGCThreads=2 \
      kafka.Kafka "$dir/server.properties" >"$dir/kafka.log" 2>&1 </dev/null &
    echo $! >"$dir/pid"
  }
  launch
  local deadline=$((SECONDS + 120))
  until grep -q 'Kafka Server started' "$dir/kafka.log" && answers "$port"; do
    if ! kill -0 "$(<"$dir/pid")" 2>/dev/null || ((SECONDS >= deadline)); then
      # A port that another program has for a moment, or that the broker before has not quite left.
      if ((SECONDS < deadline)) && grep -q 'BindException' "$dir/kafka.log"; then
        sleep 1
        launch
        continue
      fi
      tail -30 "$dir/kafka.log" >&2
      end "$dir" KILL
      die "the broker does not start"
    fi
    sleep 0.1
  done
  echo "127.0.0.1:$port"
}

# cluster_id prints 16 random bytes as Kafka writes them.
cluster_id() { echo "${KAFKA_CLUSTER_ID:-T$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c 2-22)}"; }

case ${1:-} in
  install) install_jars "${2:-}" ;;
  start) [[ $# -ge 2 ]] || die "start DIR [PORT]"; start "$2" "${3:-}" ;;
  stop) [[ $# -eq 2 ]] || die "stop DIR"; end "$2" TERM ;;
  kill9) [[ $# -eq 2 ]] || die "kill9 DIR"; end "$2" KILL ;;
  *) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
