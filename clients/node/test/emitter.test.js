import assert from 'node:assert/strict';
import { test } from 'node:test';
import kafkajs from 'kafkajs';
import { Emitter } from '../index.js';

// Broker is a Kafka of four partitions, in memory, behind kafkajs' interface. does says what a send does: nothing, or
// it throws.
class Broker {
  constructor(does = () => {}) {
    Object.assign(this, { does, records: [], sends: 0, connected: 0, disconnected: 0, made: [] });
    const broker = this;
    this.kafkajs = {
      Partitioners: kafkajs.Partitioners,
      Kafka: class {
        constructor(options) {
          broker.options = options;
        }

        producer(options) {
          broker.made.push(options);
          return broker.producer(options);
        }
      },
    };
  }

  producer({ createPartitioner }) {
    const place = createPartitioner();
    const partitionMetadata = [0, 1, 2, 3].map((partitionId) => ({ partitionId, leader: 1 }));
    return {
      connect: async () => { this.connected++; },
      disconnect: async () => { this.disconnected++; },
      send: async ({ topic, acks, messages }) => {
        this.sends++;
        const placed = messages.map((message) => ({ topic, acks, ...message, partition: place({ topic, partitionMetadata, message }), headers: { ...message.headers } }));
        const error = this.does(placed, this.sends);
        if (!error || error.written) this.records.push(...placed);
        if (error) throw error;
        return [...new Set(placed.map(({ partition }) => partition))].slice(this.forgets ?? 0).map((partition) => ({ partition, errorCode: 0 }));
      },
    };
  }
}

const logger = () => {
  const lines = [];
  return { lines, info: (m) => lines.push('info ' + m), error: (m) => lines.push('error ' + m) };
};

const kafkaError = (type, more) => Object.assign(new Error(type), { name: 'KafkaJSProtocolError', type, ...more });
const event = (uid) => ({ uid, api: 'search.query', outcome: 'success' });

function emitter(broker, more = {}) {
  const log = logger();
  return [new Emitter({ brokers: ['kafka:9092'], kafkajs: broker.kafkajs, logger: log, linger: 0, ...more }), log];
}

test('events reach Kafka, once each, in their places', async () => {
  const broker = new Broker();
  const [e] = emitter(broker, { name: 'shop', prefix: 'test' });
  for (let i = 0; i < 2000; i++) assert.equal(e.emit(event(String(i % 50))), true);
  assert.equal(await e.close(), true);
  assert.deepEqual(e.stats(), {
    sent: 2000, queued: 0, dropped: { invalid: 0, queue_full: 0, closed: 0, refused: 0, undelivered: 0 },
    errors: { auth: 0, topic: 0, tls: 0, replicas: 0, refused: 0, other: 0, unreachable: 0 },
  });
  assert.equal(broker.records.length, 2000);
  assert.equal(broker.disconnected, 1);
  const [{ idempotent, allowAutoTopicCreation, maxInFlightRequests }] = broker.made;
  assert.deepEqual({ idempotent, allowAutoTopicCreation, maxInFlightRequests }, { idempotent: true, allowAutoTopicCreation: false, maxInFlightRequests: 1 });
  const last = {};
  for (const { topic, acks, key, value, partition, headers } of broker.records) {
    assert.deepEqual([topic, acks, key], ['test.events', -1, JSON.parse(value).uid]);
    const number = headers['tg-s'].readBigUInt64BE();
    assert.equal(number, (last[partition] ?? 0n) + 1n); // without a gap
    last[partition] = number;
    assert.deepEqual([headers['tg-p'].readUInt32BE(), headers['tg-c'], headers['tg-i'].length], [partition, 'shop', 16]);
  }
});

test('an event has the trace context of its request', async () => {
  const broker = new Broker();
  const [e] = emitter(broker);
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  assert.equal(e.emit(event('1'), { traceparent }), true);
  assert.equal(e.emit(event('1'), {}), true);
  assert.throws(() => e.emit(event('1'), { traceparent: 1 }), TypeError);
  assert.equal(await e.close(), true);
  assert.deepEqual(broker.records.map(({ headers }) => headers.traceparent), [traceparent, undefined]);
});

test('a full queue drops, and neither waits nor throws', async () => {
  let release;
  const broker = new Broker();
  const [e, log] = emitter(broker, { maxEvents: 10 });
  broker.producer = () => ({ connect: () => new Promise((resolve) => { release = resolve; }), disconnect: async () => {}, send: async () => [{ partition: undefined }] });
  const taken = Array.from({ length: 15 }, () => e.emit(event('a')));
  assert.deepEqual(taken.filter(Boolean).length, 10);
  assert.equal(e.stats().dropped.queue_full, 5);
  await new Promise(setImmediate);
  release();
  assert.equal(await e.close(), true);
  assert.equal(e.stats().sent, 10);
  assert.match(log.lines.join('\n'), /error tallygate: 5 events are dropped, and will not be counted: queue_full; find out why/);
});

test('bytes bound the queue, too', async () => {
  const [e] = emitter(new Broker(), { maxBytes: 1000 });
  assert.equal(e.emit({ ...event('a'), attrs: { x: 'y'.repeat(700) } }), true);
  assert.equal(e.emit({ ...event('a'), attrs: { x: 'y'.repeat(700) } }), false);
  await e.flush();
  assert.equal(e.emit({ ...event('a'), attrs: { x: 'y'.repeat(700) } }), true); // there is room again
  await e.close();
});

