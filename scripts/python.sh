#!/usr/bin/env bash
# Prints a Python that has confluent-kafka, in a virtual environment that is made when missing.
set -euo pipefail

readonly version=2.16.1
readonly venv=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}/confluent-kafka-$version

if [[ ! -d $venv ]]; then
  mkdir -p "$(dirname "$venv")"
  # Made elsewhere first, so that one that failed half-way is not taken for whole.
  { python3 -m venv "$venv.$$" && "$venv.$$/bin/pip" install -q --disable-pip-version-check "confluent-kafka==$version"; } >&2 ||
    { rm -rf "$venv.$$"; echo "python.sh: cannot install confluent-kafka $version" >&2; exit 1; }
  mv -T "$venv.$$" "$venv" 2>/dev/null || rm -rf "$venv.$$"
fi
echo "$venv/bin/python"
