#!/bin/sh
# No service is enabled, started or restarted: which of them runs here, and the order of an upgrade over
# several machines, are decisions of people.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
