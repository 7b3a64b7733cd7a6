#!/bin/sh
# Before an upgrade (deb: upgrade, rpm: 1) all runs on; before the last version goes, it stops.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
  systemctl disable --now tallygate-aggregator.service tallygate-enforcer.service tallygate-console.service tallygate-notify.service || true
  for unit in $(systemctl list-units --plain --no-legend 'tallygate-emit@*' | cut -d' ' -f1); do
    systemctl disable --now "$unit" || true
  done
fi
