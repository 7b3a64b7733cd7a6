#!/bin/sh
# The package's files belong to this group, so that it has to be there before they are.
set -e
getent group tallygate >/dev/null || groupadd --system tallygate
getent passwd tallygate >/dev/null ||
  useradd --system --gid tallygate --no-create-home --home-dir /var/lib/tallygate --shell /usr/sbin/nologin tallygate
