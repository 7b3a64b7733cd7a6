// It imports nothing: a program compiles with it whether or not it has @types/node.
type Value = string | number | boolean | bigint | null | undefined;
type Attrs = Record<string, Value>;

/** Where messages go: `console`, pino, winston and others. */
export interface Logger {
  info(message: string): void;
  error(message: string): void;
}

/** Who acts. A caller that names nobody on purpose says `uid: null`. */
export interface Who {
  uid?: string | number | bigint | null;
  ip?: string | null;
  attrs?: Attrs;
}

export interface Check extends Who {
  /** How long the check may wait for its turn if it is throttled, in ms. The timeout begins behind it. */
  wait?: number;
  /** What holds while nobody answers; default: the client's. */
  fail?: 'open' | 'closed';
  /** ms; default: the client's. */
  timeout?: number;
}

export interface Wish extends Check {
  /** The event's cost at most; default 1. */
  cost?: number;
  /** Names this one action: asked again with it, the request gets the same permit. Default: a UUID. */
  id?: string | number | bigint;
}

export interface ClientOptions {
  /** What checks answer while the decision server does not: default `open`, allowed. */
  fail?: 'open' | 'closed';
  /** ms that a check takes at most; default 50. */
  timeout?: number;
  /** What admit answers while the decision server does not: default `closed`, denied. */
  admitFail?: 'open' | 'closed';
  /** ms that admit takes at most; default 1000. */
  admitTimeout?: number;
  /** A credential with the role service, for permits from a server that is not on loopback. */
  token?: string | (() => string);
  /** Options of an Agent of node:https: certificates as `ca`, `cert`, `key`, … */
  tls?: object;
  /** So many failures in a row, and questions are answered at once for a second; default 5. */
  breaker?: number;
  logger?: Logger;
}

/** Asks the decision server. */
export class Client {
  constructor(url?: string, options?: ClientOptions);
  /** May someone use an API now? Rejects only for wrong arguments. */
  check(api: string, who?: Check): Promise<Decision>;
  /** Asks for a permit, under strict limits too. Rejects only for wrong arguments. */
  admit(api: string, who?: Wish): Promise<Permit>;
  stats(): { asked: number; denied: number; unanswered: number; refused: number; not_asked: number; unnamed: number };
  /** Ends idle connections. */
  close(): void;
}

export class Decision {
  protected constructor();
  readonly allowed: boolean;
  /** block, challenge, throttle or log, of the verdict that decides. */
  readonly action: string | null;
  /** The rule's name, for logs and metrics; callers may see only `public`. */
  readonly rule: string | null;
  readonly public: string | null;
  readonly limit: number | null;
  /** How much of the limit is left, and in how many seconds all of it is: of permits. */
  readonly remaining: number | null;
  readonly reset: number | null;
  /** Whole seconds until it is worth asking again; null when nobody knows. */
  readonly retryAfter: number | null;
  readonly until: Date | null;
  /** Denied since nobody knows whether a limit is reached: 503, and not 429. */
  readonly unavailable: boolean;
  /** Why nobody knows. With `allowed`, the client failed open. */
  readonly reason: string | null;
  readonly status: 429 | 503;
  /** Fields of an answer: Retry-After, RateLimit, RateLimit-Policy, Cache-Control. */
  headers(): Record<string, string>;
  /** The body of an answer to a denied request: application/problem+json. */
  problem(): Record<string, unknown>;
}

/** What admit answers. It goes into the action's event: `emit({ …, permit })`. */
export class Permit extends Decision {
  readonly permit: string | undefined;
  readonly permit_at: string | Record<string, string> | undefined;
  /** The action has ended. False if the server could not be told; it never rejects. */
  done(outcome?: string): Promise<boolean>;
  /** The action did not happen, and has no event. */
  cancel(): Promise<boolean>;
}

export interface Event extends Who {
  api: string;
  outcome?: string | null;
  cost?: number | null;
  refunds?: string | number | bigint | null;
  /** Default: a UUID. The same id twice counts once. */
  id?: string | number | bigint | null;
  /** A Date, Unix milliseconds, or RFC 3339 with an offset; default: now. */
  time?: Date | number | string;
  permit?: Permit | string | null;
  permit_at?: string | Record<string, string>;
}

