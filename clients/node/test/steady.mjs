// For the test of a Kafka that is killed: emits events of a hundred users until its input ends, says so
// when their way to Kafka ends and begins, and at last how many there were.
import { Emitter } from 'tallygate';

const [broker, topic] = process.argv.slice(2);
const logger = { info: (line) => console.log(line), error: (line) => console.log(line) };
const emitter = new Emitter({ brokers: [broker], topic, logger });
let n = 0;
const timer = setInterval(() => {
  for (let i = 0; i < 10; i++) emitter.emit({ id: `e${n}`, uid: `u${n++ % 100}`, api: 'search.query' });
}, 5);
emitter.emit({ id: `e${n}`, uid: `u${n++ % 100}`, api: 'search.query' });
emitter.flush(60_000).then(() => console.log('events come'));
process.stdin.resume().on('end', async () => {
  clearInterval(timer);
  console.log(`all ${await emitter.close(60_000)} emitted ${n} sent ${emitter.stats().sent}`);
});
