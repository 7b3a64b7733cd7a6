// The Emitter sends events to Kafka, beside whatever the application does.
import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { known, record, string, wrong } from './event.js';
import { Seldom, logTo } from './seldom.js';

const batchEvents = 500;
const batchBytes = 512 << 10; // Kafka takes 1 MiB by default
const firstWait = 100; // ms between two attempts; it doubles
const longestWait = 5000;

const options = ['brokers', 'prefix', 'topic', 'name', 'clientId', 'ssl', 'sasl', 'maxEvents', 'maxBytes', 'linger', 'logger', 'kafkajs'];

// What Kafka's errors mean, by the kinds that Go's emit has. A record that is refused is dropped;
// whatever else fails is tried again.
const kinds = {
  refused: ['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE', 'INVALID_RECORD', 'POLICY_VIOLATION', 'INVALID_TIMESTAMP'],
  auth: ['SASL_AUTHENTICATION_FAILED', 'UNSUPPORTED_SASL_MECHANISM', 'ILLEGAL_SASL_STATE', 'TOPIC_AUTHORIZATION_FAILED', 'CLUSTER_AUTHORIZATION_FAILED', 'SECURITY_DISABLED'],
  topic: ['UNKNOWN_TOPIC_OR_PARTITION', 'INVALID_TOPIC_EXCEPTION'],
  replicas: ['NOT_ENOUGH_REPLICAS', 'NOT_ENOUGH_REPLICAS_AFTER_APPEND', 'LEADER_NOT_AVAILABLE', 'NOT_LEADER_FOR_PARTITION'],
};

const advice = {
  auth: 'check sasl, and that the user may write to the topic: tallygate doctor --acls lists the rights',
  topic: 'check prefix and topic; an aggregator creates its topics when it starts',
  replicas: 'start the brokers that are away',
  tls: "check ssl, the brokers' certificates, and whether that port has TLS",
  unreachable: 'check brokers and ssl, and the addresses that the brokers advertise',
  queue_full: 'find out why Kafka takes events more slowly than they come; maxEvents and maxBytes are how many may wait',
  closed: 'call close when nothing emits any more',
  refused: "see the topic's max.message.bytes and policies",
  undelivered: 'give close more time; they were waiting for Kafka when it ended',
};

function kindOf(error) {
  for (let e = error; e; e = e.cause) {
    for (const [kind, types] of Object.entries(kinds)) if (types.includes(e.type)) return kind;
    if (e.name === 'KafkaJSSASLAuthenticationError') return 'auth';
  }
  if (error.name === 'KafkaJSProtocolError') return 'other';
  return /certificate|\b(ssl|tls)\b/i.test(error.message) ? 'tls' : 'unreachable'; // kafkajs has only the text
}

export class Emitter {
  #settings;
  #kafka;
  #partitioner;
  #producer;
  #instance = randomBytes(16);
  #sequences = new Map(); // of the records of each partition
  #queue = [];
  #bytes = 0;
  #accepted = 0; // events, since the start
  #settled = 0; // those of them that are sent, or dropped
  #waiting = []; // whoever waits until so many are settled
  #sent = 0;
  #dropped = { invalid: 0, queue_full: 0, closed: 0, refused: 0, undelivered: 0 };
  #errors = { auth: 0, topic: 0, tls: 0, replicas: 0, refused: 0, other: 0, unreachable: 0 };
  #outage = ''; // the kind that was told last; '': Kafka is well
  #tell = {};
  #wake = () => {};
  #closed = false;
  #over = new AbortController(); // close's time is over
  #running;