test('while Kafka is away events wait, and the log says so once', async () => {
  const broker = new Broker((_, sends) => (sends <= 3 ? Object.assign(new Error('connect ECONNREFUSED'), { name: 'KafkaJSConnectionError' }) : undefined));
  const [e, log] = emitter(broker);
  e.emit(event('a'));
  assert.equal(await e.flush(), true);
  assert.deepEqual(log.lines, [
    'error tallygate: events cannot be sent to Kafka; they wait, and it is tried again: unreachable: connect ECONNREFUSED; check brokers and ssl, and the addresses that the brokers advertise',
    'info tallygate: events reach Kafka again',
  ]);
  assert.equal(e.stats().errors.unreachable, 3);
  assert.equal(broker.connected, 4);
  await e.close();
});

// Kafka may have written a batch whose answer is lost. The aggregator drops the second by its number.
test('what is sent again has the same place and number', async () => {
  const broker = new Broker((_, sends) => (sends === 1 ? kafkaError('REQUEST_TIMED_OUT', { written: true }) : undefined));
  const [e] = emitter(broker);
  for (const uid of ['a', 'b', 'c']) e.emit(event(uid));
  e.emit({ uid: null, api: 'cron.run' });
  await e.close();
  const numbers = broker.records.map(({ partition, headers }) => `${partition}/${headers['tg-s'].readBigUInt64BE()}`);
  assert.equal(numbers.length, 8);
  assert.deepEqual(numbers.slice(0, 4), numbers.slice(4));
  assert.equal(new Set(numbers).size, 4);
});

// Its client may forget partitions whose leaders move.
test('what nobody answered for is sent again', async () => {
  const broker = new Broker((_, sends) => { broker.forgets = sends === 1 ? 1 : 0; });
  const [e] = emitter(broker);
  for (let i = 0; i < 20; i++) e.emit(event(String(i)));
  await e.close();
  assert.deepEqual([broker.sends, broker.made.length, e.stats().sent], [2, 2, 20]);
});

test('what Kafka refuses is dropped, and nothing else', async () => {
  const broker = new Broker((placed) => (placed.some(({ key }) => key === 'bad') ? kafkaError('MESSAGE_TOO_LARGE') : undefined));
  const [e, log] = emitter(broker);
  for (const uid of ['a', 'b', 'bad', 'c', 'd']) e.emit(event(uid));
  assert.equal(await e.close(), true);
  assert.deepEqual(broker.records.map(({ key }) => key), ['a', 'b', 'c', 'd']);
  assert.deepEqual([e.stats().sent, e.stats().dropped.refused, e.stats().errors.refused], [4, 1, 1]);
  assert.match(log.lines.join('\n'), /1 events are dropped.*refused: MESSAGE_TOO_LARGE; see the topic's max.message.bytes/);
});

test('kinds of errors', async () => {
  for (const [error, kind] of [
    [kafkaError('TOPIC_AUTHORIZATION_FAILED'), 'auth'],
    [Object.assign(new Error('no'), { name: 'KafkaJSNumberOfRetriesExceeded', cause: kafkaError('UNKNOWN_TOPIC_OR_PARTITION') }), 'topic'],
    [kafkaError('NOT_ENOUGH_REPLICAS'), 'replicas'],
    [kafkaError('OUT_OF_ORDER_SEQUENCE_NUMBER'), 'other'],
    [new Error('Connection error: self-signed certificate'), 'tls'],
  ]) {
    const broker = new Broker((_, sends) => (sends === 1 ? error : undefined));
    const [e] = emitter(broker);
    e.emit(event('a'));
    await e.close();
    assert.equal(e.stats().errors[kind], 1, kind);
    assert.equal(e.stats().sent, 1);
  }
});

test('close ends in time, and says what is lost', async () => {
  const broker = new Broker(() => new Error('away'));
  const [e, log] = emitter(broker);
  e.emit(event('a'));
  e.emit(event('b'));
  assert.equal(await e.close(50), false);
  assert.equal(e.emit(event('c')), false);
  assert.deepEqual([e.stats().dropped.undelivered, e.stats().dropped.closed], [2, 1]);
  assert.match(log.lines.join('\n'), /2 events are dropped.*undelivered; give close more time/);
});

test('wrong arguments throw, and are counted', async () => {
  const [e] = emitter(new Broker());
  assert.throws(() => e.emit({ api: 'b' }), TypeError);
  assert.equal(e.stats().dropped.invalid, 1);
  await e.close();
  for (const [options, what] of [
    [{}, /brokers is a list/], [{ brokers: ['kafka'] }, /brokers is a list/], [{ brokers: [] }, /brokers is a list/],
    [{ brokers: ['kafka:9092'], broker: 1 }, /Emitter's options has no "broker"/],
  ]) assert.throws(() => new Emitter(options), what);
});

test('a log that fails harms nothing', async () => {
  const fails = () => { throw new Error('disk full'); };
  const broker = new Broker((_, sends) => (sends === 1 ? new Error('away') : undefined));
  const [e] = emitter(broker, { logger: { info: fails, error: fails } });
  e.emit(event('a'));
  assert.equal(await e.close(), true);
  assert.equal(broker.records.length, 1);
  assert.throws(() => emitter(broker, { logger: { log() {} } }), /logger has the functions info and error/);
});
