// Everything that changes something goes through this dialog: what will happen, the SQL, its steps, its answer.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Done, type SqlReply, remember, session, sql, view } from '../api';
import { millis, num } from '../format';
import { refresh, rowsOf, useNow, useView } from '../live';
import { Store, useStore } from '../store';
import { draftOf, dropDraft, keepDraft } from './draft';
import { EventLine } from './events';

export interface Verdict { level: 'error' | 'remark'; text: string }
export type Values = Record<string, string>;
export interface Field {
  name: string;
  label: string;
  value: string;
  kind?: 'text' | 'number' | 'choice' | 'tick' | 'long' | 'secret';
  choices?: string[];
  hint?: string;
  /** May be NULL: a tick beside the field says so. */
  nullable?: boolean;
  check?: (value: string, values: Values) => Verdict | null;
}
export interface Action {
  title: string;
  verb: string;
  fields?: Field[];
  effect: (values: Values) => ComponentChildren;
  sql: (values: Values) => string[];
  /** Follow events, holds and waits while it runs. */
  steps?: boolean;
  danger?: boolean;
  /** Called when all is over. */
  done?: (replies: SqlReply[]) => void;
}

/** Values of fields that are NULL. */
export const NULL = '\u0000';
const wanted = new Store<Action | null>(null);
export const ask = (action: Action): void => wanted.set(action);

export const STATS_REASON = 'The stats login sees all and changes nothing: log in with admin credentials for this.';

/** A button that changes something: disabled with the reason for who may not. */
export function Act({ label, of, quiet, danger, off, about }: { label: string; of: () => Action; quiet?: boolean; danger?: boolean; off?: string | null | undefined; about?: string }) {
  const who = useStore(session);
  const reason = who === 'asking' || who?.role !== 'admin' ? STATS_REASON : off;
  const kind = [quiet ? 'quiet' : '', danger ? 'danger' : ''].filter(Boolean).join(' ');
  return (
    <button type="button" class={kind} data-act aria-disabled={reason ? true : undefined} title={reason ?? undefined} onClick={(event) => { event.stopPropagation(); if (!reason) ask(of()); }}>
      {label}{about && <span class="hidden"> {about}</span>}{reason && <span class="hidden">. {reason}</span>}
    </button>
  );
}

export function ActionDialog() {
  const action = useStore(wanted);
  return action && <Open key={action.title} action={action} />;
}

type State = 'asked' | 'running' | 'over';

function Open({ action }: { action: Action }) {
  const box = useRef<HTMLDialogElement>(null);
  const given = Object.fromEntries((action.fields ?? []).map((field) => [field.name, field.value]));
  const [draft, setDraft] = useState(draftOf(action.title));
  const [values, setValues] = useState<Values>({ ...given, ...draft });
  const latest = useRef(values);
  const [state, setState] = useState<State>('asked');
  const [replies, setReplies] = useState<(SqlReply | null)[]>([]);
  const [since, setSince] = useState(0);
  const [before, setBefore] = useState(0);
  useEffect(() => { box.current?.showModal(); }, []);
  // At once: an effect may come after Esc.
  const change = (next: Values) => { latest.current = next; setValues(next); keepDraft(action, next); };
  const verdicts = (action.fields ?? []).map((field) => (values[field.name] === NULL ? null : field.check?.(values[field.name] ?? '', values) ?? null));
  const isWrong = verdicts.some((verdict) => verdict?.level === 'error');
  const lines = action.sql(values);
  const close = () => { if (state !== 'running') { box.current?.close(); wanted.set(null); } };
  const run = async () => {
    setState('running');
    setSince(Date.now());
    if (action.steps) setBefore(num((await view('steps').catch(() => null))?.results.events?.rows[0]?.sequence));
    const got: SqlReply[] = [];
    for (const line of lines) {
      remember(line);
      setReplies([...got, null]);
      let reply: SqlReply;
      try { reply = await sql(line); } catch (error) { reply = { kind: 'error', code: 0, text: `${error instanceof Error ? error.message : String(error)} Whether it was carried out is not known: look at the events.` }; }
      got.push(reply);
      setReplies([...got]);
      if (reply.kind === 'error') break;
    }
    setState('over');
    if (!got.some((reply) => reply.kind === 'error')) dropDraft(action);
    refresh();
    action.done?.(got);
  };
  const failed = replies.some((reply) => reply?.kind === 'error');
  return (
    <dialog ref={box} class="act" aria-labelledby="acttitle" onCancel={(event) => { event.preventDefault(); close(); }}>
      <form onSubmit={(event) => { event.preventDefault(); if (state === 'asked' && !isWrong) void run(); }}>
        <h2 id="acttitle">{action.title}</h2>
        {state === 'asked' && Object.keys(draft).length > 0 && <div class="banner info" role="status">The form has what you typed before. <button type="button" class="quiet" onClick={() => { setDraft({}); change(given); }}>Start over</button></div>}
        {state === 'asked' && action.fields?.map((field, at) => <Input key={field.name} field={field} value={values[field.name] ?? ''} verdict={verdicts[at] ?? null} set={(value) => change({ ...latest.current, [field.name]: value })} />)}
        {state === 'asked' && <div class="effect"><h3>What will happen</h3>{action.effect(values)}</div>}
        <h3>{state === 'asked' ? 'The SQL that will be sent' : 'The SQL that was sent'}</h3>
        <ol class="sqllines" aria-live="polite">
          {lines.map((line, at) => <li key={at}><code>{line};</code>{state !== 'asked' && <Outcome reply={replies[at]} since={since} />}</li>)}
          {!lines.length && <li class="muted">Nothing is changed yet.</li>}
        </ol>
        {action.steps && state !== 'asked' && <Steps before={before} />}
        <div class="buttons">
          {state === 'asked' && <button type="button" onClick={() => { dropDraft(action); close(); }} autofocus={!action.fields?.length}>Cancel</button>}
          {state === 'asked' && <button type="submit" class={action.danger ? 'danger strong' : 'strong'} disabled={isWrong || !lines.length}>{action.verb}</button>}
          {state === 'running' && <span class="muted" role="status">It runs…</span>}
          {state === 'over' && <span role="status" class={failed ? 'said bad' : 'said ok'}>{failed ? 'Refused.' : 'Done.'}</span>}
          {state === 'over' && failed && <button type="button" onClick={() => { setState('asked'); setReplies([]); }}>Back</button>}
          {state === 'over' && <button type="button" class="strong" ref={(button) => button?.focus()} onClick={close}>Close</button>}
        </div>
      </form>
    </dialog>
  );
}

