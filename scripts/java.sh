#!/usr/bin/env bash
# Builds the client for Java with Maven, outside of the repository, and runs its tests; unless this was
# done before for the same files. Prints the class path of its examples.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly cache=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}
built=$cache/java-$(find clients/java testdata/vectors testdata/outcomes.json scripts/java.sh -type f -not -path '*/target/*' |
  LC_ALL=C sort | xargs -d '\n' cat | cksum | cut -d ' ' -f 1)
readonly built

# maven builds in a folder, with quick starts: neither a compiler nor a test lives for long. It is tried
# again where the network, and not the client, was the matter.
maven() {
  local quick="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
  for try in 1 2 3; do
    MAVEN_OPTS=$quick mvn -q -B -Dstyle.color=never -Dmaven.compiler.failOnWarning=true -Dtallygate.testdata="$PWD/testdata" \
      -DargLine="$quick" -f "$1/pom.xml" package >"$1/log" 2>&1 && return
    ((try < 3)) && grep -q 'Could not \(transfer\|resolve\|find artifact\)\|could not be resolved' "$1/log" || break
  done
  cat "$1/log" >&2
  return 1
}

mkdir -p "$cache"
exec 9>"$cache/java.lock"
flock 9 # of two, the second one finds what the first one has made
if [[ ! -d $built ]]; then
  command -v mvn >/dev/null || { echo "java.sh: mvn is needed" >&2; exit 1; }
  # Made elsewhere first, so that one that failed half-way is not taken for whole.
  work=$(mktemp -d "$built.XXXXXX")
  tar cf - --exclude=target -C clients/java . | tar xf - -C "$work"
  maven "$work" || { rm -rf "$work"; echo "java.sh: the client for Java is not well" >&2; exit 1; }
  mv -T "$work" "$built"
  find "$cache" -maxdepth 1 -name 'java-*' -mtime +7 -exec rm -rf {} +
fi
echo "$built/example/target/classes:$built/example/target/lib/*"
