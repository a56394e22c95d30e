// The page in a real browser, before a running proxy with a cluster of two or more servers.
//   PAGE_URL, PROXY_PORT, ADMIN_PORT   where it is; CLUSTER (0): its writer hostgroup
//   TLS_URL                            the same over https, if it has that
//   SHOTS                              folder for screenshots; none without it
//   CHROMIUM, MARIADB                  the browser and the client program
// Prints one line for each check, and ends with 1 if one failed.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const env = process.env;
const page_url = new URL(env.PAGE_URL ?? 'http://127.0.0.1:6080/').href;
const cluster = env.CLUSTER ?? '0';
const client = env.MARIADB ?? 'mariadb';
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const VIEWS = ['now', 'clusters', 'statements', 'pins', 'sessions', 'config', 'config/tables%2Fmysql_users', 'config/differences', 'config/history', 'proxies', 'log', 'log/errors', 'sql', 'rehearsals'];
const PATIENCE_MS = 15_000;
if (page_url.startsWith('https:')) env.NODE_TLS_REJECT_UNAUTHORIZED = '0';

let page;
let failures = 0;
const began = Date.now();
function tell(name, fault) {
  if (fault) failures += 1;
  console.log(`${fault ? 'FAILED' : 'ok'}  ${name}${fault ? `: ${fault}` : ''}`);
}
async function check(name, work) {
  try { tell(name, await work()); } catch (error) {
    tell(name, String(error.message ?? error).replace(/\x1b\[\d+m/g, '').split('\n').slice(0, 6).join(' | '));
    // What comes next begins without a dialog over it.
    for (let n = 0; n < 2; n += 1) await page.keyboard.press('Escape').catch(() => {});
  }
}
async function until(what, look) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited ${PATIENCE_MS / 1_000} s for ${what}`);
    await new Promise((later) => setTimeout(later, 100));
  }
}

// Clients: the mariadb program, fed through a pipe; a line on its standard error is an error that a client saw.
const clients = [];
function connect() {
  const child = spawn(client, ['--force', '--skip-reconnect', '--unbuffered', '--skip-column-names', '-h127.0.0.1', `-P${env.PROXY_PORT ?? 6033}`, `-u${env.APP_USER ?? 'app'}`, `-p${env.APP_PASSWORD ?? 'app-pass'}`, 'test'], { env: { ...env, MYSQL_HISTFILE: '/dev/null' } });
  const one = { child, errors: [], out: '', say: (sql) => child.stdin.writable && child.stdin.write(`${sql};\n`) };
  child.stdin.on('error', () => {});
  child.stderr.on('data', (text) => one.errors.push(...String(text).split('\n').filter((line) => line.startsWith('ERROR'))));
  child.stdout.on('data', (text) => { one.out = (one.out + text).slice(-2_000); });
  clients.push(one);
  return one;
}
const load = [];
async function startLoad() {
  const first = connect();
  first.say('CREATE TABLE IF NOT EXISTS page_load (id INT AUTO_INCREMENT PRIMARY KEY, n INT)');
  for (let clean = 0; clean < 10; clean += 1) {
    const [seen, errors] = [first.out.length, first.errors.length];
    first.say('SELECT COUNT(*) FROM page_load');
    await until('an answer', () => first.out.length > seen || first.errors.length > errors);
    if (first.errors.length > errors) clean = -1;
  }
  for (let n = 0; n < 4; n += 1) load.push(connect());
  return setInterval(() => load.forEach((one, n) => { one.say(`INSERT INTO page_load (n) VALUES (${n})`); one.say('SELECT COUNT(*) FROM page_load WHERE n = 1'); one.say('BEGIN'); one.say('UPDATE page_load SET n = n WHERE id = 1'); one.say('COMMIT'); }), 60);
}
const loadErrors = () => load.flatMap((one) => one.errors);

// What the browser must never do.
const complaints = [];
const strangers = [];
let expected = 0;
function watch(context) {
  context.on('request', (request) => { const url = new URL(request.url()); if (!['data:', 'blob:', 'about:'].includes(url.protocol) && url.origin !== new URL(page_url).origin) strangers.push(url.href); });
  context.on('console', (message) => { if (message.type() === 'error' && !(expected && /status of 4\d\d/.test(message.text()))) complaints.push(message.text()); });
  context.on('weberror', (error) => complaints.push(String(error.error())));
}

const browser = await chromium.launch({ executablePath: env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
async function open(user, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, ignoreHTTPSErrors: true, reducedMotion: 'reduce', ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  watch(context);
  const page = await context.newPage();
  await page.goto(page_url);
  if (user) await login(page, user);
  return page;
}
async function login(page, user, password = user) {
  await page.fill('#user', user);
  await page.fill('#password', password);
  await page.click('button[type=submit]');
  await page.waitForSelector('#views', { state: 'attached' });
}
async function show(page, view) {
  await page.evaluate((hash) => { location.hash = hash; }, `#/${view}`);
  await page.waitForSelector('#title');
  await page.waitForFunction(() => !document.querySelector('.loading'));
}
/** The token is the page's own; it is asked for as the page asks. */
const api = (page, sql, token) => page.evaluate(async ([text, given]) => {
  const stored = localStorage.getItem('tidegate.token');
  const who = await (await fetch('api/session', { headers: stored ? { 'x-tidegate-token': stored } : {} })).json();
  const reply = await fetch('api/sql', { method: 'POST', headers: { 'content-type': 'application/json', ...(given === null ? {} : { 'x-tidegate-token': given ?? who.token }) }, body: JSON.stringify({ sql: text }) });
  return { status: reply.status, ...(await reply.json().catch(() => ({}))) };
}, [sql, token]);
/** Presses the dialog's button, and gives what it said at the end. */
async function confirm(page, verb, step) {
  await page.click(`dialog[open] button:text-is("${verb}")`);
  await page.waitForSelector('dialog[open] .buttons .said', { timeout: 30_000 });
  const said = await page.innerText('dialog[open] .buttons .said');
  if (step && said === 'Done.') await until('its steps', async () => step.test(await page.innerText('dialog[open] .steps')));
  const all = await page.innerText('dialog[open]');
  if (said === 'Done.') await page.click('dialog[open] button:text-is("Close")');
  else { await page.keyboard.press('Escape'); throw new Error(`the page says: ${all.replaceAll('\n', ' ')}`); }
  return all;
}
const fill = async (page, values) => { for (const [name, value] of Object.entries(values)) await page.fill(`#f-${name}`, value); };