function Outcome({ reply, since }: { reply: SqlReply | null | undefined; since: number }) {
  const now = useNow();
  if (reply === undefined) return <div class="muted">not sent</div>;
  if (reply === null) return <div class="muted">runs for {millis(Math.max(0, now - since))}</div>;
  if (reply.kind === 'error') return <div class="said bad"><b>Refused{reply.code ? ` (${reply.code})` : ''}:</b> {reply.text}</div>;
  if (reply.kind === 'rows') return <div class="said ok">{reply.rows.length} rows</div>;
  return <DoneText reply={reply} />;
}

export function DoneText({ reply }: { reply: Done }) {
  const words = reply.info && !reply.warnings.some((warning) => reply.info.includes(warning)) ? reply.info : '';
  return (
    <div class="said ok">
      {words || (reply.affected ? `${reply.affected} ${reply.affected === 1 ? 'row' : 'rows'} changed` : 'OK')}
      {reply.warnings.length > 0 && <ul class="warnings">{reply.warnings.map((warning) => <li key={warning}>{warning}</li>)}</ul>}
    </div>
  );
}

function Steps({ before }: { before: number }) {
  const { data } = useView('steps');
  const events = rowsOf(data, 'events').filter((event) => num(event.sequence) > before).reverse();
  return (
    <div class="steps" role="log" aria-label="Steps">
      <h3>Its steps</h3>
      {rowsOf(data, 'holds').map((hold) => <p key={hold.hostgroup} class="muted">Hostgroup {hold.hostgroup} is held ({hold.reason}) for {millis(num(hold.since_ms))}.</p>)}
      {rowsOf(data, 'waits').map((wait) => <p key={wait.hostgroup} class="muted">{wait.waiters} sessions wait in hostgroup {wait.hostgroup}, the first for {millis(num(wait.oldest_ms))}.</p>)}
      {events.length ? <ol class="timeline">{events.map((event) => <EventLine key={event.sequence} event={event} />)}</ol> : <p class="muted">No event yet.</p>}
    </div>
  );
}

function Input({ field, value, verdict, set }: { field: Field; value: string; verdict: Verdict | null; set: (value: string) => void }) {
  const id = `f-${field.name}`;
  const isNull = value === NULL;
  const common = { id, 'aria-invalid': verdict?.level === 'error' ? true : undefined, 'aria-describedby': `${id}-d`, placeholder: isNull ? 'NULL' : undefined };
  const type = (text: string) => set(field.nullable && field.kind === 'number' && !text ? NULL : text);
  const text = isNull ? '' : value;
  return (
    <div class={`field${field.kind === 'tick' ? ' tick' : ''}`}>
      <label for={id}>{field.label}</label>
      <div class="fieldrow">
        {field.kind === 'choice' ? <select id={id} aria-describedby={`${id}-d`} value={text} onChange={(event) => set(event.currentTarget.value)}>{field.choices?.map((choice) => <option key={choice}>{choice}</option>)}</select>
          : field.kind === 'tick' ? <input id={id} aria-describedby={`${id}-d`} type="checkbox" checked={text === '1'} onChange={(event) => set(event.currentTarget.checked ? '1' : '0')} />
            : field.kind === 'long' ? <textarea {...common} rows={2} spellcheck={false} value={text} onInput={(event) => set(event.currentTarget.value)} />
              : field.kind === 'secret' ? <input {...common} type="password" autocomplete="new-password" value={text} onInput={(event) => set(event.currentTarget.value)} />
                : <input {...common} inputMode={field.kind === 'number' ? 'numeric' : 'text'} autocomplete="off" spellcheck={false} value={text} onInput={(event) => type(event.currentTarget.value)} />}
        {field.nullable && <label class="nullbox"><input type="checkbox" checked={isNull} onChange={(event) => set(event.currentTarget.checked ? NULL : '')} />NULL<span class="hidden"> for {field.label}</span></label>}
      </div>
      <small id={`${id}-d`} class={verdict ? verdict.level : 'muted'} aria-live="polite">{verdict?.text ?? field.hint ?? ''}</small>
    </div>
  );
}
