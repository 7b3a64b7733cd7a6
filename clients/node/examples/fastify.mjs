// A shop in Fastify: coupons are under a strict limit, so each asks for a permit before it is redeemed.
import Fastify from 'fastify';
import { Client, Emitter, header, tallygateFastify } from 'tallygate';

const { DECISIONS = 'http://127.0.0.1:8080', KAFKA = '127.0.0.1:9092', PREFIX, PORT = '8000' } = process.env;
const client = new Client(DECISIONS);
const emitter = new Emitter({ brokers: KAFKA.split(','), prefix: PREFIX, name: 'shop' });

const app = Fastify({ forceCloseConnections: true });
app.register(tallygateFastify, { client, emitter, uid: header('X-User'), admit: (request) => request.method === 'POST' });
app.get('/search', async () => 'found\n');
app.post('/coupons/:coupon', async () => 'redeemed\n');

await app.listen({ port: Number(PORT) });
process.once('SIGTERM', () => app.close().then(() => emitter.close()));