const feeding = await startLoad();
page = await open(null);
expected += 1;
await check('a wrong password is refused with the reason', async () => {
  await page.fill('#user', 'admin');
  await page.fill('#password', 'wrong');
  await page.click('button[type=submit]');
  await until('the reason', () => page.innerText('[role=alert]'));
});
await check('login with admin credentials', async () => { await login(page, 'admin'); });
expected -= 1;

await check('numbers move under load', async () => {
  const seen = new Set();
  await until('three different numbers of statements a second', async () => { seen.add(await page.innerText('[data-tile=queries] .value')); seen.delete('–'); seen.delete('0'); return seen.size >= 3; });
});

await check('an axis repeats no label, times have a log scale, and only errors are red', async () => {
  await page.evaluate(() => {
    window.drawn = new Map();
    const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.clearRect = function (...box) { window.drawn.set(this.canvas, []); return clearRect.apply(this, box); };
    CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { window.drawn.get(this.canvas)?.push(text); return fillText.call(this, text, ...at); };
  });
  const charts = () => page.evaluate(() => [...document.querySelectorAll('.chart')].map((chart) => ({ title: chart.querySelector('figcaption').innerText, labels: window.drawn.get(chart.querySelector('canvas')) ?? [] })));
  const drawn = await until('all charts', async () => { const all = await charts(); return all.length && all.every((chart) => chart.labels.length > 2) ? all : null; });
  const repeated = drawn.find(({ labels }) => new Set(labels).size < labels.length);
  if (repeated) return JSON.stringify(repeated);
  if (!drawn.some(({ title }) => /Time of a statement.*log scale/.test(title))) return 'no log scale';
  return page.evaluate(() => {
    const red = Object.assign(document.createElement('i'), { style: 'color: var(--bad)' });
    document.body.append(red);
    const is_red = [...document.querySelectorAll('.u-legend .u-series')].filter((one) => one.querySelector('.u-marker')?.style.borderColor === getComputedStyle(red).color).map((one) => one.querySelector('.u-label').textContent);
    red.remove();
    return is_red.join() === 'errors' ? null : `red: ${is_red}`;
  });
});
await check('Now begins with a line for each server, the writer first', async () => {
  await until('a measured lag', async () => /^\d+ s$/.test(await page.innerText('.fleet tbody tr:last-child td[data-label=Lag]')));
  const lines = await page.locator('.fleet tbody tr').allInnerTexts();
  const isFirst = await page.evaluate(() => document.querySelector('main .fleet').compareDocumentPosition(document.querySelector('main .attention')) & Node.DOCUMENT_POSITION_FOLLOWING);
  return isFirst && lines.length > 1 && /writer/.test(lines[0]) && lines.slice(1).every((line) => /reader/.test(line)) && lines.every((line) => /ONLINE since \d/.test(line)) ? null : lines.join(' | ');
});
await check('failed logins are worth a look', async () => {
  spawn(client, ['-h127.0.0.1', `-P${env.PROXY_PORT ?? 6033}`, '-uapp', '-pwrong', 'test', '-e', 'SELECT 1'], { stdio: 'ignore' });
  await until('the line', () => page.locator('.attention a:has-text("failed with a wrong name or password")').count());
});

