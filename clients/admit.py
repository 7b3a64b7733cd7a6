#!/usr/bin/env python3
"""A strict limit from Python: a permit before the action, and an event behind it.

    $(scripts/python.sh) clients/admit.py http://127.0.0.1:8080 BROKERS TOPIC COUNT UID

tries to send COUNT messages of one user. The decision server (`enforcer`) grants permits by the
rules, never more than a strict limit allows, however many programs ask at once:

    - {name: messages, match: {api: sms.send, outcome: success}, limit: 10, per: day, strict: true}
"""

import datetime
import json
import sys
import time
import urllib.error
import urllib.request
import uuid

from confluent_kafka import Producer


class NotSent(Exception):
    """The action did not happen."""


def send_message(number):
    """The action itself. The third one does not happen, to show what to do then."""
    if number == 3:
        raise NotSent


def post(url, body):
    """A question to the decision server. Beyond loopback it also wants a credential."""
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=5) as answer:
        return json.load(answer)


def admit(server, action, uid):
    """Asks for a permit. The id names this one action: asked again, it gets the same permit, so that
    a lost answer costs none."""
    wish = {"id": action, "uid": uid, "api": "sms.send", "cost": 1}
    for _ in range(60):
        try:
            answer = post(server + "/v1/admit", wish)
            if not answer.get("in_doubt") or answer["admitted"]:
                return answer
        except urllib.error.HTTPError as error:
            if error.code != 503:  # a mistake of ours
                raise
        except (urllib.error.URLError, TimeoutError):
            pass  # the decision server is away, or slow
        time.sleep(1)  # nobody knows whether the limit is reached: ask again
    return {"admitted": False}


def main():
    server, brokers, topic, count, uid = sys.argv[1:]
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random"})
    done, failed = 0, []
    for number in range(1, int(count) + 1):
        action = str(uuid.uuid4())
        answer = admit(server, action, uid)
        if not answer["admitted"]:  # retry_after, where it is known, says in how many seconds to come back
            continue
        permit = {key: answer[key] for key in ("permit", "permit_at") if key in answer}
        try:
            send_message(number)
        except NotSent:  # the permit is free again, and there is no event
            if "token" in answer:
                post(server + "/v1/cancel", {"token": answer["token"]})
            continue
        # The event counts, and settles the permit. Without it the permit counts as lost after its
        # `hold`, so emit one also for an action that failed half-way (outcome: failure).
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        event = {"id": action, "time": now, "uid": uid, "api": "sms.send", "outcome": "success", **permit}
        producer.produce(topic, json.dumps(event), key=uid, on_delivery=lambda error, _: error and failed.append(error))
        producer.poll(0)
        done += 1
    producer.flush()
    if failed:
        raise SystemExit(f"{len(failed)} events were not written: {failed[0]}")
    print(f"done {done}")


if __name__ == "__main__":
    main()
