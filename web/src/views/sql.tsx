// A console on the admin port.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Rec, type SqlReply, records, remember, session, sql, statements } from '../api';
import { millis } from '../format';
import { refresh } from '../live';
import { DoneText, STATS_REASON } from '../parts/act';
import { Table } from '../parts/table';
import { usePlace } from '../route';
import { useStore } from '../store';

const IDEAS = ['SELECT * FROM stats_tidegate_pins', 'SELECT * FROM stats_tidegate_events', 'SELECT * FROM stats_mysql_query_digest ORDER BY sum_time DESC LIMIT 10', "EXPLAIN ROUTE 'SELECT 1' USER 'app'", "SHOW EFFECTIVE SETTINGS FOR USER 'app' HOSTGROUP 0", 'CONFIG DIFF', 'SHOW TABLES FROM stats'];
interface Shown { text: string; reply: SqlReply; took_ms: number }

export function Sql() {
  const place = usePlace();
  const who = useStore(session);
  const kept = useStore(statements);
  const [text, setText] = useState(place.query.get('q') ?? '');
  const [shown, setShown] = useState<Shown | null>(null);
  const [busy, setBusy] = useState(false);
  const [filter, setFilter] = useState('');
  const [at, setAt] = useState(-1);
  const area = useRef<HTMLTextAreaElement>(null);
  const asked = place.query.get('q');
  useEffect(() => { if (asked !== null) setText(asked); }, [asked]);
  const run = async () => {
    const line = text.trim().replace(/;\s*$/, '');
    if (!line || busy) return;
    setBusy(true);
    const began = performance.now();
    remember(line);
    let reply: SqlReply;
    try { reply = await sql(line); } catch (error) { reply = { kind: 'error', code: 0, text: error instanceof Error ? error.message : String(error) }; }
    setShown({ text: line, reply, took_ms: performance.now() - began });
    setBusy(false);
    setAt(-1);
    if (reply.kind === 'done') refresh();
  };
  const older = (step: number) => {
    const next = Math.max(-1, Math.min(kept.length - 1, at + step));
    setAt(next);
    setText(next < 0 ? '' : kept[next] ?? '');
  };
  const keys = (event: KeyboardEvent) => {
    const field = event.currentTarget as HTMLTextAreaElement;
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); void run(); }
    if (event.key === 'ArrowUp' && field.selectionStart === 0 && field.selectionEnd === 0) { event.preventDefault(); older(1); }
    if (event.key === 'ArrowDown' && at >= 0 && field.selectionStart === field.value.length) { event.preventDefault(); older(-1); }
  };
  const reply = shown?.reply;
  return (
    <>
      <header class="viewhead"><h1 id="title" tabIndex={-1}>SQL</h1></header>
      <p class="intro">A console on the admin port, with your login’s rights. One statement at a time. What you run here takes effect at once, without another question.{who !== 'asking' && who?.role === 'stats' ? ` ${STATS_REASON}` : ''}</p>
      <form class="console" onSubmit={(event) => { event.preventDefault(); void run(); }}>
        <label for="sqltext">Statement</label>
        <textarea id="sqltext" ref={area} rows={4} spellcheck={false} autocomplete="off" value={text} onInput={(event) => { setText(event.currentTarget.value); setAt(-1); }} onKeyDown={keys} placeholder="SELECT * FROM stats_tidegate_pins" />
        <div class="buttons"><button type="submit" class="strong" disabled={busy}>{busy ? 'It runs…' : 'Run'}</button><span class="muted"><kbd>Ctrl</kbd> <kbd>Enter</kbd> runs, <kbd>↑</kbd> at the beginning brings the one before</span></div>
      </form>
      <div aria-live="polite">
        {shown && <p class="muted sqlline"><code>{shown.text}</code> · {millis(shown.took_ms)}</p>}
        {reply?.kind === 'error' && <div class="banner bad" role="alert"><b>Error{reply.code ? ` ${reply.code}` : ''}:</b> {reply.text}</div>}
        {reply?.kind === 'done' && <DoneText reply={reply} />}
        {reply?.kind === 'rows' && reply.cut && <div class="banner warn">There are more rows than are shown here: add LIMIT or WHERE, or use a MySQL client.</div>}
      </div>
      {reply?.kind === 'rows' && <Result key={shown?.text} columns={reply.columns} rows={records(reply.columns, reply.rows)} />}
      <section class="part">
        <h2>History</h2>
        {kept.length ? (
          <>
            <label class="filter"><span class="hidden">Filter the history</span><input type="search" data-filter placeholder="Filter" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></label>
            <ul class="history">{kept.filter((one) => one.toLowerCase().includes(filter.toLowerCase())).slice(0, 50).map((one) => <li key={one}><button type="button" class="link" onClick={() => { setText(one); area.current?.focus(); }}><code>{one}</code></button></li>)}</ul>
          </>
        ) : <div class="empty">Nothing yet. What the other views send is kept here too. <ul class="history">{IDEAS.map((one) => <li key={one}><button type="button" class="link" onClick={() => { setText(one); area.current?.focus(); }}><code>{one}</code></button></li>)}</ul></div>}
        <p class="muted">Kept in this tab until it is closed. Statements that may name a secret are forgotten with the page.</p>
      </section>
    </>
  );
}

function Result({ columns, rows }: { columns: string[]; rows: Rec[] }) {
  const numbered = rows.map((row, at) => ({ row, at }));
  return <Table name="sql" caption="Result" rows={numbered} id={({ at }) => String(at)} empty="Empty set: the statement ran, and there are no rows." columns={columns.map((name) => ({ key: name, label: name, long: rows.some((row) => (row[name]?.length ?? 0) > 40), num: rows.length > 0 && rows.every((row) => row[name] === null || /^-?\d+(\.\d+)?$/.test(row[name] ?? '')), value: ({ row }: { row: Rec }) => row[name] }))} />;
}