const stuck = connect();
await check('a session that keeps a connection is found, with the reason', async () => {
  stuck.say("SELECT GET_LOCK('page test', 1)");
  await show(page, 'pins');
  await until('user_lock', () => page.locator('.reasons h3:text-is("user_lock")').count());
});
const reader = () => page.locator('.server:has(button:has-text("Make writer"))').first();
await check('a SWITCHOVER says before what would have it refused', async () => {
  await show(page, 'clusters');
  await reader().locator('button:has-text("Make writer")').click();
  const text = await page.innerText('dialog[open]');
  await page.click('dialog[open] button:text-is("Cancel")');
  return /refused at once/.test(text) && /user_lock/.test(text) && /SWITCHOVER HOSTGROUP/.test(text) ? null : text;
});
await check('the session is ended from the page', async () => {
  await show(page, 'sessions');
  await page.fill('[data-filter]', 'user_lock');
  await page.click('tr:has-text("user_lock") button.link');
  await page.click('.detail button:has-text("End the session")');
  await confirm(page, 'End the session');
  stuck.say('SELECT 1');
  await until('the error of its client', () => stuck.errors.length);
  await page.fill('[data-filter]', '');
});

await check('the console runs statements, and keeps them', async () => {
  await show(page, 'sql');
  for (const line of ["SET mysql-switchover_manages_read_only = 'true'", 'LOAD MYSQL VARIABLES TO RUNTIME']) {
    await page.fill('#sqltext', line);
    await page.keyboard.press('Control+Enter');
    await page.waitForSelector(`.sqlline code:text-is("${line}")`);
    if (await page.locator('.banner.bad').count()) return page.innerText('.banner.bad');
  }
  return await page.locator('.history li').count() >= 2 ? null : 'no history';
});
await check('SWITCHOVER from the page under load, and no client sees an error', async () => {
  await show(page, 'clusters');
  const address = await reader().locator('.serverhead b').innerText();
  await reader().locator('button:has-text("Make writer")').click();
  await confirm(page, 'Switch over', /switched over/);
  await until(`${address} as the writer`, () => page.locator(`.branch.writes .server b:text-is("${address}")`).count());
  const reason = await page.innerText('.branch.writes .reason');
  if (!/ONLINE since .*read_only/s.test(reason)) return `the reason of its role is not told: ${reason}`;
  await new Promise((later) => setTimeout(later, 1_000));
  return loadErrors()[0];
});

await check('the former primary follows the new one: no server is red', async () => {
  await show(page, 'now');
  await until('no red line', async () => (await page.locator('.fleet tbody tr').count()) > 1 && (await page.locator('.fleet tr.bad').count()) === 0);
});

// This one is looked for further below, when it has been silent for long enough.
const silent = connect();
silent.say('BEGIN');
silent.say('INSERT INTO page_load (n) VALUES (99)');
silent.say('SELECT SLEEP(1)');

