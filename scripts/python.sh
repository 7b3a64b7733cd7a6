#!/usr/bin/env bash
# Prints a Python that has what the package in clients/python is tested with, in a virtual environment
# that is made when missing. The package itself is not in it: its tests set PYTHONPATH. With the argument litellm it has
# LiteLLM's proxy instead, some 700 MB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly of=${1:-python}
sum=$(sha256sum "$of-requirements.txt")
readonly venv=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}/$of-${sum:0:12}

if [[ ! -d $venv ]]; then
  mkdir -p "$(dirname "$venv")"
  # Made elsewhere first, so that one that failed half-way is not taken for whole.
  { python3 -m venv "$venv.$$" && "$venv.$$/bin/pip" install -q --disable-pip-version-check --no-deps -r "$of-requirements.txt"; } >&2 ||
    { rm -rf "$venv.$$"; echo 'python.sh: cannot install what its list of requirements has' >&2; exit 1; }
  mv -T "$venv.$$" "$venv" 2>/dev/null || rm -rf "$venv.$$"
fi
echo "$venv/bin/python"