  constructor(given) {
    known(given, options, "Emitter's options");
    const { prefix = 'tallygate', name } = given;
    this.#settings = {
      topic: given.topic ?? prefix + '.events', maxEvents: given.maxEvents ?? 100_000,
      maxBytes: given.maxBytes ?? 64 << 20, linger: given.linger ?? 2, logger: logTo(given.logger),
      headers: { 'tg-i': this.#instance, ...(name && { 'tg-c': string('name', name).slice(0, 64) }) },
    };
    if (!Array.isArray(given.brokers) || given.brokers.length === 0 || given.brokers.some((b) => !/^.+:\d+$/.test(b))) {
      throw wrong("brokers is a list of Kafka's addresses, such as ['kafka:9092']");
    }
    const { Kafka, Partitioners } = given.kafkajs ?? requireKafkaJS();
    this.#partitioner = Partitioners.DefaultPartitioner();
    this.#kafka = new Kafka({
      brokers: given.brokers, clientId: given.clientId ?? name ?? 'tallygate-emit', ssl: given.ssl, sasl: given.sasl,
      logLevel: 0, // what matters is told here
      connectionTimeout: 3000, requestTimeout: 10_000,
      retry: { retries: 2, initialRetryTime: 100, maxRetryTime: 1000 },
    });
    this.#running = this.#run();
  }

  // emit queues an event, and returns whether there was room. It throws only for what is no event. traceparent
  // is the W3C trace context of the request.
  emit(event, { traceparent } = {}) {
    let made;
    try {
      made = record(event);
    } catch (error) {
      this.#dropped.invalid++;
      throw error;
    }
    const bytes = Buffer.byteLength(made.value) + 100; // and what is around it in Kafka
    if (this.#closed) return this.#drop('closed', 1);
    const { maxEvents, maxBytes, headers } = this.#settings;
    if (this.#accepted - this.#settled >= maxEvents || this.#bytes + bytes > maxBytes) return this.#drop('queue_full', 1);
    this.#queue.push({ ...made, bytes, headers: { ...headers, ...(traceparent && { traceparent: string('traceparent', traceparent) }) } });
    this.#bytes += bytes;
    this.#accepted++;
    this.#wake();
    return true;
  }

  stats() {
    return {
      sent: this.#sent, queued: this.#accepted - this.#settled, dropped: { ...this.#dropped }, errors: { ...this.#errors },
    };
  }

  // flush waits until all that was emitted before it is sent or dropped, and returns whether it was.
  flush(timeout = 5000) {
    if (this.#settled >= this.#accepted) return Promise.resolve(true);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, timeout, false);
      this.#waiting.push({ until: this.#accepted, done: () => { clearTimeout(timer); resolve(true); } });
    });
  }

  // close sends what waits, for so long at most, and returns whether all of it was sent or dropped.
  async close(timeout = 5000) {
    this.#closed = true;
    this.#wake();
    const all = await this.flush(timeout);
    this.#over.abort();
    if (!all) this.#drop('undelivered', this.#accepted - this.#settled);
    for (const line of Object.values(this.#tell)) line.end();
    await this.#disconnect();
    if (all) await this.#running;
    return all;
  }

  async #run() {
    while (!this.#over.signal.aborted) {
      if (this.#queue.length === 0) {
        if (this.#closed) return;
        await new Promise((resolve) => { this.#wake = resolve; });
        if (!this.#closed) await this.#pause(this.#settings.linger);
        continue;
      }
      let bytes = 0;
      let n = 0;
      while (n < batchEvents && n < this.#queue.length && (n === 0 || bytes + this.#queue[n].bytes <= batchBytes)) {
        bytes += this.#queue[n++].bytes;
      }
      await this.#deliver(this.#queue.splice(0, n));
    }
    await this.#disconnect(); // if it was made while close ended
  }

  // deliver sends some records until Kafka has them, or refuses them for good. Nothing newer is sent
  // meanwhile: a partition takes records by their numbers.
  async #deliver(messages) {
    for (let wait = firstWait; !this.#over.signal.aborted; wait = Math.min(2 * wait, longestWait)) {
      try {
        this.#producer ??= await this.#connect();
        const written = await this.#producer.send({ topic: this.#settings.topic, acks: -1, messages });
        // kafkajs forgets a partition whose leader moves, while it tries again, to a broker that is done.
        const places = new Set(written.map(({ partition }) => partition));
        if (!messages.every(({ partition }) => places.has(partition))) throw new Error('no answer for some partitions');
        this.#sent += messages.length;
        this.#well();
        return this.#settle(messages);
      } catch (error) {
        const kind = kindOf(error);
        // A new producer: what this one has counted of its records need not be what the broker has. The
        // headers keep records that are written twice from counting twice.
        await this.#disconnect();
        if (this.#over.signal.aborted) return undefined;
        if (kind !== 'refused') {
          this.#failed(kind, error);
          await this.#pause(wait);
        } else if (messages.length > 1) { // one of them
          await this.#deliver(messages.slice(0, messages.length >> 1));
          return this.#deliver(messages.slice(messages.length >> 1));
        } else {
          this.#errors.refused++;
          this.#drop('refused', 1, error);
          return this.#settle(messages);
        }
      }
    }
  }

  async #connect() {
    const producer = this.#kafka.producer({
      idempotent: true, maxInFlightRequests: 1, allowAutoTopicCreation: false,
      createPartitioner: () => (record) => this.#place(record),
    });
    try {
      await producer.connect();
      return producer;
    } catch (error) {
      await producer.disconnect().catch(() => {});
      throw error;
    }
  }

  async #disconnect() {
    const producer = this.#producer;
    this.#producer = undefined;
    await producer?.disconnect().catch(() => {});
  }

  // place gives a record its partition and its number there, once: a record that is sent again has the
  // same, and is told apart by that. See the reference, "Exact deduplication".
  #place({ topic, partitionMetadata, message }) {
    if (message.partition === undefined) {
      message.partition = this.#partitioner({ topic, partitionMetadata, message });
      const number = (this.#sequences.get(message.partition) ?? 0) + 1;
      this.#sequences.set(message.partition, number);
      const { headers } = message;
      headers['tg-s'] = Buffer.alloc(8);
      headers['tg-s'].writeBigUInt64BE(BigInt(number));
      headers['tg-p'] = Buffer.alloc(4);
      headers['tg-p'].writeUInt32BE(message.partition);
    }
    return message.partition;
  }

  #settle(messages) {
    if (this.#over.signal.aborted && this.#dropped.undelivered > 0) return; // they were counted as that
    this.#settled += messages.length;
    for (const { bytes } of messages) this.#bytes -= bytes;
    this.#waiting = this.#waiting.filter(({ until, done }) => until > this.#settled || done());
  }

  // pause waits, but not beyond the end.
  async #pause(ms) {
    if (ms > 0) await sleep(ms, undefined, { signal: this.#over.signal }).catch(() => {});
  }

  #well() {
    if (this.#outage !== '') this.#settings.logger.info('events reach Kafka again');
    this.#outage = '';
  }

  #failed(kind, error) {
    this.#errors[kind]++;
    if (kind === this.#outage) return;
    const what = advice[kind] ? `; ${advice[kind]}` : '';
    const text = `events cannot be sent to Kafka; they wait, and it is tried again: ${kind}: ${error.message}${what}`;
    if (this.#line(kind).sayNow(() => text)) this.#outage = kind;
  }

  #drop(reason, events, error) {
    this.#dropped[reason] += events;
    const because = error ? `: ${error.message}` : '';
    this.#line(reason, events).say((n) => `${n} events are dropped, and will not be counted: ${reason}${because}; ${advice[reason]}`);
    return false;
  }

  #line(of, n = 1) {
    this.#tell[of] ??= new Seldom(this.#settings.logger);
    return this.#tell[of].add(n);
  }
}

function requireKafkaJS() {
  try {
    return createRequire(import.meta.url)('kafkajs');
  } catch (cause) {
    throw new Error('tallygate: the Emitter needs kafkajs: npm install kafkajs', { cause });
  }
}
