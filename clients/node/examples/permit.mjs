// A strict limit from Node: a permit before the action, and an event behind it.
//
//   node permit.mjs http://127.0.0.1:8080 BROKERS TOPIC COUNT UID
//
// tries to send COUNT messages of one user. As many are sent as the rules allow, however many programs
// ask at once.
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, Emitter } from 'tallygate';

const [server, brokers, topic, count, uid] = process.argv.slice(2);
const client = new Client(server);
const emitter = new Emitter({ brokers: brokers.split(','), topic });

// send is the action itself. The third message is not sent, to show what to do then.
async function send(number) {
  if (number === 3) throw new Error('not sent');
}

// message sends one message, if a permit can be had, and returns whether it did.
async function message(number) {
  const permit = await client.admit('sms.send', { uid });
  if (permit.unavailable) { // nobody knows whether the limit is reached
    await sleep(1000);
    return message(number);
  }
  if (!permit.allowed) return false; // permit.retryAfter says in how many seconds to come back
  try {
    await send(number);
  } catch {
    await permit.cancel(); // nothing was done, and there is no event
    return false;
  }
  emitter.emit({ uid, api: 'sms.send', outcome: 'success', permit });
  await permit.done('success');
  return true;
}

let done = 0;
for (let number = 1; number <= Number(count); number++) {
  if (await message(number)) done++;
}
client.close();
if (!await emitter.close(30_000)) throw new Error('events were not written');
console.log(`done ${done}`);
