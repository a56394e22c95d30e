// Builds dist/ from src/: three files with fixed names, the same bytes on every machine.
import { copyFile, mkdir } from 'node:fs/promises';
import { build } from 'esbuild';

const out = new URL('dist/', import.meta.url).pathname;
await mkdir(out, { recursive: true });
await build({
  absWorkingDir: new URL('.', import.meta.url).pathname,
  entryPoints: { app: 'src/main.tsx' },
  outdir: out,
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['es2022'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  banner: { js: '/* Contains Preact (c) Jason Miller and uPlot (c) Leon Sorokin, MIT licence: web/LICENCES.txt */' },
  charset: 'utf8',
});
for (const name of ['index.html', 'favicon.svg']) await copyFile(new URL(`src/${name}`, import.meta.url), new URL(`dist/${name}`, import.meta.url));
