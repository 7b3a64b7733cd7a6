// Reads the tables that the tests of all clients share.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const folder = process.env.TALLYGATE_TESTDATA
  ? pathToFileURL(process.env.TALLYGATE_TESTDATA + '/')
  : new URL('../../../testdata/', import.meta.url);

export const table = (name) => JSON.parse(readFileSync(new URL(name, folder), 'utf8'));