export interface EmitterOptions {
  brokers: string[];
  /** Of the installation; default `tallygate`. */
  prefix?: string;
  /** Default: the prefix and `.events`. */
  topic?: string;
  /** The application's name: it is told where events are misplaced, and it is Kafka's client id. */
  name?: string;
  clientId?: string;
  /** As kafkajs takes them. */
  ssl?: boolean | object;
  sasl?: object;
  /** How many events, and bytes of them, may wait; default 100,000 and 64 MiB. Others are dropped. */
  maxEvents?: number;
  maxBytes?: number;
  /** How long an event waits for others, in ms; default 2. */
  linger?: number;
  logger?: Logger;
  /** The module kafkajs, where it cannot be found by itself, as in bundles. */
  kafkajs?: unknown;
}

type Reason = 'invalid' | 'queue_full' | 'closed' | 'refused' | 'undelivered';
type Kind = 'auth' | 'topic' | 'tls' | 'replicas' | 'refused' | 'other' | 'unreachable';

/** Sends events to Kafka, and never makes the application wait. */
export class Emitter {
  constructor(options: EmitterOptions);
  /** Queues an event; false if it was dropped. Throws a TypeError for what is no event. */
  emit(event: Event, more?: { traceparent?: string }): boolean;
  stats(): { sent: number; queued: number; dropped: Record<Reason, number>; errors: Record<Kind, number> };
  /** Waits until all that was emitted is sent or dropped; false after the timeout, in ms. */
  flush(timeout?: number): Promise<boolean>;
  /** Sends what is left, and ends. False if the time was over first. */
  close(timeout?: number): Promise<boolean>;
}

/** Options of the middleware: `Req` and `Res` are the framework's request and response. */
export interface Options<Req = any, Res = any> {
  /** Asked before each request; without one nothing is denied. */
  client?: Client;
  /** Gets an event of each request that was let in. */
  emitter?: Emitter;
  /** Who sends a request; at least one of these three. */
  uid?: (request: Req) => Who['uid'] | symbol | Promise<Who['uid'] | symbol>;
  ip?: (request: Req) => string | null | undefined | Promise<string | null | undefined>;
  attrs?: Record<string, (request: Req) => Value | symbol | Promise<Value | symbol>>;
  /** Names a request; default: by its route's template where that is known, else by its path. */
  api?: (request: Req) => string;
  /** Requests that are let in as if there were no middleware. */
  skip?: (request: Req) => boolean;
  /** Asks for permits, under strict limits: for all requests, for some, or for APIs such as `sms.*`. */
  admit?: boolean | ((request: Req) => boolean | Promise<boolean>) | readonly string[];
  wait?: number;
  fail?: 'open' | 'closed';
  /** Emits all that is denied, with the outcome `limited`; without it some of it. */
  emitDenied?: boolean;
  /** Sees each event last; false drops it. */
  event?: (event: Event, request: Req) => boolean | void;
  /** Answers denied requests instead. */
  denied?: (request: Req, response: Res, decision: Decision) => void | Promise<void>;
  logger?: Logger;
}

/** Middleware for Express, and for `node:http` with a `next`. */
export function tallygateExpress<Req = any, Res = any>(
  options: Options<Req, Res>,
): (request: Req, response: Res, next: (error?: unknown) => void) => void;

/** A plugin for Fastify: `app.register(tallygateFastify, options)`. */
export function tallygateFastify(app: any, options: Options): Promise<void>;

/** For `uid` and `attrs`: a header that your proxy sets, and removes from what clients send. */
export function header(name: string): (request: any) => string | symbol;

/** Adds to the event that the middleware emits for the current request. */
export function note(what: { attrs?: Attrs; cost?: number; outcome?: string; id?: string | number | bigint }, request?: object): void;

/** The one form of a key that people type, such as a coupon code: without space around it, in lower case, in NFC. */
export function normalizeKey(key: string): string;

/** Names of requests, as in the reference: `GET /orders/17` is `get.orders.17`. */
export function pathAPI(method: string, target: string): string;
/** `GET /orders/:id` is `get.orders.id`. */
export function templateAPI(method: string, template: string): string;
/** The outcome of an answer's status. */
export function statusOutcome(status: number): 'success' | 'denied' | 'limited' | 'failure';
