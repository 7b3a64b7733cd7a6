// The Client asks the decision server.
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { Decision, Permit } from './decision.js';
import { apiOf, costOf, dimensions, idOf, known, wrong } from './event.js';
import { Seldom, logTo } from './seldom.js';

const options = ['fail', 'timeout', 'admitFail', 'admitTimeout', 'token', 'tls', 'breaker', 'logger'];
const asked = ['uid', 'ip', 'attrs', 'wait', 'fail', 'timeout'];
const ends = 3; // attempts to end a permit

// Breaker knows whether asking is worth it: after so many failures in a row it is not for a second, and
// then one question finds out.
class Breaker {
  #failures = 0;
  #until = 0;
  #most;

  constructor(most) {
    this.#most = most;
  }

  get open() {
    if (this.#failures < this.#most) return false;
    if (performance.now() < this.#until) return true;
    this.#until = performance.now() + 1000; // this question is the one
    return false;
  }

  note(failed) {
    this.#failures = failed ? this.#failures + 1 : 0;
    if (failed) this.#until = performance.now() + 1000;
  }
}

export class Client {
  #url;
  #http;
  #agent;
  #settings;
  #stats = { asked: 0, denied: 0, unanswered: 0, refused: 0, not_asked: 0, unnamed: 0 };
  #lines;
  #away = false; // the log has it

  constructor(url = 'http://127.0.0.1:8080', given = {}) {
    known(given, options, "Client's options");
    this.#url = new URL(url);
    if (!['http:', 'https:'].includes(this.#url.protocol)) throw wrong(`the decision server's URL begins with http:// or https://, not ${this.#url.protocol}`);
    this.#http = this.#url.protocol === 'https:' ? https : http;
    this.#agent = new this.#http.Agent({ keepAlive: true, maxSockets: 256, scheduling: 'lifo', ...given.tls });
    const { fail = 'open', timeout = 50, admitFail = 'closed', admitTimeout = 1000, breaker = 5, token } = given;
    const logger = logTo(given.logger);
    this.#settings = {
      token, logger,
      check: { fail: policy(fail), timeout: span(timeout), breaker: new Breaker(breaker) },
      admit: { fail: policy(admitFail), timeout: span(admitTimeout), breaker: new Breaker(breaker) },
    };
    this.#lines = { away: new Seldom(logger), refused: new Seldom(logger) };
  }

  // check asks whether someone may use an API now: of the blocklist, without counting anything. It takes
  // the timeout at most, and rejects only for wrong arguments.
  async check(api, who = {}) {
    known(who, asked, 'a check');
    const answer = await this.#decide('check', question(api, who), who);
    return this.#decided(new Decision({ ...answer, limit: answer.verdicts?.[0]?.limit }));
  }

  // admit asks for a permit, under strict limits too. Its id names the action: asked again with it, the
  // server gives the same permit.
  async admit(api, who = {}) {
    known(who, [...asked, 'cost', 'id'], 'a request for a permit');
    const body = { ...question(api, who), id: who.id === undefined ? randomUUID() : idOf('id', who.id) };
    if (who.cost !== undefined) body.cost = costOf(who.cost);
    const answer = await this.#decide('admit', body, who);
    return this.#decided(new Permit(answer, (path, more) => this.#end(path, more)));
  }

  stats() {
    return { ...this.#stats };
  }

  // close ends the connections that are idle.
  close() {
    this.#agent.destroy();
  }

  #decided(decision) {
    if (!decision.allowed) this.#stats.denied++;
    return decision;
  }

  // decide returns the server's answer, or one that stands for it.
  async #decide(what, body, { fail, timeout, wait }) {
    const settings = this.#settings[what];
    const within = span(timeout ?? settings.timeout) + (wait === undefined ? 0 : span(wait));
    const otherwise = policy(fail ?? settings.fail);
    const allowed = otherwise === 'open';
    const instead = (reason) => ({ allowed, admitted: allowed, in_doubt: true, reason, ...(what === 'admit' && !allowed && { retry_after: 1 }) });
    if (settings.breaker.open) {
      this.#stats.not_asked++;
      return instead('the decision server did not answer lately');
    }
    this.#stats.asked++;
    try {
      const { status, answer } = await this.#ask('/v1/' + what, body, within);
      if (status === 200 && typeof (answer.allowed ?? answer.admitted) === 'boolean') {
        settings.breaker.note(false);
        this.#well();
        return answer;
      }
      if (refuses(status)) return this.#refused(settings, what, status, answer);
      throw new Error(`it answers ${status}: ${answer.detail ?? 'no JSON that is a decision'}`);
    } catch (error) {
      settings.breaker.note(true);
      this.#stats.unanswered++;
      if (!this.#away) this.#away = this.#lines.away.add(1).sayNow(() => `no answer of the decision server: ${error.message}; meanwhile this fails ${otherwise} (${what})`);
      return instead(error.message);
    }
  }

  // refused denies a question that is wrong, whatever fail says: whoever finds out what makes it wrong would
  // else be let in. It is no failure, as others may be right.
  #refused(settings, what, status, { detail }) {
    settings.breaker.note(false);
    this.#well();
    this.#stats.refused++;
    this.#lines.refused.add(1).say((n) => `the decision server refuses ${n} questions (${what}, ${status}: ${detail}); they are denied`);
    return { allowed: false, admitted: false, in_doubt: true, reason: `the decision server answers ${status}: ${detail}` };
  }

  // unnamed counts a request of the middleware of which nobody knows who sends it.
  unnamed() {
    this.#stats.unnamed++;
  }

  #well() {
    if (this.#away) this.#settings.logger.info('the decision server answers again');
    this.#away = false;
  }

  // end ends a permit. Ending it again does no harm.
  async #end(path, body) {
    for (let attempt = 0; attempt < ends; attempt++) {
      if (attempt > 0) await sleep(100 * 4 ** attempt);
      try {
        const { status } = await this.#ask(path, body, this.#settings.admit.timeout);
        if (status < 500) return status === 200;
      } catch {
        // It is away: once more. What nobody ends is over after its hold.
      }
    }
    return false;
  }

  // ask asks once more where the server closed the connection just when it was used again.
  async #ask(path, body, within) {
    const began = performance.now();
    try {
      return await this.#post(path, body, within);
    } catch (error) {
      const left = within - (performance.now() - began);
      if (!error.again || left <= 0) throw error;
      return this.#post(path, body, left);
    }
  }

