#!/bin/sh
# The user stays: files of others may belong to it.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
if [ "$1" = purge ]; then
  rm -rf /var/lib/tallygate
fi
