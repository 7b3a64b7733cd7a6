"""A worker, which no middleware serves: it checks before it exports, and emits what it did.

    python worker.py http://127.0.0.1:8080 BROKERS TOPIC COUNT UID
"""

import logging
import sys

import tallygate


def export(client: tallygate.Client, emitter: tallygate.Emitter, uid: str) -> bool:
    decision = client.check("report.export", uid=uid)
    if not decision:
        print(f"not now: {decision.public or 'a limit'}, try again in {decision.retry_after} s")
        return False
    rows = 17  # the export itself
    emitter.emit(api="report.export", uid=uid, outcome="success", attrs={"rows": rows})
    return True


def main() -> None:
    url, brokers, topic, count, uid = sys.argv[1:]
    logging.basicConfig(level=logging.INFO)  # the logger "tallygate" tells what goes wrong
    client = tallygate.Client(url)
    with tallygate.Emitter(brokers, topic, name="exporter") as emitter:
        done = sum(export(client, emitter, uid) for _ in range(int(count)))
        emitter.flush()
        print(f"done {done}, {emitter.stats().sent} events")


if __name__ == "__main__":
    main()
