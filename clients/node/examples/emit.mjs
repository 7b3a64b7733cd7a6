// Events from Node:
//
//   node emit.mjs BROKERS TOPIC COUNT UID...
//
// emits COUNT events of each user.
import { Emitter } from 'tallygate';

const [brokers, topic, count, ...uids] = process.argv.slice(2);
const emitter = new Emitter({ brokers: brokers.split(','), topic, name: 'shop' });

for (const uid of uids) {
  for (let i = 0; i < Number(count); i++) {
    emitter.emit({ uid, api: 'search.query', outcome: 'success', attrs: { device: 'd1' } });
  }
}
const all = await emitter.close(30_000);
const { sent, dropped } = emitter.stats();
console.log(`sent ${sent}`);
if (!all || sent < Number(count) * uids.length) throw new Error(JSON.stringify(dropped));
