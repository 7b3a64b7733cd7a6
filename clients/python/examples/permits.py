"""A strict limit: a permit before the action, and an event behind it.

    python permits.py http://127.0.0.1:8080 BROKERS TOPIC COUNT UID

tries to send COUNT messages of one user. The decision server grants permits by the rules, never
more than a strict limit allows, however many programs ask at once:

    - {name: messages, match: {api: sms.send, outcome: success}, limit: 10, per: day, strict: true}
"""

import sys
import time
import uuid

import tallygate


class NotSent(Exception):
    """The action did not happen."""


def send_message(number: int) -> None:
    """The action itself. The third one does not happen, to show what to do then."""
    if number == 3:
        raise NotSent


def send(client: tallygate.Client, emitter: tallygate.Emitter, uid: str, number: int) -> bool:
    action = str(uuid.uuid4())  # asked again with it, the request gets the same permit
    permit = client.admit("sms.send", uid=uid, id=action)
    for _ in range(60):  # in doubt nobody knows whether the limit is reached
        if permit or not permit.decision.in_doubt:
            break
        time.sleep(1)
        permit = client.admit("sms.send", uid=uid, id=action)
    if not permit:  # permit.decision.retry_after says in how many seconds to come back
        return False
    try:
        send_message(number)
    except NotSent:
        permit.cancel()  # it is free again, and there is no event
        return False
    emitter.emit(api="sms.send", uid=uid, outcome="success", id=action, permit=permit)
    permit.done()
    return True


def main() -> None:
    url, brokers, topic, count, uid = sys.argv[1:]
    client = tallygate.Client(url, timeout=1)
    with tallygate.Emitter(brokers, topic) as emitter:
        done = sum(send(client, emitter, uid, number) for number in range(1, int(count) + 1))
        if not emitter.flush():
            raise SystemExit(f"events were not written: {emitter.stats()}")
    print(f"done {done}")


if __name__ == "__main__":
    main()