  #post(path, body, within) {
    const { token } = this.#settings;
    const headers = { 'Content-Type': 'application/json', ...(token && { Authorization: 'Bearer ' + (typeof token === 'function' ? token() : token) }) };
    return new Promise((resolve, reject) => {
      let over = false;
      const request = this.#http.request(new URL(this.#url.pathname.replace(/\/$/, '') + path, this.#url), { method: 'POST', agent: this.#agent, headers });
      // A process that was busy has the answer already: it is read before this gives up.
      const timer = setTimeout(() => setImmediate(() => over || request.destroy(new Error(`none within ${Math.round(within)} ms`))), within);
      let status = 0;
      const fails = (error) => {
        if (over) return;
        over = true;
        clearTimeout(timer);
        if (refuses(status)) return resolve({ status, answer: {} }); // its body may end late, or not at all
        error.again = request.reusedSocket && ['ECONNRESET', 'EPIPE'].includes(error.code);
        reject(error);
      };
      request.on('error', fails);
      request.on('response', (response) => {
        const parts = [];
        status = response.statusCode;
        response.on('data', (part) => parts.push(part));
        response.on('error', fails);
        response.on('end', () => {
          over = true;
          clearTimeout(timer);
          resolve({ status, answer: parsed(Buffer.concat(parts).toString()) });
        });
      });
      request.end(JSON.stringify(body));
    });
  }
}

// refuses tells whether a status says that the question is wrong: by the server, or by a proxy before it.
const refuses = (status) => status >= 300 && status < 500;

function parsed(json) {
  try {
    const value = JSON.parse(json);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

function question(api, who) {
  const body = { api: apiOf(api), ...dimensions(who) };
  if (who.wait !== undefined) body.wait = span(who.wait) / 1000;
  return body;
}

function policy(fail) {
  if (fail === 'open' || fail === 'closed') return fail;
  throw wrong(`fail is 'open' or 'closed', not ${String(fail)}`);
}

function span(ms) {
  if (typeof ms === 'number' && ms >= 0 && ms <= 3_600_000) return ms;
  throw wrong(`a time is a number of milliseconds, not ${String(ms)}`);
}
