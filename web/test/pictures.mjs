// Takes the pictures of docs/web-page of a running proxy.
//   PAGE_URL, PROXY_PORT   where it is; the user is `admin` with the password `admin`
//   FOLDER                 where they go
//   CHROMIUM, MARIADB      the browser and the client program
// The proxy should have been under load for an hour. Three clients keep connections meanwhile, so that no view is empty.
import { spawn } from 'node:child_process';
import { chromium } from 'playwright-core';

const env = process.env;
const PICTURES = [
  ['now', 'now'], ['now-dark', 'now', { colorScheme: 'dark' }], ['now-phone', 'now', { viewport: { width: 390, height: 844 } }],
  ['clusters', 'clusters'], ['statements', 'statements'], ['pins', 'pins'], ['pins-phone', 'pins', { viewport: { width: 390, height: 844 } }],
  ['sessions', 'sessions'], ['config', 'config'], ['config-dark', 'config', { colorScheme: 'dark' }], ['config-history', 'config/history'],
  ['proxies', 'proxies'], ['log', 'log'], ['sql', 'sql'],
];
const KEEPERS = [
  'CREATE TEMPORARY TABLE basket (id INT, n INT); INSERT INTO basket VALUES (1, 2);',
  "SELECT GET_LOCK('nightly', 1);",
  'BEGIN; SELECT 1 FROM DUAL FOR UPDATE;',
];

const keepers = KEEPERS.map((sql) => {
  const child = spawn(env.MARIADB ?? 'mariadb', ['-h127.0.0.1', `-P${env.PROXY_PORT}`, '-uapp', '-papp-pass', 'test'], { stdio: ['pipe', 'ignore', 'inherit'] });
  child.stdin.write(`${sql}\n`);
  return child;
});
const browser = await chromium.launch({ executablePath: env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
for (const [name, view, options] of PICTURES) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  await page.goto(env.PAGE_URL);
  await page.fill('#user', 'admin');
  await page.fill('#password', 'admin');
  await page.click('button[type=submit]');
  await page.waitForSelector('#views', { state: 'attached' });
  await page.evaluate((hash) => { location.hash = hash; }, `#/${view}`);
  await page.waitForFunction(() => document.querySelector('#title') && !document.querySelector('.loading'));
  if (view === 'now') {
    await page.click('button:text-is("1 h")');
    await page.waitForSelector('.u-over');
  }
  if (view === 'sql') {
    await page.fill('textarea', 'SELECT hostgroup, digest_text, count_star, sum_time FROM stats_mysql_query_digest ORDER BY sum_time DESC LIMIT 10');
    await page.keyboard.press('Control+Enter');
    await page.waitForSelector('tbody tr');
  }
  // Rates need two readings, a second apart.
  await page.waitForTimeout(3_000);
  await page.screenshot({ path: `${env.FOLDER}/${name}.png`, fullPage: true });
  await context.close();
  console.log(name);
}
await browser.close();
keepers.forEach((child) => child.kill());
