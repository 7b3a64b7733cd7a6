// The tables of testdata/vectors: names, values, places and records are the same in all languages.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import kafkajs from 'kafkajs';
import { normalizeKey } from '../index.js';
import { canonicalIP, canonicalText, canonicalUID } from '../src/canonical.js';
import { record } from '../src/event.js';
import { pathAPI, requestAPI, statusOutcome, templateAPI } from '../src/names.js';
import { table } from './tables.js';

test('names of requests', () => {
  const rows = table('vectors/names.json');
  assert.ok(rows.length >= 40);
  for (const { method, target, name } of rows) {
    assert.equal(pathAPI(method, target), name, `${method} ${target}`);
    const bytes = Buffer.from(target).toString('latin1'); // as node:http gives it
    assert.equal(requestAPI(method, bytes), name, `${method} ${target}, as bytes`);
  }
});

test('names of routes', () => {
  const rows = table('vectors/templates.json');
  assert.ok(rows.length >= 10);
  for (const { method, template, name } of rows) assert.equal(templateAPI(method, template), name, `${method} ${template}`);
});

test('outcomes of statuses', () => {
  const rows = Object.entries(table('outcomes.json').http);
  assert.ok(rows.length >= 30);
  for (const [status, outcome] of rows) assert.equal(statusOutcome(Number(status)), outcome, status);
});

test('canonical values', () => {
  const of = { uid: canonicalUID, text: canonicalText, ip: canonicalIP };
  const rows = table('vectors/canonical.json');
  assert.ok(rows.length >= 30);
  for (const row of rows) {
    const given = row.in_hex === undefined ? (row.in ?? '') : Buffer.from(row.in_hex, 'hex');
    assert.equal(of[row.kind](given), row.out, `${row.kind} of ${JSON.stringify(row)}`);
  }
});

test('keys that people type', () => {
  const rows = table('vectors/keys.json');
  assert.ok(rows.length >= 30);
  for (const row of rows) assert.equal(normalizeKey(row.in), row.out, JSON.stringify(row));
});

test('halves of surrogate pairs', () => {
  assert.equal(canonicalUID('a\ud800b'), 'a\ufffdb');
  assert.equal(canonicalText('\udc00'), '\ufffd');
});

test('partitions', () => {
  const place = kafkajs.Partitioners.DefaultPartitioner();
  const rows = table('vectors/partitions.json');
  assert.ok(rows.length >= 40);
  for (const { key, partitions, partition } of rows) {
    const partitionMetadata = Array.from({ length: partitions }, (_, i) => ({ partitionId: i, leader: 1 }));
    assert.equal(place({ topic: 't', partitionMetadata, message: { key } }), partition, `${key} of ${partitions}`);
  }
});

test('records', () => {
  const rows = table('vectors/events.json');
  assert.ok(rows.length >= 5);
  for (const row of rows) {
    const { key, value } = record(row.event);
    assert.equal(key ?? '', row.key);
    assert.deepEqual(JSON.parse(value), row.value);
  }
});
