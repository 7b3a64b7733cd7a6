import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import * as tallygate from '../index.js';

const read = (path) => readFileSync(new URL('../' + path, import.meta.url), 'utf8');

test('what is declared is what is exported', () => {
  const declared = [...read('index.d.ts').matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(tallygate).sort());
});

test('the package stays small', () => {
  const code = (path) => read(path).split('\n').filter((line) => !/^\s*(\/\/.*)?$/.test(line)).length;
  const paths = ['index.js', ...readdirSync(new URL('../src', import.meta.url)).map((name) => 'src/' + name)];
  const lines = paths.reduce((sum, path) => sum + code(path), 0);
  assert.ok(lines < 1000, `${lines} lines of code`);
});
