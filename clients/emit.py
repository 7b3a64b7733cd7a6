#!/usr/bin/env python3
"""An event from Python, with confluent-kafka (librdkafka):

    $(scripts/python.sh) clients/emit.py BROKERS TOPIC COUNT UID...

The package in clients/python does all of this, and more: docs/python.md. This is for those who write a
producer of their own. The record's key is the uid. librdkafka places keys by CRC32 unless told otherwise;
partitioner=murmur2_random places them as Java does, where the aggregator expects them. Events
that are placed otherwise are counted too, but forwarded first: --default-partitioner shows it.
"""

import argparse
import datetime
import json
import uuid

from confluent_kafka import Producer


def event(uid):
    """One action. The id makes it itself: sent twice, it counts once."""
    return {
        "id": str(uuid.uuid4()),
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "uid": uid,
        "api": "search.query",
        "outcome": "success",
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("brokers")
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("uid", nargs="+")
    parser.add_argument("--default-partitioner", action="store_true")
    args = parser.parse_args()

    config = {"bootstrap.servers": args.brokers, "enable.idempotence": True}
    if not args.default_partitioner:
        config["partitioner"] = "murmur2_random"
    producer = Producer(config)

    failed = []
    written = []

    def delivered(error, message):
        (failed if error else written).append(error or message)

    for uid in args.uid:
        for _ in range(args.count):
            producer.produce(args.topic, json.dumps(event(uid)), key=uid, on_delivery=delivered)
            producer.poll(0)
    producer.flush()
    if failed:
        raise SystemExit(f"{len(failed)} events were not written: {failed[0]}")
    print(f"wrote {len(written)} events")


if __name__ == "__main__":
    main()
