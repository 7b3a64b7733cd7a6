// A shop in Express: each search is checked before it runs, and is an event after it.
import express from 'express';
import { Client, Emitter, header, note, tallygateExpress } from 'tallygate';

const { DECISIONS = 'http://127.0.0.1:8080', KAFKA = '127.0.0.1:9092', PREFIX, PORT = '8000' } = process.env;
const client = new Client(DECISIONS);
const emitter = new Emitter({ brokers: KAFKA.split(','), prefix: PREFIX, name: 'shop' });

const app = express();
app.use(tallygateExpress({ client, emitter, uid: header('X-User') }));
app.get('/search', (request, response) => {
  note({ attrs: { words: String(request.query.q ?? '').split(' ').length } });
  response.send('found\n');
});

const server = app.listen(Number(PORT), '127.0.0.1');
process.once('SIGTERM', () => server.close(() => emitter.close()));
