"""Events of some users: python emit.py BROKERS TOPIC COUNT UID..."""

import sys

import tallygate


def main() -> None:
    brokers, topic, count, *uids = sys.argv[1:]
    with tallygate.Emitter(brokers, topic, name="emit.py") as emitter:
        for uid in uids:
            for _ in range(int(count)):
                emitter.emit(api="search.query", uid=uid, outcome="success")
    if emitter.stats().dropped:
        raise SystemExit(f"events were not written: {emitter.stats()}")
    print(f"wrote {emitter.stats().sent} events")


if __name__ == "__main__":
    main()