await check('the advice on promotion is at its cluster', async () => {
  const row = `mysql_healing WHERE writer_hostgroup = ${cluster}`;
  const run = async (...all) => { for (const sql of all) { const reply = await api(page, sql); if (reply.status !== 200 || /error/i.test(reply.error ?? '')) throw new Error(`${sql}: ${JSON.stringify(reply)}`); } };
  await run(`INSERT INTO mysql_healing (writer_hostgroup) VALUES (${cluster})`, 'LOAD MYSQL SERVERS TO RUNTIME');
  await show(page, 'clusters');
  const advice = page.locator('.cluster p:has-text("Advice:")').first();
  await until('advice', () => advice.count());
  const text = await advice.innerText();
  if (env.SHOTS) await page.screenshot({ path: `${env.SHOTS}/advice.png` });
  await run(`DELETE FROM ${row}`, 'LOAD MYSQL SERVERS TO RUNTIME');
  await until('no advice', async () => !(await advice.count()));
  return /writer: alive Advice: if \S+ died now: \S+ in about \d+ s, nothing known to be lost/.test(text) ? null : text;
});
await check('a rule that cannot be loaded is named, with its row', async () => {
  await show(page, 'config/tables%2Fmysql_query_rules');
  await page.click('button:has-text("Add a row")');
  await fill(page, { rule_id: '4711', active: '1', match_digest: '^SELECT (', destination_hostgroup: cluster });
  await until('the remark while typing', () => page.locator('small.remark').count());
  await confirm(page, 'Write to memory');
  await until('the verdict', () => page.locator('.verdict .banner.bad').count());
  await page.waitForSelector('tr.alarm:has-text("4711")');
  return /rule 4711/.test(await page.innerText('.verdict')) ? null : page.innerText('.verdict');
});
await check('what is out of range is said as it is typed', async () => {
  await page.click('tr:has-text("4711") button:has-text("Edit")');
  await fill(page, { active: '7' });
  await until('the fault', () => page.locator('small.error').count());
  const off = await page.isDisabled('dialog[open] button[type=submit]');
  await page.keyboard.press('Escape');
  return off ? null : 'it could be sent';
});
await check('a form survives Esc and a reload, without its password', async () => {
  await page.click('tr:has-text("4711") button:has-text("Edit")');
  await fill(page, { match_digest: '^SELECT half' });
  await page.keyboard.press('Escape');
  await page.reload();
  await page.click('tr:has-text("4711") button:has-text("Edit")');
  if (await page.inputValue('#f-match_digest') !== '^SELECT half') return 'the rule is forgotten';
  await page.click('dialog[open] button:text-is("Start over")');
  if (await page.inputValue('#f-match_digest') !== '^SELECT (') return 'it does not start over';
  await page.click('dialog[open] button:text-is("Cancel")');
  await show(page, 'config/tables%2Fmysql_users');
  await page.click('button:has-text("Add a row")');
  await fill(page, { username: 'half', password: 'S3cret-half', comment: 'password S3cret-half' });
  await page.keyboard.press('Escape');
  const kept = await page.evaluate(() => JSON.stringify({ ...sessionStorage }));
  await page.click('button:has-text("Add a row")');
  const [name, password] = [await page.inputValue('#f-username'), await page.inputValue('#f-password')];
  await page.click('dialog[open] button:text-is("Cancel")');
  await show(page, 'config/tables%2Fmysql_query_rules');
  return kept.includes('S3cret') || name !== 'half' || password ? `${kept} ${name}` : null;
});
await check('the dialog of Apply repeats what will be refused', async () => {
  await page.click('.layerline button:has-text("Apply")');
  await until('the refusal', () => page.locator('dialog[open] .banner.bad:has-text("rule 4711")').count());
  await page.click('dialog[open] button:text-is("Cancel")');
});
await check('the rule is mended and applied', async () => {
  await page.click('tr:has-text("4711") button:has-text("Edit")');
  await fill(page, { match_digest: '^SELECT 4711' });
  await confirm(page, 'Write to memory');
  await until('the check', () => page.locator('.verdict .banner.bad').count().then((n) => n === 0));
  await page.click('.layerline button:has-text("Apply")');
  await confirm(page, 'Apply');
  const rows = await api(page, 'SELECT match_digest FROM runtime_mysql_query_rules WHERE rule_id = 4711');
  return rows.rows?.length === 1 ? null : JSON.stringify(rows);
});
await check('differences are shown side by side', async () => {
  await show(page, 'config/differences');
  await page.waitForSelector('td:has-text("rule_id=4711")');
});
await check('and rolled back', async () => {
  await show(page, 'config/history');
  await page.locator('button:has-text("Roll back")').first().click();
  await until('the differences', () => page.locator('dialog[open] .changes').count());
  await confirm(page, 'Roll back');
  const rows = await api(page, 'SELECT match_digest FROM runtime_mysql_query_rules WHERE rule_id = 4711');
  return rows.rows?.length === 0 ? null : JSON.stringify(rows);
});
await check('charts carry marks for the LOAD and the new writer', async () => {
  await show(page, 'now');
  await until('the marks', async () => { const older = page.locator('.marks details:not([open]) summary'); if (await older.count()) await older.click(); const marks = await page.innerText('.marks'); return /load: .*CONFIG APPLY \(\+rule 4711/.test(marks) && /role: .*writer/.test(marks) && /start: start of \d/.test(marks); });
});
await check('a digest shows its route', async () => {
  await show(page, 'statements');
  await page.fill('[data-filter]', 'COUNT(*) FROM page_load');
  await until('percentiles of it', async () => { const p99 = (await page.locator('thead th').allInnerTexts()).findIndex((name) => name.startsWith('p99')); return p99 > 0 && / (µs|ms|s)$/.test(await page.locator('tbody tr:has-text("page_load") td').nth(p99).innerText()); });
  await page.locator('tbody tr:has-text("page_load") button.link').first().click();
  await page.waitForSelector('.detail .flow .goal');
  await page.fill('[data-filter]', '');
});
await check('statements of the last minutes: shares, rows per call, columns that are equal fold away', async () => {
  await show(page, 'statements');
  const p99 = () => page.locator('table:has(caption:text-is("Statements by digest")) th:has-text("p99")').count();
  await page.click('.viewhead button:text-is("5 min")');
  // A slice has 20 s.
  await page.waitForSelector('tbody tr:has-text("COUNT(*) FROM page_load")', { timeout: 60_000 });
  const heads = await page.locator('table:has(caption:text-is("Statements by digest")) th').allInnerTexts();
  if (await p99() || !['Share of time', 'Rows per call'].every((name) => heads.some((head) => head.startsWith(name)))) return heads.join();
  if (heads.some((head) => head.startsWith('Schema')) || !/All: .*Schema test/.test(await page.locator('.tools').first().innerText())) return `Schema is still a column: ${heads}`;
  const rows = page.locator('tbody tr:has-text("COUNT(*) FROM page_load")');
  const per_call = await rows.first().locator('td').last().innerText();
  if (per_call !== '1') return `COUNT(*) has ${per_call} rows per call`;
  await page.click('.viewhead button:text-is("since the start")');
  await until('percentiles', p99);
});
await check('a digest has a history and its senders, a server its times', async () => {
  await page.waitForSelector('figcaption:has-text("p95 by hostgroup and server")', { timeout: 60_000 });
  await page.locator('tbody tr:has-text("page_load") button.link').first().click();
  await page.waitForSelector('.detail figcaption:has-text("Mean time, the last hour")', { timeout: 60_000 });
  await page.reload();
  await page.waitForSelector('.detail figcaption:has-text("Mean time, the last hour")');
  const senders = await page.innerText('.detail .tablebox');
  await page.click('.detail a:text-is("Close")');
  return senders.includes(env.APP_USER ?? 'app') ? null : senders;
});
await check('what clients write is text, and no formula', async () => {
  load[0].say('SELECT 1 AS `<img src=x onerror=alert(1)>`');
  await show(page, 'statements');
  await page.fill('[data-filter]', 'onerror');
  await until('the digest', () => page.locator('tbody tr:has-text("<img src=x")').count());
  if (await page.locator('main img').count()) return 'it became an element';
  await page.fill('[data-filter]', '');
  await show(page, 'sql');
  await page.fill('#sqltext', "SELECT '=1+1' AS a, '-5' AS b, '@x, \"y\"' AS c");
  await page.keyboard.press('Control+Enter');
  await page.waitForSelector('td:has-text("=1+1")');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('.tools button:has-text("CSV")')]);
  const text = readFileSync(await file.path(), 'utf8');
  return text === 'a,b,c\r\n\'=1+1,-5,"\'@x, ""y"""' ? null : text;
});
await check('a session that is stuck in a transaction is found from Now', async () => {
  await show(page, 'now');
  await page.click('.attention a:has-text("in an open transaction")');
  await page.waitForSelector('.detail .pill.bad:has-text("idle in transaction")');
  return /BEGIN/.test(await page.innerText('.detail')) ? null : page.innerText('.detail');
});
await check('a failed login of a client is listed, with its user', async () => {
  const child = spawn(client, ['-h127.0.0.1', `-P${env.PROXY_PORT ?? 6033}`, `-u${env.APP_USER ?? 'app'}`, '-pwrong', '-e', 'SELECT 1'], { stdio: 'ignore' });
  await new Promise((ended) => child.on('exit', ended));
  await show(page, 'log/logins');
  await until('the login', () => page.locator(`tbody tr:has-text("Access denied"):has-text("${env.APP_USER ?? 'app'}")`).count());
});
await check('a login that ended is asked for, and the place is kept', async () => {
  expected += 1;
  await page.context().clearCookies();
  await login(page, 'admin');
  expected -= 1;
  await page.waitForSelector('h1:text-is("Log and events")');
});
await check('keys lead to views', async () => {
  await page.locator('#title').focus();
  await page.keyboard.press('5');
  await page.waitForSelector('h1:text-is("Sessions")');
  await page.keyboard.press('g');
  await page.keyboard.press('n');
  await page.waitForSelector('h1:text-is("Now")');
  await page.keyboard.press('?');
  await page.waitForSelector('dialog[open] h2:text-is("Keys")');
  await page.keyboard.press('Escape');
});

await check('stats sees all views, and can press nothing', async () => {
  const other = await open('stats');
  for (const view of VIEWS) {
    await show(other, view);
    const active = await other.locator('[data-act]:not([aria-disabled=true])').count();
    if (active) return `${active} buttons in ${view}`;
  }
  expected += 1;
  for (const line of [`PAUSE HOSTGROUP ${cluster}`, 'DELETE FROM mysql_servers', "UPDATE global_variables SET variable_value = 'x'", 'CONFIG APPLY', 'KILL CONNECTION 1']) {
    const reply = await api(other, line);
    if (!reply.error) return `${line} was answered ${JSON.stringify(reply)}`;
  }
  expected -= 1;
  await other.context().close();
});

await check('forged requests are refused', async () => {
  expected += 1;
  const none = await api(page, 'SELECT 1', null);
  const wrong = await api(page, 'SELECT 1', 'wrong');
  if (none.columns || wrong.columns) return 'a request without the token was answered';
  const who = await page.evaluate(async () => (await fetch('api/session', { headers: { 'x-tidegate-token': localStorage.getItem('tidegate.token') } })).json());
  const cookie = (await page.context().cookies()).find((one) => one.name.endsWith('tidegate_session'));
  if (!cookie?.httpOnly || cookie.sameSite !== 'Strict') return `the cookie is ${JSON.stringify(cookie)}`;
  for (const headers of [{ origin: 'http://127.0.0.1:1' }, { 'sec-fetch-site': 'same-site' }, { 'sec-fetch-site': 'cross-site' }]) {
    const reply = await fetch(new URL('api/sql', page_url), { method: 'POST', body: JSON.stringify({ sql: 'SELECT 1' }), headers: { 'content-type': 'application/json', cookie: `${cookie.name}=${cookie.value}`, 'x-tidegate-token': who.token, ...headers } });
    if (reply.ok) return `${JSON.stringify(headers)} was answered`;
  }
  const evil = http.createServer((_, answer) => answer.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>another page</title>'));
  await new Promise((ready) => evil.listen(0, '127.0.0.1', ready));
  const tab = await page.context().newPage();
  const before = strangers.length;
  await tab.goto(`http://127.0.0.1:${evil.address().port}/`);
  const results = await tab.evaluate(async ([base, sql, token]) => {
    const send = (path, options) => fetch(base + path, { credentials: 'include', ...options }).then((reply) => `${path} ${reply.type} ${reply.status}`, () => 'refused');
    const body = JSON.stringify({ sql });
    return [
      await send('api/session', {}),
      await send('api/sql', { method: 'POST', body, headers: { 'content-type': 'application/json', 'x-tidegate-token': token } }),
      await send('api/sql', { method: 'POST', body, mode: 'no-cors', headers: { 'content-type': 'text/plain' } }),
      await send('api/logout', { method: 'POST', mode: 'no-cors' }),
    ];
  }, [page_url, `PAUSE HOSTGROUP ${cluster}`, who.token]);
  await tab.close();
  evil.close();
  strangers.length = before;
  complaints.length = complaints.findIndex((text) => /CORS|ERR_FAILED/.test(text)) < 0 ? complaints.length : complaints.findIndex((text) => /CORS|ERR_FAILED/.test(text));
  expected -= 1;
  if (results.some((one) => / (basic|cors) 200/.test(one))) return results.join(', ');
  const held = await api(page, 'SELECT * FROM stats_tidegate_holds');
  return held.rows?.length === 0 ? null : `after ${results.join(', ')}: ${JSON.stringify(held)}`;
});

await check('a client that does not ask for gzip gets plain text', async () => {
  const get = (headers) => new Promise((done, failed) => http.get(new URL('app.css', page_url), { headers }, (reply) => { let text = ''; reply.setEncoding('utf8').on('data', (part) => { text += part; }).on('end', () => done({ coding: reply.headers['content-encoding'], text })); }).on('error', failed));
  const [plain, packed] = [await get({}), await get({ 'accept-encoding': 'gzip' })];
  return plain.coding === undefined && plain.text.includes(':root') && packed.coding === 'gzip' ? null : `${plain.coding}, ${packed.coding}`;
});
if (env.TLS_URL) {
  await check('the page works over https, with a cookie of its own kind', async () => {
    const context = await browser.newContext({ ignoreHTTPSErrors: true });
    const tab = await context.newPage();
    await tab.goto(env.TLS_URL);
    await login(tab, 'admin');
    await tab.waitForSelector('.linkstate.ok');
    const cookie = (await context.cookies())[0];
    await context.close();
    return cookie?.secure && cookie.name === '__Host-tidegate_session' ? null : JSON.stringify(cookie);
  });
}

await page.context().close();
const shots = env.SHOTS;
if (shots) mkdirSync(shots, { recursive: true });
// An error for Now and for the log.
connect().say('SELECT nothing');
await Promise.all([['light', { viewport: { width: 1440, height: 900 } }], ['dark', { colorScheme: 'dark' }], ['phone', { viewport: { width: 390, height: 844 } }]].map(([kind, options]) => check(`all views, ${kind}: nothing serious for axe, nothing beside the screen`, async () => {
  const one = await open('admin', options);
  const faults = [];
  for (const view of VIEWS) {
    await show(one, view);
    if (view === 'now') await until('charts', () => one.locator('.u-over').count());
    if (shots) await one.screenshot({ path: `${shots}/${view.replace('/', '-')}-${kind}.png`, fullPage: true });
    const under = await one.evaluate(() => {
      const overlap = (a, b) => a.width && b.width && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
      for (const row of document.querySelectorAll('[role=table] tbody tr')) {
        const boxes = [...row.children].map((cell) => cell.getBoundingClientRect());
        if (boxes.some((box, at) => boxes.slice(at + 1).some((other) => overlap(box, other)))) return row.innerText;
      }
      return null;
    });
    if (under) faults.push(`${view}: a column is under another in ${under}`);
    if (kind === 'phone' && await one.evaluate(() => [...document.querySelectorAll('.scroll:has(> [role=table])')].some((box) => box.scrollWidth > box.clientWidth))) faults.push(`${view}: a card is wider than the screen`);
    if (await one.evaluate(() => document.documentElement.scrollWidth > window.innerWidth)) faults.push(`${view} is wider than the screen`);
    if (await one.evaluate(() => document.body.innerText.includes('1970-01-01'))) faults.push(`${view} shows a time that its query does not have`);
    const wire = await one.context().newCDPSession(one);
    await wire.send('Runtime.evaluate', { expression: axe });
    const found = await one.evaluate(async () => (await window.axe.run(document, { resultTypes: ['violations'] })).violations.filter((fault) => ['serious', 'critical'].includes(fault.impact)).map((fault) => `${fault.id} at ${fault.nodes[0]?.target}`));
    faults.push(...found.map((text) => `${view}: ${text}`));
  }
  await one.context().close();
  return faults.join('; ');
})));

tell('no error in the console, no violation of the content security policy', complaints[0]);
tell('no request to another host', strangers[0]);
tell('no client saw an error in all that time', loadErrors()[0]);
clearInterval(feeding);
clients.forEach((one) => one.child.kill());
await browser.close();
console.log(`${failures ? `${failures} failed` : 'all passed'}, ${((Date.now() - began) / 1_000).toFixed(0)} s`);
process.exit(failures ? 1 : 0);
